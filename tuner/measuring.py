"""Measure one setting at one rate: the engine that is up, the run, its figures and the verdict."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from bench import Progress, Run, Summary, play, save_run, summarise, sustainable
from bench.server_watch import ServerWatch
from bench.simulated import can_simulate, play_simulated
from bench.sustainability import MAX_MEDIAN_DELAY_NS, Sustainability
from engine_adapter.clock import Clock
from engine_adapter.errors import EngineError, NeedsRestart
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Engine, EngineInfo
from tuner.engines import EngineMaker
from tuner.load_meta import load_meta
from tuner.run_length import run_seconds
from tuner.slo import VIOLATION_CAP, Judgement, Slo
from tuner.study import Study
from tuner.trial import Outcome, TrialRun
from workloads import Plan, build_plan

SUSTAINABLE = "sustainable"
"""The constraint beside the SLO's: the load does not pile up (metrics.md, capacity)."""
_THIN = 0.05
"""Room below a limit, as a share of it, that is too little to rely on. Fluidity has an upper end at 1."""
_LONG_GAP = 3.0
"""A gap this many times a percentile's limit is worth a warning although the percentile holds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run and what it came to. `holds` means: valid, every objective met, load sustainable."""

    run: TrialRun
    outcome: Outcome
    constraints: dict[str, float]
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.outcome is Outcome.OK

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        return cls(TrialRun(**values["run"]), Outcome(values["outcome"]), values["constraints"],
                   values["note"])


