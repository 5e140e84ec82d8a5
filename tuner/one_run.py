"""One run of one setting: start, deadlines, knobs, play, judge, keep."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import (
    Deadlines,
    GoodputRules,
    PrefillCurve,
    Progress,
    Run,
    RunRecorder,
    Summary,
    play,
    save_run,
    summarise,
)
from bench.files import write_json
from bench.server_watch import ServerWatch
from bench.shards import ShardRecorder
from bench.stages import after_ramp_up, stage_figures
from bench.workers import play_sharded
from engine_adapter.clock import Clock
from engine_adapter.errors import NeedsRestart
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.machine import machine_facts
from engine_adapter.seam import Engine, EngineInfo
from tuner.knobs_asked import KnobsAsked
from tuner.load_meta import load_meta
from tuner.prefill_reference import CURVE_FILE, measure_reference, misfit
from tuner.slo import Judgement, Slo
from workloads import EvidenceError, Plan, UsageError, Workload

MISSED, INVALID, INTERRUPTED = 1, 3, 130
"""Exit codes of a run; see docs/exit-codes.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What is measured, how it is judged, and where it is kept."""

    workload: Workload
    plan: Plan
    burstiness: float
    directory: Path
    """Of the run; it must not exist yet."""
    knobs: KnobsAsked | None
    """On top of the engine's defaults; None takes the engine as it started."""
    slo: Slo | None = None
    slo_is_asked: bool = False
    """Whether missing the SLO is a failure, or only shown."""
    goodput: GoodputRules | None = None
    fluidity: bool = True
    decode_deadline_ms: float
    prefill_slack_ms: float
    prefill_curve: PrefillCurve | None = None
    """None: measured before the run."""
    max_concurrency: int | None = None
    dispatch_for_s: float | None = None
    """Nothing is sent later than this after the start."""
    workers: int = 1
    """Processes that send; more than one needs a server."""
    address: str | None = None
    """Of the server, where it runs already; None where an engine is started."""
    request_timeout_s: float = 120.0
    label: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OneRun:
    """A run that was played and kept."""

    spec: RunSpec
    run: Run
    summary: Summary
    judgement: Judgement | None
    warnings: tuple[str, ...]
    interrupted: bool
    stages: tuple[dict[str, Any], ...] = ()
    """Figures of each stage of the load; none where it had no stages."""

    @property
    def exit_code(self) -> int:
        """130 interrupted, 3 invalid (a failed engine too), 1 an SLO that was asked for is missed, else 0."""
        if self.interrupted:
            return INTERRUPTED
        if not self.run.validity.valid:
            return INVALID
        missed = self.judgement is not None and not self.judgement.holds
        return MISSED if missed and self.spec.slo_is_asked else 0

    def failing(self) -> str:
        """Why the exit code is not 0, in one line; "" where it is."""
        where = f"what was measured is in {self.spec.directory}"
        if self.interrupted:
            return f"interrupted; {where}"
        if self.run.engine_failure is not None:
            return f"the engine failed: {self.run.engine_failure}; {where}"
        if not self.run.validity.valid:
            return f"the run is invalid: {'; '.join(self.run.validity.reasons)}"
        if self.exit_code and self.judgement is not None:
            worst = self.judgement.worst()
            return f"the SLO is missed: {worst.objective}" + (f" ({worst.why})" if worst.why else "")
        return ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the summary (vLLM's keys, then ours), the SLO's verdict, and where the run lies.

        Metadata stands at the top level, as vLLM writes it, unless a key of ours has its name;
        all of it is under `metadata` too.
        """
        return {
            **self.spec.metadata, **self.summary.as_dict(), "metadata": dict(self.spec.metadata),
            "stages": list(self.stages),
            "slo": None if self.judgement is None else self.judgement.as_dict(),
            "warnings": list(self.warnings), "run_directory": str(self.spec.directory),
        }


async def measure_one(
    engine: Engine, restart: Callable[[Knobs], Engine], spec: RunSpec, *, clock: Clock,
    say: Callable[[str], None] = lambda text: None, on_progress: Callable[[Progress], None] | None = None,
) -> OneRun:
    """Start `engine`, bring it to the knobs asked for, play the plan and keep the run in its directory.

    Knobs that `engine` cannot take live cost a second start, of `restart(knobs)`. On cancellation
    in mid-run, and when the engine fails, what was measured is kept and marked as cut short.
    Raises EngineError when no run began, EvidenceError when an engine does not obey its knobs,
    UsageError when the workload does not fit it, OutputError when the run cannot be written.
    Whatever happens, no engine is left running.
    """
    measuring = _Measuring(engine, restart, spec, clock, say)
    try:
        info = await measuring.prepare()
        return await measuring.play(info, on_progress)
    finally:
        await measuring.stop()


def _label(info: EngineInfo) -> str:
    return "settings unknown" if info.knobs is None else info.knobs.label()


class _Measuring:
    def __init__(self, engine: Engine, restart: Callable[[Knobs], Engine], spec: RunSpec, clock: Clock,
                 say: Callable[[str], None]) -> None:
        self._engine, self._restart, self._spec, self._clock, self._say = engine, restart, spec, clock, say
        self._salt = f"{spec.plan.seed}/{spec.directory.name}"
        self._deadlines: Deadlines | None = None
        self._warnings: list[str] = []

    async def prepare(self) -> EngineInfo:
        """The engine, started and under the knobs asked for."""
        address = self._spec.address
        self._say("starting the engine" if address is None else f"connecting to {address}")
        started = info = await self._engine.start()
        self._spec.plan.check_fits(info.max_model_len)
        knobs = started.knobs
        if self._spec.knobs is not None and (info.default_knobs is not None or self._spec.knobs.given()):
            knobs = self._spec.knobs.on(info.settings.defaults)
        self._warn_of(info)
        if self._spec.fluidity:
            info = await self._take_deadlines(info)
        if knobs is not None and info.knobs != knobs:
            info = await self._under(knobs, info)
        self._say(f"{info.name} {info.version} runs {info.model}: {_label(info)}")
        return info

    async def play(self, info: EngineInfo, on_progress: Callable[[Progress], None] | None) -> OneRun:
        """The run, judged and on disk."""
        spec, interrupted = self._spec, False
        await self._engine.reset_caches()
        self._say(f"measuring {len(spec.plan)} requests, {spec.plan.num_warmups} of them warm-up")
        recorder = RunRecorder(spec.plan) if spec.workers == 1 else ShardRecorder(spec.plan)
        watch = ServerWatch(self._engine)
        try:
            run = await self._played(info, recorder, watch, on_progress)
        except asyncio.CancelledError:
            # Kept, not passed on: the caller ends right after this run anyway.
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            run, interrupted = recorder.run(cut_short="interrupted"), True
        run = await watch.end(run, spec.plan)
        del recorder  # of a long run it is as large as the run
        stages = tuple(stage_figures(run, self._deadlines, spec.goodput))
        run = after_ramp_up(run)
        summary = summarise(run, deadlines=self._deadlines, goodput=spec.goodput)
        save_run(run, spec.directory, summary=summary.as_dict() | {"stages": list(stages)})
        if self._deadlines is not None:
            write_json(spec.directory / CURVE_FILE, self._deadlines.curve.as_dict())
        judgement = None if spec.slo is None else spec.slo.judge(summary)
        summary.let_go()
        return OneRun(spec, run, summary, judgement, tuple(self._warnings), interrupted, stages)

    async def _played(self, info: EngineInfo, recorder: RunRecorder | ShardRecorder, watch: ServerWatch,
                      on_progress: Callable[[Progress], None] | None) -> Run:
        spec = self._spec
        if isinstance(recorder, RunRecorder):
            await watch.begin()
            return await play(
                spec.plan, self._engine, info, clock=self._clock, salt=self._salt, recorder=recorder,
                request_timeout_s=spec.request_timeout_s, on_progress=on_progress, meta=self._meta(),
                max_concurrency=spec.max_concurrency, dispatch_for_s=spec.dispatch_for_s)
        target: HttpTarget | None = getattr(self._engine, "target", None)
        if target is None:
            raise UsageError("--workers needs a server: give --base-url or --server vllm")
        return await play_sharded(
            spec.plan, target, info, workers=spec.workers, salt=self._salt, recorder=recorder,
            request_timeout_s=spec.request_timeout_s, on_progress=on_progress, meta=self._meta(),
            max_concurrency=spec.max_concurrency, dispatch_for_s=spec.dispatch_for_s,
            before_start=watch.begin, step_log=self._engine.step_log)

    async def stop(self) -> None:
        """End the engine that is up, or let go of the server."""
        address = self._spec.address
        self._say("stopping the engine" if address is None else f"disconnecting from {address}")
        await self._engine.stop()

    async def _take_deadlines(self, info: EngineInfo) -> EngineInfo:
        spec = self._spec
        longest = int(spec.plan.input_len.max())
        curve = spec.prefill_curve
        if curve is None:
            self._say("measuring lone prefills, the base of the fluidity deadlines")
            curve, info, warning = await measure_reference(
                self._engine, info, longest, clock=self._clock, salt=self._salt)
        else:
            warning = misfit(curve, info, longest)
        if warning:
            self._warn(warning)
        self._deadlines = Deadlines(
            curve, round(spec.prefill_slack_ms * 1e6), round(spec.decode_deadline_ms * 1e6))
        return info

    async def _under(self, knobs: Knobs, info: EngineInfo) -> EngineInfo:
        try:
            info = replace(info, knobs=(await self._engine.apply(knobs)).knobs)
        except NeedsRestart as why:
            self._say(f"starting the engine again, with {knobs.label()}: {why}")
            await self._engine.stop()
            self._engine = self._restart(knobs)
            info = await self._engine.start()
            self._spec.plan.check_fits(info.max_model_len)
        if info.knobs != knobs:
            raise EvidenceError(f"the engine was asked for {knobs.label()} and runs {_label(info)}: "
                                f"this vLLM does not take that setting")
        return info

    def _warn_of(self, info: EngineInfo) -> None:
        """What its first request showed of a server that was not asked for by the seam, and what a trace
        lacks."""
        if (trace := self._spec.workload.trace) is not None and trace.left_out:
            self._warn(trace.left_out)
        facts = info.fingerprint
        if failure := facts.get("probe_failure"):
            self._warn(f"the server's first answer failed: {failure}")
        if not facts.get("model_listed", True):
            self._warn(f"the server does not list the model {info.model}; it answers all the same")
        if "ignore_eos" in facts.get("refused", ()):
            self._warn("the server does not take ignore_eos: answers end where the model ends them")
        if info.token_count_source == "events" and not failure:
            self._warn("the server does not count tokens: each message counts as one; give --tokenizer to "
                       "count the text")

    def _warn(self, text: str) -> None:
        self._warnings.append(text)
        self._say(f"warning: {text}")

    def _meta(self) -> dict[str, Any]:
        spec = self._spec
        return {
            **load_meta(spec.workload, spec.burstiness),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "label": spec.label,
            # Of a server elsewhere nothing is known of its machine.
            **({"machine": machine_facts()} if spec.address is None else {}),
            **({"metadata": dict(spec.metadata)} if spec.metadata else {}),
            **({"warnings": list(self._warnings)} if self._warnings else {}),
        }
