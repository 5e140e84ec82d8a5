"""The capacity of a server whose settings cannot be changed: the most load at which its SLO holds."""

from typing import Any

from engine_adapter.clock import Clock
from engine_adapter.machine import machine_facts
from engine_adapter.seam import EngineInfo
from tuner.capacity_result import (
    capacity_result,
    highest_held,
    is_final,
    levels_of,
    proving_runs,
    verdict_of,
)
from tuner.confirm import RUN_FACTOR, STEPS_DOWN
from tuner.engines import EngineMaker
from tuner.ladder import Ladder, highest_level
from tuner.measuring import Measured, Measurer
from tuner.probe import probe, remember
from tuner.progress import StudyProgress
from tuner.run_length import lowest_rate_rps, run_seconds
from tuner.seeds import run_seed
from tuner.slo import Slo
from tuner.study import Study
from workloads import EvidenceError, UsageError

CAPACITY_FILE = "capacity.json"
_HIGHEST = 80
_MAX_RUNS = 14
_DRAIN_S = 5.0


async def find_capacity(study: Study, maker: EngineMaker, slo: Slo, *, clock: Clock,
                        progress: StudyProgress) -> dict[str, Any]:
    """Seek the highest rate that holds, prove it on fresh arrivals and return capacity.json, which is
    also kept up to date on disk.

    Interrupted at any point it leaves every finished run behind, and goes on after the last one. Of a
    study that has its verdict only the result is returned. Raises EngineError when the server cannot be
    reached or fails in the probe, UsageError for a workload that does not fit it, EvidenceError when a
    resumed study finds another server.
    """
    seeking = _Seeking(study, maker, slo, clock, progress)
    try:
        return await seeking.run()
    finally:
        await seeking.close()