class Measurer:
    """Keeps at most one engine up and plays runs on it. Always `close()` it.

    With live knobs one engine serves every setting; without, each setting gets its own start.
    """

    def __init__(
        self, study: Study, maker: EngineMaker, slo: Slo, *, clock: Clock, wall: Clock | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`clock` is the engines', `wall` counts what they cost; left out it is the same."""
        self._study, self._maker, self._slo, self._clock = study, maker, slo, clock
        self._wall = wall or clock
        self._on_progress = on_progress
        self._engine: Engine | None = None
        self._info: EngineInfo | None = None
        self._up_since_ns = 0

    @property
    def info(self) -> EngineInfo | None:
        """The engine that is up, with the knobs in force."""
        return self._info

    @property
    def engine(self) -> Engine:
        """The engine that is up."""
        assert self._engine is not None
        return self._engine

    async def open(self, engine: Engine) -> EngineInfo:
        """Start `engine` in place of the one that is up; raises what its start raises."""
        await self.close()
        self._engine, self._up_since_ns = engine, self._wall.now_ns()
        self._study.state.engine_starts += 1
        try:
            self._info = await engine.start()
        except BaseException:
            await self.close()
            raise
        self._study.save()
        return self._info

    async def open_capacity(self) -> EngineInfo:
        """The engine for the search."""
        return await self.open(self._maker.capacity())

    async def open_config(self, path: Path) -> EngineInfo:
        """A fresh engine from a `vllm serve --config` file."""
        return await self.open(self._maker.from_config(path))

    async def close(self) -> None:
        """Stop the engine that is up, if any, and book its time."""
        engine, self._engine, self._info = self._engine, None, None
        if engine is not None:
            try:
                await engine.stop()
            finally:
                self._study.state.engine_seconds += self._seconds_since(self._up_since_ns)

    async def measure_valid(self, knobs: Knobs | None, rate_rps: float, *, seed: int, purpose: str,
                            factor: float = 1.0) -> list[Measured]:
        """`measure`, and once more when the first run said nothing because the client was late."""
        runs = [await self.measure(knobs, rate_rps, seed=seed, purpose=purpose, factor=factor)]
        if runs[0].outcome is Outcome.CLIENT_LIMITED:
            runs.append(await self.measure(knobs, rate_rps, seed=seed, purpose=purpose, factor=factor))
        return runs

    async def measure(self, knobs: Knobs | None, rate_rps: float, *, seed: int, purpose: str,
                      factor: float = 1.0) -> Measured:
        """Play one run of the study's workload at `rate_rps` under `knobs` and judge it.

        No knobs: the engine as it is. It lasts `factor` times a search run at that rate. The run is
        kept in the study. An engine that fails is stopped, so that the next call starts another; the
        failure is the outcome, not an exception.
        """
        began_ns = self._wall.now_ns()
        name = self._study.next_run(purpose)
        config = self._study.config
        try:
            info = await self._with_knobs(knobs)
            plan = build_plan(config.workload, rate_rps=rate_rps, seed=seed, burstiness=config.burstiness,
                              duration_s=run_seconds(config, rate_rps) * factor,
                              warmup_s=config.warmup_seconds, begin_anew=True)
            plan.check_fits(info.max_model_len)
            self._warn_of_repeats(plan)
            run = await self._play(plan, info, name)
        except EngineError as error:
            await self.close()
            return self._failed(error, rate_rps, self._seconds_since(began_ns))
        measured = self._judge(run, rate_rps, name, self._seconds_since(began_ns))
        if run.engine_failure is not None:
            await self.close()
        return measured

    def _seconds_since(self, began_ns: int) -> float:
        return (self._wall.now_ns() - began_ns) / 1e9

    async def _with_knobs(self, knobs: Knobs | None) -> EngineInfo:
        if self._info is None or self._engine is None:
            if knobs is None or self._study.state.environment.get("live_knobs", True):
                await self.open_capacity()
            else:
                return await self.open(self._maker.with_knobs(knobs))
        assert self._info is not None
        if knobs is not None and self._info.knobs != knobs:
            if not self._info.live_knobs:
                return await self.open(self._maker.with_knobs(knobs))
            try:
                applied = await self.engine.apply(knobs)
            except NeedsRestart as why:
                self._study.state.warn(f"one engine per setting: {why}")
                return await self.open(self._maker.with_knobs(knobs))
            self._info = replace(self._info, knobs=applied.knobs)
        await self.engine.reset_caches()
        return self._info

    def _warn_of_repeats(self, plan: Plan) -> None:
        trace = self._study.config.workload.trace
        if trace is not None and len(plan) > len(trace):
            self._study.state.warn(
                f"the trace has {len(trace)} requests, fewer than a run needs: it was played repeatedly, "
                f"with the same lengths and other tokens; a longer trace would say more")

    async def _play(self, plan: Plan, info: EngineInfo, name: str) -> Run:
        config = self._study.config
        salt, meta = f"{config.seed}/{name}", {
            **load_meta(config.workload, config.burstiness or config.workload.burstiness),
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "label": name.removeprefix("runs/"),
        }
        if can_simulate(self.engine):
            # In a thread, so that an interruption is heard.
            return await asyncio.to_thread(play_simulated, plan, self.engine, info, salt=salt, meta=meta)
        machine = (self._study.state.environment or {}).get("machine")
        if machine is not None and config.server.get("kind") != "remote":
            meta["machine"] = machine
        watch = ServerWatch(self.engine)
        await watch.begin()
        run = await play(
            plan, self.engine, info, clock=self._clock, salt=salt, meta=meta,
            request_timeout_s=config.request_timeout_s, on_progress=self._on_progress)
        return await watch.end(run, plan)

    def _judge(self, run: Run, rate_rps: float, name: str, seconds: float) -> Measured:
        deadlines = self._study.state.reader_deadlines
        summary = summarise(run, deadlines=deadlines)
        judgement = self._slo.judge(summary)
        load = sustainable(run, deadlines)
        constraints = dict(sorted({**judgement.constraints(), SUSTAINABLE: _excess(load)}.items()))
        outcome, note = self._outcome(run, judgement, load)
        save_run(run, self._study.directory / name, summary=summary.as_dict())
        trial_run = TrialRun(rate_rps=rate_rps, directory=name, holds=outcome is Outcome.OK,
                             outcome=outcome.value, judgement=judgement.as_dict(),
                             figures=figures_of(summary), seconds=seconds)
        return Measured(trial_run, outcome, constraints, note)

    def _outcome(self, run: Run, judgement: Judgement, load: Sustainability) -> tuple[Outcome, str]:
        if run.engine_failure is not None:
            return Outcome(run.engine_failure.outcome), str(run.engine_failure)
        if not run.validity.valid:
            return Outcome.CLIENT_LIMITED, "; ".join(run.validity.reasons)
        if not judgement.holds:
            worst = judgement.worst()
            return Outcome.SLO_VIOLATED, worst.why or f"{worst.objective} is missed"
        if not load.sustainable:
            return Outcome.SLO_VIOLATED, "; ".join(load.reasons)
        return Outcome.OK, ""

    @staticmethod
    def _failed(error: EngineError, rate_rps: float, seconds: float) -> Measured:
        outcome = Outcome(error.outcome) if not isinstance(error, NeedsRestart) else Outcome.INVALID
        run = TrialRun(rate_rps=rate_rps, directory="", holds=False, outcome=outcome.value, judgement=None,
                       seconds=seconds)
        return Measured(run, outcome, {}, str(error))


def rare_stalls(measured: Measured, slo: Slo) -> str:
    """A warning when a TBT percentile holds only because long gaps are rarer than it can see, else ""."""
    longest = measured.run.figures.get("max_tbt_ms")
    for objective in slo.objectives:
        if (objective.metric != "tbt" or objective.stat in (None, "max", "std") or longest is None
                or objective.tenant):
            continue
        limit_ms = objective.limit / 1e6
        if measured.holds and longest > _LONG_GAP * limit_ms:
            return (f"{objective} holds, yet the longest gap was {longest:.0f} ms: a percentile is blind to "
                    f"stalls in fewer of the gaps than it leaves out; add --slo 'tbt:max<=...' to bound them")
    return ""


def thin_margin(measured: Measured) -> str:
    """A warning when an objective holds by less than runs of this length vary, else ""."""
    near = {key: -violation for key, violation in measured.constraints.items()
            if key != SUSTAINABLE and -_THIN < violation <= 0
            and not key.rpartition("/")[2].startswith(("error_rate", "fluidity"))}
    if not (measured.holds and near):
        return ""
    key = min(near, key=lambda name: near[name])
    return (f"thin margin: {key} holds by only {100 * near[key]:.1f} % of its limit: longer runs "
            f"(--run-seconds) would tell whether it lasts")


def figures_of(summary: Summary) -> dict[str, float | None]:
    """The scalar figures of a run under their JSON names, for records and tables."""
    return {
        key: float(value) if value is not None else None
        for key, value in summary.as_dict().items()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    }


def _excess(load: Sustainability) -> float:
    """Violation of the sustainable-load rule: the delay's excess over its limit, positive when it fails."""
    if load.median_delay_ns is None:
        return 0.0 if load.sustainable else VIOLATION_CAP
    excess = min(load.median_delay_ns / MAX_MEDIAN_DELAY_NS - 1, VIOLATION_CAP)
    return excess if load.sustainable else max(excess, 1.0)

