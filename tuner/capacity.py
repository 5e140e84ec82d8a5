"""The capacity of a server whose settings cannot be changed: the most load at which its SLO holds."""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from engine_adapter.clock import Clock
from engine_adapter.machine import machine_facts
from engine_adapter.seam import EngineInfo
from tuner.confirm import RUN_FACTOR, STEPS_DOWN, figures
from tuner.engines import EngineMaker
from tuner.ladder import Ladder, highest_level
from tuner.measuring import Measured, Measurer, lowest_rate_rps, rare_stalls, run_seconds, thin_margin
from tuner.probe import probe, remember
from tuner.progress import StudyProgress
from tuner.seeds import run_seed
from tuner.slo import Slo
from tuner.study import Study
from workloads import UsageError

SCHEMA_VERSION = 1
CAPACITY_FILE = "capacity.json"
EXIT_CODES = {"confirmed": 0, "slo_infeasible": 1, "not_confirmed": 2, "cut_short": 2, "no_evidence": 3,
              "unfinished": 130}
"""What `tune run` exits with, by verdict; see docs/exit-codes.md."""
_HIGHEST = 80
_MAX_RUNS = 14
_DRAIN_S = 5.0


async def find_capacity(study: Study, maker: EngineMaker, slo: Slo, *, clock: Clock,
                        progress: StudyProgress) -> dict[str, Any]:
    """Seek the highest rate that holds, prove it on fresh arrivals and return capacity.json, which is
    also kept up to date on disk. Interrupted at any point it leaves every finished run behind."""
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
        study, progress = self._study, self._progress
        progress.say("connecting")
        info = await self._measurer.open_capacity()
        self._check(info)
        if study.state.deadlines is None:
            progress.say("probing: lone prefills and decode steps")
            config = study.config
            found = await probe(
                self._measurer.engine, info, config.workload, self._slo, clock=self._clock,
                decode_deadline_ms=config.decode_deadline_ms, prefill_slack_ms=config.prefill_slack_ms,
                salt=f"{config.seed}/probe")
            remember(study, found)
        base = study.state.base_rate_rps if study.config.rate_rps is None else study.config.rate_rps
        assert base is not None
        ladder = Ladder(base, study.config.rate_step)
        lowest = min(0, ladder.lowest_level(lowest_rate_rps(study.config)))
        if study.config.rate_rps is not None:
            level: int | None = 0 if await self._holds(ladder, 0) else None
        else:
            level = await highest_level(
                lambda at: self._holds(ladder, at), start=max(0, lowest), floor=lowest, ceiling=_HIGHEST,
                max_runs=_MAX_RUNS, downwards=True)
        confirmed = [] if level is None else await self._confirm(ladder, level)
        study.save()
        return self._write(searched=None if level is None else ladder.rate_rps(level), confirmed=confirmed,
                           finished=True)

    async def close(self) -> None:
        """Let go of the server, and leave the state on disk."""
        try:
            await self._measurer.close()
        finally:
            self._study.save()
            self._study.close()

    def _check(self, info: EngineInfo) -> None:
        state, workload = self._study.state, self._study.config.workload
        if info.max_model_len is not None and workload.longest_request > info.max_model_len:
            raise UsageError(f"the workload's longest request is {workload.longest_request} tokens, the "
                             f"model takes {info.max_model_len}: use a workload with shorter lengths")
        state.environment = {
            "engine": info.name, "engine_version": info.version, "model": info.model,
            "max_model_len": info.max_model_len, "live_knobs": info.live_knobs,
            "live_knobs_note": info.live_knobs_note, "fingerprint": info.fingerprint,
            "token_count_source": info.token_count_source, "machine": machine_facts(),
        }
        state.warn("only the capacity of this server was sought: its settings cannot be changed from here")

    async def _holds(self, ladder: Ladder, level: int) -> bool | None:
        """Whether the SLO holds at this level; None when nothing more can be found out."""
        state, rate = self._study.state, ladder.rate_rps(level)
        known = next((entry for entry in state.levels if entry["level"] == level), None)
        if known is None:
            if self._is_late(rate):
                self._out_of_time = True
                return None
            known = {"level": level, "runs": [run.as_dict() for run in await self._play(
                rate, seed=run_seed(self._study.config.seed, "search"), purpose="search", factor=1.0)]}
            state.levels.append(known)
            self._write(searched=None, confirmed=[], finished=False)
        last = Measured.from_dict(known["runs"][-1])
        return None if last.outcome.is_bad and not last.run.directory else last.holds

    async def _confirm(self, ladder: Ladder, level: int) -> list[Measured]:
        """At the rate that was found, and where it does not hold there, a few steps below."""
        steps = STEPS_DOWN if self._study.config.rate_rps is None else 0
        runs: list[Measured] = []
        for step in range(steps + 1):
            runs += await self._play(ladder.rate_rps(level - step), purpose="confirm", factor=RUN_FACTOR,
                                     seed=run_seed(self._study.config.seed, "confirm"))
            if runs[-1].holds or runs[-1].outcome.is_bad:
                break
        return runs

    async def _play(self, rate: float, *, seed: int, purpose: str, factor: float) -> list[Measured]:
        progress = self._progress
        progress.say(f"{'confirming' if purpose == 'confirm' else 'measuring'} at {rate:.3g} requests/s")
        progress.rate_rps = rate
        runs = await self._measurer.measure_valid(None, rate, seed=seed, purpose=purpose, factor=factor)
        progress.last = runs[-1]
        progress.changed()
        self._study.save()
        return runs

    def _is_late(self, rate: float) -> bool:
        config = self._study.config
        if config.time_budget_s is None:
            return False
        spent_s = (self._clock.now_ns() - self._began_ns) / 1e9
        run_s = config.warmup_seconds + run_seconds(config, rate) + _DRAIN_S
        return spent_s + run_s * (1 + RUN_FACTOR) > config.time_budget_s

    def _write(self, *, searched: float | None, confirmed: list[Measured], finished: bool) -> dict[str, Any]:
        study, state = self._study, self._study.state
        proof = next((run for run in confirmed if run.holds), confirmed[-1] if confirmed else None)
        if proof is not None:
            for doubt in (rare_stalls(proof, self._slo), thin_margin(proof)):
                if doubt:
                    state.warn(doubt)
        played = [Measured.from_dict(run) for entry in state.levels for run in entry["runs"]]
        verdict, text = self._verdict(played, proof, searched) if finished else (
            "unfinished", f"{len(played)} runs were measured; add --resume to go on")
        content = {
            "schema_version": SCHEMA_VERSION, "stallfree_version": version("stallfree"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "verdict": verdict, "verdict_text": text,
            "capacity_rps": proof.run.rate_rps if proof is not None and proof.holds else None,
            "searched_rps": searched, "confirmed": figures(proof, None),
            "runs": [figures(run, None) for run in played], "slo": [str(o) for o in self._slo.objectives],
            "decode_deadline_ms": study.config.decode_deadline_ms,
            "workload": {"name": study.config.workload.name, "digest": study.config.workload.digest()},
            "environment": state.environment, "warnings": list(state.warnings),
            "wall_seconds": round(state.wall_seconds, 1),
        }
        study.write_json(CAPACITY_FILE, content)
        return content

    def _verdict(self, played: list[Measured], proof: Measured | None,
                 searched: float | None) -> tuple[str, str]:
        if proof is not None and proof.holds:
            return "confirmed", (f"the SLO holds at {proof.run.rate_rps:.3g} requests/s, on arrivals that "
                                 f"the search had not seen")
        if proof is not None:
            return "not_confirmed", (f"the SLO held at {searched:.3g} requests/s while searching, but not on "
                                     f"fresh arrivals: {proof.note}")
        judged = [run for run in played if not run.outcome.is_bad]
        if self._out_of_time and not judged:
            return "cut_short", "the time ended before a rate was found: give more --max-minutes"
        if not judged:
            return "no_evidence", played[-1].note if played else "nothing could be measured"
        lowest = min(judged, key=lambda run: run.run.rate_rps)
        return "slo_infeasible", (f"the SLO holds at no rate down to {lowest.run.rate_rps:.3g} requests/s: "
                                  f"{lowest.note}")
