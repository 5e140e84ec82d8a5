"""One load played against simulated engines, one for each setting: figures, verdicts, and what is kept."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import NEVER, Deadlines, GoodputRules, Outcome, PrefillCurve, Run, Summary, save_run, summarise
from bench.files import write_json
from bench.run_meta import run_meta
from bench.simulated import simulate_run, simulated_curve
from bench.stages import after_ramp_up, stage_figures
from engine_adapter.knobs import Knobs
from tuner.calibration.covered import Covered
from tuner.calibration.file import load_calibration
from tuner.knobs_text import SettingAsked
from tuner.load_meta import load_meta
from tuner.one_run import INVALID, MISSED
from tuner.prefill_reference import CURVE_FILE
from tuner.probe import probe_lengths
from tuner.simulation import SimulationTarget, is_calibration
from tuner.slo import Judgement, Slo
from workloads import Plan, UsageError, Workload
from workloads.traces import Trace

DEFAULT_RULE = "vllm-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSpec:
    """What is played, and how it is judged."""

    workload: Workload
    plan: Plan
    burstiness: float
    slo: Slo | None = None
    slo_is_asked: bool = False
    """Whether missing the SLO is a failure, or only shown."""
    goodput: GoodputRules | None = None
    decode_deadline_ms: float
    prefill_slack_ms: float
    prefill_curve: PrefillCurve | None = None
    """None: simulated, on the default settings."""
    max_concurrency: int | None = None
    draft_acceptance: float = 0.0
    label: str | None = None
    """Of several settings each gets its own name too."""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One setting that was played."""

    spec: SimulationSpec
    run: Run
    summary: Summary
    deadlines: Deadlines | None
    judgement: Judgement | None
    stages: tuple[dict[str, Any], ...]
    wall_s: float
    directory: Path | None = None
    """Where it was kept."""

    @property
    def refused(self) -> int:
        """Measured requests that could never fit."""
        return int((self.run.measured & (self.run.outcome == Outcome.REJECTED)).sum())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader must know before the figures."""
        return tuple(self.run.meta.get("warnings", ()))

    @property
    def exit_code(self) -> int:
        """3 invalid, as where every request was refused; 1 an SLO that was asked for is missed; else 0."""
        if not self.run.validity.valid:
            return INVALID
        missed = self.judgement is not None and not self.judgement.holds
        return MISSED if missed and self.spec.slo_is_asked else 0

    def failing(self) -> str:
        """Why the exit code is not 0, in one line; "" where it is."""
        if not self.run.validity.valid:
            return f"the run is invalid: {'; '.join(self.run.validity.reasons)}"
        if self.exit_code and self.judgement is not None:
            worst = self.judgement.worst()
            return f"the SLO is missed: {worst.objective}" + (f" ({worst.why})" if worst.why else "")
        return ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: what `tune bench --json` prints of a run, then what only a simulation has."""
        return {
            **self.spec.metadata, **self.summary.as_dict(), "metadata": dict(self.spec.metadata),
            "stages": list(self.stages),
            "slo": None if self.judgement is None else self.judgement.as_dict(),
            "warnings": list(self.warnings),
            "run_directory": None if self.directory is None else str(self.directory),
            "simulated": self.run.meta["engine"]["fingerprint"]["simulated"],
            "refused": self.refused, "simulated_s": _simulated_s(self.run), "wall_s": round(self.wall_s, 6),
        }


def simulate_settings(target: SimulationTarget, settings: list[SettingAsked],
                      spec: SimulationSpec) -> Iterator[SimulatedRun]:
    """The run of each setting, in their order, each when it is asked for.

    Deadlines are frozen before the first: a slow setting must not relax its own. UsageError for a
    setting that no scheduler could run with.
    """
    from engine_adapter.simulator.state_arrays import check_supported  # which loads the compiler

    wanted = [(asked.on(target.default_knobs), asked.rule or DEFAULT_RULE) for asked in settings]
    for knobs, rule in wanted:  # all of them first: the last may be wrong
        check_supported(_under(target, rule).settings(knobs, rule=rule))
    deadlines, covered = _deadlines(target, spec), _covered(target)
    for knobs, rule in wanted:
        label = spec.label
        if len(wanted) > 1:  # then its setting tells a run from the others
            name = knobs.label() + (f", {rule}" if rule != DEFAULT_RULE else "")
            label = name if label is None else f"{label}: {name}"
        yield _simulate(_under(target, rule), knobs, rule, deadlines, replace(spec, label=label), covered)


