"""A measured run beside the same run simulated."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bench import Run, summarise
from bench.run import Int64
from engine_adapter.knobs import Knobs
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost
from tuner.calibration.file import Calibration
from tuner.calibration.observed import refuse_unless_logged
from tuner.calibration.sources import digest_of, engine_of, refuse_mixed
from workloads import Plan
from workloads.errors import EvidenceError

FIGURES = (
    *((metric, stat) for metric in ("ttft", "tbt", "tpot", "e2e") for stat in ("p50", "p90", "p99")),
    ("scheduling_delay", "p50"), ("request_throughput", None), ("output_throughput", None),
)
"""TTFT and TPOT by themselves: E2E was 15 % off where they were -88 % and +174 % (LLMServingSim PR#59)."""


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure, in the metric's unit (times in ns); None where there is nothing to measure."""

    metric: str
    stat: str | None
    measured: float | None
    simulated: float | None

    @property
    def error(self) -> float | None:
        """Of the simulated figure, relative to the measured one."""
        if self.measured is None or self.simulated is None or self.measured <= 0:
            return None
        return self.simulated / self.measured - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measured run and its simulation."""

    name: str
    figures: tuple[ComparedFigure, ...]
    warnings: tuple[str, ...]
    """Where the simulation left what was calibrated, or could not know what the run did."""

    def figure(self, metric: str, stat: str | None = None) -> ComparedFigure:
        """The one of FIGURES; KeyError for another."""
        return {(figure.metric, figure.stat): figure for figure in self.figures}[metric, stat]

    def as_dict(self) -> dict[str, Any]:
        """For JSON; times in nanoseconds."""
        return {"run": self.name, "warnings": list(self.warnings),
                "figures": [asdict(figure) | {"error": figure.error} for figure in self.figures]}


def compare(run: Run, name: str, calibration: Calibration) -> Comparison:
    """The plan of `run` simulated with `calibration`, under the run's own settings, beside the run.

    EvidenceError, one line, for a run that the calibration was fitted to, one of another engine, one that
    is invalid, and one without a step log.
    """
    refuse_unless_logged(run, name)
    if digest_of(run) in {source["digest"] for source in calibration.runs}:
        raise EvidenceError(f"{name} was used to calibrate, so it cannot judge: give --against another run")
    if not run.validity.valid:
        raise EvidenceError(f"{name} is invalid ({run.validity.reasons[0]}): it cannot judge a simulation")
    refuse_mixed([calibration.engine, engine_of(run)], ["the calibration", name])
    simulated = simulate_like(run, calibration.cost)
    measured_figures, simulated_figures = summarise(run), summarise(simulated)
    figures = tuple(
        ComparedFigure(metric, stat, measured_figures.figure(metric, stat).value,
                       simulated_figures.figure(metric, stat).value) for metric, stat in FIGURES)
    return Comparison(name, figures, (*calibration.covered.beyond(simulated.steps), *_unknown(run)))


def simulate_like(run: Run, cost: StepCost) -> Run:
    """The requests of `run` played against a simulated engine with its settings; the same rows count."""
    from bench.simulated import simulate_run

    order = np.argsort(run.intended_ns, kind="stable")   # later turns were due when their answers had come
    simulated = simulate_run(_plan_of(run, order), settings_of(run), cost,
                             meta={"knobs": run.meta["knobs"], "engine": run.meta["engine"]},
                             max_concurrency=run.meta.get("max_concurrency"))
    return replace(simulated, warmup=run.warmup[order])


def settings_of(run: Run) -> SchedulerSettings:
    """The scheduler of the engine of `run`, under the run's knobs. EvidenceError where it does not say."""
    engine: Mapping[str, Any] = run.meta.get("engine") or {}
    facts = {name: engine.get(name) for name in ("max_model_len", "num_kv_blocks", "kv_block_size")}
    if run.meta.get("knobs") is None or None in facts.values():
        raise EvidenceError("the run does not say the settings of its engine, so it cannot be simulated")
    fingerprint = engine.get("fingerprint") or {}
    return SchedulerSettings.from_knobs(
        Knobs.from_dict(run.meta["knobs"]), max_model_len=int(engine["max_model_len"]),
        num_kv_blocks=int(engine["num_kv_blocks"]), block_size=int(engine["kv_block_size"]),
        prefix_caching=bool(fingerprint.get("prefix_caching", False)),
        async_scheduling=bool(fingerprint.get("async_scheduling", False)),
        rule=(fingerprint.get("simulated") or {}).get("rule", "vllm-v1"))


def _plan_of(run: Run, order: Int64) -> Plan:
    """What was sent, in this order: an answer that ended early is planned as it came, and a later turn at
    the time when it was due."""
    closed_loop = run.meta.get("max_concurrency") and run.rate_rps == float("inf")
    intended = np.zeros(len(run), dtype=np.int64) if closed_loop else run.intended_ns[order] - run.start_ns
    none = np.full(len(run), -1)
    return Plan(
        intended_ns=intended, input_len=run.input_len[order],
        output_len=np.where(run.num_tokens > 0, run.num_tokens, run.output_len)[order],
        component=run.component[order],
        prefix_group=none, session=none, turn=none * 0, num_warmups=0, seed=int(run.meta.get("seed") or 0),
        rate_rps=run.rate_rps or float("inf"),
        component_names=tuple(run.meta.get("component_names") or ("request",)))


def _unknown(run: Run) -> list[str]:
    """Whose prompts were found in the prefix cache is not in the columns of a run."""
    chunks = run.steps.chunks
    _, first = np.unique(chunks["request"], return_index=True)
    cached = int((chunks["prefix"][first] > 0).sum())
    return [f"{cached} requests found a part of their prompt in the prefix cache; the simulation does not "
            f"know which"] if cached else []