class _Seeking:
    def __init__(self, study: Study, maker: EngineMaker, slo: Slo, clock: Clock,
                 progress: StudyProgress) -> None:
        self._study, self._slo, self._clock, self._progress = study, slo, clock, progress
        self._measurer = Measurer(study, maker, slo, clock=clock, on_progress=progress.on_run)
        self._began_ns = clock.now_ns()
        self._out_of_time = False

    async def run(self) -> dict[str, Any]:
        study = self._study
        known = study.state.confirmation or {}
        if "verdict" in known:
            return self._write(known["verdict"], known["verdict_text"])
        await self._open()
        base = study.state.base_rate_rps if study.config.rate_rps is None else study.config.rate_rps
        assert base is not None
        ladder = Ladder(base, study.config.rate_step)
        await self._search(ladder)
        if (held := highest_held(levels_of(study))) is not None:
            await self._confirm(ladder, held.level)
        verdict, text = verdict_of(study, out_of_time=self._out_of_time)
        if is_final(study, verdict):
            self._remember(verdict=verdict, verdict_text=text)
        return self._write(verdict, text)

    async def close(self) -> None:
        """Let go of the server, and leave the state on disk."""
        try:
            await self._measurer.close()
        finally:
            self._study.save()
            self._study.close()

    async def _open(self) -> None:
        study, config, progress = self._study, self._study.config, self._progress
        remote = config.server["kind"] == "remote"
        progress.say(f"connecting to {config.server['target']['base_url']}" if remote
                     else "starting the server")
        info = await self._measurer.open_capacity()
        self._check(info)
        self._write()
        if study.state.deadlines is None:
            progress.say("probing: lone prefills and decode steps")
            found = await probe(
                self._measurer.engine, info, config.workload, self._slo, clock=self._clock,
                decode_deadline_ms=config.decode_deadline_ms, prefill_slack_ms=config.prefill_slack_ms,
                salt=f"{config.seed}/probe")
            remember(study, found)

    def _check(self, info: EngineInfo) -> None:
        state, workload = self._study.state, self._study.config.workload
        if info.max_model_len is not None and workload.longest_request > info.max_model_len:
            raise UsageError(f"the workload's longest request is {workload.longest_request} tokens, the "
                             f"model takes {info.max_model_len}: use a workload with shorter lengths")
        found = {
            "engine": info.name, "engine_version": info.version, "model": info.model,
            "max_model_len": info.max_model_len, "live_knobs": info.live_knobs,
            "live_knobs_note": info.live_knobs_note, "fingerprint": info.fingerprint,
            "token_count_source": info.token_count_source, "machine": machine_facts(),
        }
        for name in ("engine", "engine_version", "model", "max_model_len"):
            if state.environment and state.environment[name] != found[name]:
                raise EvidenceError(
                    f"this is not the server that the study was begun with: its {name.replace('_', ' ')} was "
                    f"{state.environment[name]} and is {found[name]} now; start a new study")
        state.environment = found
        state.warn("only the capacity of this server was sought: its settings cannot be changed from here")
        if (trace := self._study.config.workload.trace) is not None and trace.left_out:
            state.warn(trace.left_out)

    async def _search(self, ladder: Ladder) -> None:
        config = self._study.config
        if config.rate_rps is not None:
            await self._holds(ladder, 0)
            return
        await highest_level(
            lambda at: self._holds(ladder, at), start=0, ceiling=_HIGHEST, max_runs=_MAX_RUNS, downwards=True,
            floor=min(0, ladder.lowest_level(lowest_rate_rps(config))))

    async def _holds(self, ladder: Ladder, level: int) -> bool | None:
        """Whether the SLO holds at this level; None when nothing more can be found out."""
        state, rate = self._study.state, ladder.rate_rps(level)
        known = next((entry for entry in levels_of(self._study) if entry.level == level), None)
        if known is not None and not known.last.outcome.is_bad:
            return known.last.holds
        if self._is_late(rate):
            self._out_of_time = True
            return None
        runs = await self._play(rate, purpose="search", factor=1.0)
        # A resumed study tries again what could not be judged.
        state.levels = [entry for entry in state.levels if entry["level"] != level]
        state.levels.append({"level": level, "runs": [run.as_dict() for run in runs]})
        self._study.save()
        self._write()
        last = runs[-1]
        return None if last.outcome.is_bad and not last.run.directory else last.holds

    async def _confirm(self, ladder: Ladder, level: int) -> None:
        """At the rate that was found, and where it does not hold there, a few steps below."""
        steps = STEPS_DOWN if self._study.config.rate_rps is None else 0
        done = [run for run in proving_runs(self._study) if not run.outcome.is_bad]
        for step in range(steps + 1):
            rate = ladder.rate_rps(level - step)
            last = next((run for run in reversed(done) if run.run.rate_rps == rate), None)
            if last is None:
                done += await self._play(rate, purpose="confirm", factor=RUN_FACTOR)
                last = done[-1]
                self._remember(runs=[run.as_dict() for run in done])
                self._write()
            if last.holds or last.outcome.is_bad:
                break

    async def _play(self, rate: float, *, purpose: str, factor: float) -> list[Measured]:
        progress = self._progress
        progress.say(f"{'confirming' if purpose == 'confirm' else 'measuring'} at {rate:.3g} requests/s")
        progress.rate_rps = rate
        runs = await self._measurer.measure_valid(
            None, rate, seed=run_seed(self._study.config.seed, purpose), purpose=purpose, factor=factor)
        progress.last = runs[-1]
        progress.changed()
        return runs

    def _is_late(self, rate: float) -> bool:
        config = self._study.config
        if config.time_budget_s is None:
            return False
        left_s = config.time_budget_s - (self._clock.now_ns() - self._began_ns) / 1e9
        run_s = run_seconds(config, rate)
        # One more search run, and the confirmation of whatever holds.
        needed_s = 2 * (config.warmup_seconds + _DRAIN_S) + run_s * (1 + RUN_FACTOR)
        self._progress.seconds_left = max(0.0, left_s - needed_s)
        return needed_s > left_s

    def _remember(self, **known: Any) -> None:
        self._study.state.confirmation = (self._study.state.confirmation or {}) | known
        self._study.save()

    def _write(self, verdict: str = "unfinished", text: str = "") -> dict[str, Any]:
        study = self._study
        played = sum(len(level.runs) for level in levels_of(study)) + len(proving_runs(study))
        content = capacity_result(study, self._slo, verdict,
                                  text or f"{played} runs were measured; add --resume to go on")
        study.write_json(CAPACITY_FILE, content)
        return content
