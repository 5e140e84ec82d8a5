"""How well a fitted workload regenerates the traffic of its trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from workloads.fitting.mixture import rank_correlation
from workloads.plan import Plan
from workloads.planning import build_plan
from workloads.traces.statistics import plan_statistics, trace_statistics
from workloads.traces.trace import Trace
from workloads.workload import Workload

LENGTHS_WITHIN = 0.05
RATE_WITHIN = 0.01
DISPERSION_WITHIN = 0.15
REUSE_WITHIN = 0.05
CORRELATION_WITHIN = 0.1
_MOST_ROWS = 2_000_000
"""A longer trace is compared with a shorter stretch of the model's traffic."""
_UNTIMED_RPS = 1.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """One figure of the trace and of the traffic that the model made, seed by seed."""

    name: str
    trace: float
    model: tuple[float, ...]
    within: float | None = None
    """Tolerance, relative or as `kind` says; None for a figure that is only shown."""
    kind: Literal["relative", "absolute"] = "relative"

    @property
    def differences(self) -> tuple[float, ...]:
        """Of each seed, relative to the trace's or absolute; relative to nothing is absolute."""
        scale = abs(self.trace) if self.kind == "relative" and self.trace else 1.0
        return tuple((value - self.trace) / scale for value in self.model)

    @property
    def worst(self) -> float:
        """The largest of the differences, with its sign."""
        return max(self.differences, key=abs)

    @property
    def holds(self) -> bool | None:
        """Whether every seed is within the tolerance; None without one."""
        return None if self.within is None else abs(self.worst) <= self.within


def regenerated(workload: Workload, trace: Trace, seed: int) -> Plan:
    """The workload's requests of `seed` over the span of `trace`, at its rate; of a trace without times, as
    many as it has."""
    rows = min(len(trace), _MOST_ROWS)
    rate, span_s = workload.recorded_rate_rps, workload.recorded_span_s
    if rate is None or span_s is None:
        return build_plan(workload, rate_rps=_UNTIMED_RPS, num_prompts=rows, seed=seed)
    return build_plan(workload, rate_rps=rate, duration_s=span_s * rows / len(trace), seed=seed)


def agreements(trace: Trace, plans: Sequence[Plan]) -> list[Agreement]:
    """The figures of `trace` beside those of what a model made of it."""
    recorded = trace_statistics(trace)
    recorded["rank"] = rank_correlation(trace.input_len, trace.output_len)
    drawn: list[Mapping[str, Any]] = [
        plan_statistics(plan) | {"rank": rank_correlation(plan.input_len, plan.output_len)} for plan in plans]
    timed = trace.rate_rps is not None
    found = []
    for name, path, within, kind in _FIGURES:
        if path[0] in _OF_ARRIVALS and not timed:
            continue
        values = [_value(figures, path) for figures in (recorded, *drawn)]
        numbers = [value for value in values if value is not None]
        if len(numbers) == len(values):
            found.append(Agreement(name, numbers[0], tuple(numbers[1:]), within, kind))
    return found


def missed(found: Sequence[Agreement]) -> list[Agreement]:
    """Those outside their tolerance."""
    return [agreement for agreement in found if agreement.holds is False]


_OF_ARRIVALS = ("rate_rps", "arrival_cv", "index_of_dispersion")
_FIGURES: tuple[tuple[str, tuple[str, ...], float | None, Literal["relative", "absolute"]], ...] = (
    ("rate (requests/s)", ("rate_rps",), RATE_WITHIN, "relative"),
    ("CV of the gaps", ("arrival_cv",), None, "relative"),
    ("index of dispersion, 1 s", ("index_of_dispersion", "1s"), None, "relative"),
    ("index of dispersion, 10 s", ("index_of_dispersion", "10s"), DISPERSION_WITHIN, "relative"),
    ("index of dispersion, 60 s", ("index_of_dispersion", "60s"), None, "relative"),
    *((f"{said} {figure}", (column, figure), None if figure == "mean" else LENGTHS_WITHIN, "relative")
      for said, column in (("prompt tokens", "input_len"), ("answer tokens", "output_len"))
      for figure in ("mean", "p50", "p90", "p99")),
    ("prefix reuse", ("prefix_reuse",), REUSE_WITHIN, "relative"),
    ("rank correlation of prompt and answer", ("rank",), CORRELATION_WITHIN, "absolute"),
)


def _value(figures: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = figures
    for part in path:
        value = None if value is None else value[part]
    return None if value is None or not np.isfinite(value) else float(value)