def keep(one: SimulatedRun, directory: Path) -> SimulatedRun:
    """The same, kept as a run directory; OutputError where it exists already or cannot be written."""
    save_run(one.run, directory, summary=one.summary.as_dict() | {"stages": list(one.stages)})
    if one.deadlines is not None:
        write_json(directory / CURVE_FILE, one.deadlines.curve.as_dict())
    return replace(one, directory=directory)


def directory_of(home: Path, number: int, *, of: int) -> Path:
    """Where the run of setting `number`, from 0, is kept: in `home` itself where it is the only one."""
    return home if of == 1 else home / f"{number + 1:0{len(str(of))}}"


def refuse_taken(home: Path | None) -> None:
    """UsageError, before anything is simulated, where the directory exists already."""
    if home is not None and home.exists():
        raise UsageError(f"{home} exists already: give another --experiment-name or --output-dir")


def _under(target: SimulationTarget, rule: str) -> SimulationTarget:
    """`target` without what only vLLM V1 has and has by default; where it was asked for, it stays, and the
    rule refuses it."""
    if rule == DEFAULT_RULE:
        return target
    return replace(
        target, prefix_caching="prefix_caching" in target.asked and target.prefix_caching,
        async_scheduling="async_scheduling" in target.asked and target.async_scheduling)


def _simulate(target: SimulationTarget, knobs: Knobs, rule: str, deadlines: Deadlines | None,
              spec: SimulationSpec, covered: Covered | None) -> SimulatedRun:
    info = target.info(knobs, rule=rule)
    meta = run_meta(spec.plan, info, "", {
        **load_meta(spec.workload, spec.burstiness), "max_concurrency": spec.max_concurrency,
        **({"draft_acceptance": spec.draft_acceptance} if spec.draft_acceptance else {}),
        "label": spec.label, **({"metadata": dict(spec.metadata)} if spec.metadata else {})})
    began = time.perf_counter()
    run = simulate_run(spec.plan, target.settings(knobs, rule=rule), target.cost, meta=meta,
                       max_concurrency=spec.max_concurrency, draft_acceptance=spec.draft_acceptance)
    stages = tuple(stage_figures(run, deadlines, spec.goodput))
    run = _with_warnings(after_ramp_up(run), target, covered, spec.workload.trace)
    summary = summarise(run, deadlines=deadlines, goodput=spec.goodput)
    summary.as_dict()
    judgement = None if spec.slo is None else spec.slo.judge(summary)
    wall_s = time.perf_counter() - began
    summary.let_go()
    return SimulatedRun(spec, run, summary, deadlines, judgement, stages, wall_s)


def _with_warnings(run: Run, target: SimulationTarget, covered: Covered | None, trace: Trace | None) -> Run:
    warnings = [] if covered is None else list(covered.beyond(run.steps))
    if trace is not None and trace.left_out:
        warnings.append(trace.left_out)
    if refused := int((run.outcome == Outcome.REJECTED).sum()):
        longest = int((run.input_len + run.output_len).max())
        warnings.append(
            f"{refused} of {len(run)} requests can never fit and are refused: the longest is {longest} "
            f"tokens, the model takes {target.max_model_len} and the KV cache holds "
            f"{(target.num_kv_blocks - 1) * target.block_size}")
    return replace(run, meta={**run.meta, "warnings": warnings}) if warnings else run


def _covered(target: SimulationTarget) -> Covered | None:
    """What the calibration behind `target` has seen; None for sheets, which saw nothing."""
    path = Path(target.asked["hardware"])
    return load_calibration(path).covered if is_calibration(path) else None


def _deadlines(target: SimulationTarget, spec: SimulationSpec) -> Deadlines | None:
    """None where not even the shortest lone prompt fits."""
    default = target.default_knobs
    curve = spec.prefill_curve or simulated_curve(
        target.settings(default), target.cost, probe_lengths(int(spec.plan.input_len.max())),
        info=target.info(default))
    if curve is None:
        return None
    return Deadlines(curve, round(spec.prefill_slack_ms * 1e6), round(spec.decode_deadline_ms * 1e6))


def _simulated_s(run: Run) -> float | None:
    ends, sent = run.steps.steps["end_ns"], run.sent_ns[run.sent_ns != NEVER]
    return float(ends.max() - sent.min()) / 1e9 if len(ends) and len(sent) else None
