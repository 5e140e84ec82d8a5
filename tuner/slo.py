"""Service-level objectives: what a reader is promised, and whether a run kept it.

    METRIC:STAT<=VALUE[unit]     tbt:p99<=100ms   fluidity:p1>=0.9   ttft:p99<=2s   error_rate<=1%
    TENANT/METRIC:STAT<=VALUE    on the requests of one tenant alone, in any of the forms
    METRIC:STAT:le:VALUE         AIPerf's form; a time without a unit is in milliseconds
    pNN_METRIC_ms<=VALUE         the names in vllm bench serve's results, as in p99_itl_ms<=50

Metrics and statistics are those of bench.catalog, which also holds each metric's direction.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from bench.catalog import Unit, metric_and_stat
from tuner.slo_text import canonical_limit, parse_limit, split_objective
from workloads import Workload
from workloads.errors import EvidenceError, UsageError

_TENANT = re.compile(r"\s*[^\s/:<>=]+\s*/")

VIOLATION_CAP = 100.0
"""The largest violation, and that of a figure that is missing: a hundred times the limit is as bad as
no measurement. Finite, so that samplers may standardise it (Optuna takes inf and then misbehaves)."""

_ZERO_LIMIT_SCALE: dict[Unit, float] = {"ns": 1e9, "fraction": 1.0, "per_s": 1.0, "count": 1.0}
"""What counts as a violation of 1 where the limit is 0: a second, everything, one."""


class Figure(Protocol):
    """One measured figure: nanoseconds for times, or None with the reason in `why_missing`."""

    @property
    def value(self) -> float | None: ...
    @property
    def n(self) -> int: ...
    @property
    def why_missing(self) -> str | None: ...


class Figures(Protocol):
    """What objectives are judged by; bench.Summary is one."""

    def figure(self, metric: str, stat: str | None = None) -> Figure:
        """The figure of one metric and statistic of bench.catalog."""
        ...

    def tenant(self, name: str) -> "Figures":
        """The figures of one tenant's requests alone."""
        ...


@dataclass(frozen=True, slots=True)
class Objective:
    """One promise about one figure; `str()` gives its canonical form, which parses back to an equal one.

    Refused with a UsageError: metrics and statistics that bench.catalog does not know, the wrong
    direction, and limits that nothing or everything meets.
    """

    metric: str
    stat: str | None
    op: Literal["<=", ">="]
    limit: int | float
    """Integer nanoseconds for times, else a fraction, a rate per second or a count."""
    text: str = field(default="", compare=False)
    """As the user wrote it."""
    implicit: bool = field(default=False, compare=False)
    """Whether nobody wrote it: see Slo."""
    tenant: str = ""
    """On whose requests alone; "" is on all."""

    def __post_init__(self) -> None:
        metric, stat = metric_and_stat(self.metric, self.stat)
        object.__setattr__(self, "metric", metric.name)
        object.__setattr__(self, "stat", stat)
        object.__setattr__(self, "text", self.text or str(self))
        # A spread is better small, whatever the direction of the metric itself.
        better = "lower" if stat == "std" else metric.better
        op = "<=" if better == "lower" else ">="
        if self.op != op:
            right = f"{self.key}{op}{canonical_limit(self.limit, self.metric, stat, self.unit)}"
            raise UsageError(f"{self.key} is better {better}: write {right}")
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise UsageError(f"the limit of {self.text!r} must be a finite number of at least 0")
        if self.op == ">=" and self.limit == 0:
            raise UsageError(f"{self.text!r} always holds: raise the limit above 0 or leave it out")
        if self.unit == "fraction" and (self.limit > 1 or (self.op == "<=" and self.limit == 1)):
            raise UsageError(f"{self.text!r} asks for nothing or too much of a share between 0 and 1: "
                             f"write a percentage as 1% or 0.01")

    @property
    def key(self) -> str:
        """`metric:stat`, or the metric's name alone, after the tenant's name if it is on one: names the
        constraint."""
        figure = self.metric if self.stat is None else f"{self.metric}:{self.stat}"
        return f"{self.tenant}/{figure}" if self.tenant else figure

    @property
    def unit(self) -> Unit:
        """The unit of the limit."""
        return metric_and_stat(self.metric, self.stat)[0].unit_of(self.stat)

    def __str__(self) -> str:
        return f"{self.key}{self.op}{canonical_limit(self.limit, self.metric, self.stat, self.unit)}"

    def violation(self, observed: float) -> float:
        """How far `observed` misses the limit, as a share of the limit; above 0 exactly when it does.

        `observed/limit - 1` for upper limits, `1 - observed/limit` for lower ones, kept within
        VIOLATION_CAP either way; for an upper limit of 0 the observed value over one second, one or 100 %.
        """
        excess = observed - self.limit if self.op == "<=" else self.limit - observed
        scale = self.limit or _ZERO_LIMIT_SCALE[self.unit]
        share = max(-VIOLATION_CAP, min(excess / scale, VIOLATION_CAP))
        # The difference of two unequal numbers is never 0, but its share of a limit can underflow.
        return max(share, math.ulp(0.0)) if excess > 0 else share

    def judge(self, figures: Figures) -> "Verdict":
        """This objective against one run; a missing figure does not hold."""
        figure = (figures.tenant(self.tenant) if self.tenant else figures).figure(self.metric, self.stat)
        if figure.value is None or not math.isfinite(figure.value):
            why = figure.why_missing or f"{self.key} has no finite value"
            return Verdict(self, None, figure.n, False, VIOLATION_CAP, why)
        observed = round(figure.value) if self.unit == "ns" else float(figure.value)
        violation = self.violation(observed)
        return Verdict(self, observed, figure.n, violation <= 0, violation)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One objective, judged."""

    objective: Objective
    observed: int | float | None
    """In the objective's unit; None where there was nothing to measure."""
    n: int
    """Samples behind the figure."""
    holds: bool
    violation: float
    """Objective.violation; VIOLATION_CAP where `observed` is None."""
    why: str | None = None
    """Why there is no figure."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times in milliseconds, null for what is missing."""
        is_time = self.objective.unit == "ns"
        return {
            "objective": str(self.objective),
            "text": self.objective.text,
            "implicit": self.objective.implicit,
            "unit": "ms" if is_time else self.objective.unit,
            "limit": self.objective.limit / 1e6 if is_time else self.objective.limit,
            "observed": self.observed / 1e6 if is_time and self.observed is not None else self.observed,
            "n": self.n, "holds": self.holds, "violation": self.violation, "why": self.why,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        objective = parse_objective(values["objective"], shown=values["text"], implicit=values["implicit"])
        observed = values["observed"]
        if observed is not None and objective.unit == "ns":
            observed = round(observed * 1e6)
        return cls(objective, observed, values["n"], values["holds"], values["violation"], values["why"])


@dataclass(frozen=True, slots=True)
class Judgement:
    """Every objective of an SLO against one run."""

    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        """Whether every objective holds."""
        return all(verdict.holds for verdict in self.verdicts)

    def constraints(self) -> dict[str, float]:
        """Violation by objective key, in order of the keys; all finite, at or below 0 where it holds."""
        return dict(sorted((verdict.objective.key, verdict.violation) for verdict in self.verdicts))

    def worst(self) -> Verdict:
        """The objective missed by most, or met by least where all hold; the first of equals."""
        return max(self.verdicts, key=lambda verdict: verdict.violation)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; see Verdict.as_dict."""
        return {"holds": self.holds, "objectives": [verdict.as_dict() for verdict in self.verdicts]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`; an EvidenceError where `values` is no judgement."""
        try:
            return cls(tuple(Verdict.from_dict(verdict) for verdict in values["objectives"]))
        except (KeyError, TypeError, AttributeError, UsageError) as error:
            raise EvidenceError(f"this is no judgement of this version: {error}") from error


@dataclass(frozen=True, slots=True)
class Slo:
    """Objectives that must all hold; at most one per figure, at least one.

    Failed requests leave the percentiles, so an engine that refuses work would look fast: unless an
    objective limits `error_rate`, `error_rate<=0` is added, marked as implicit and shown like the rest.
    """

    objectives: tuple[Objective, ...]

    def __post_init__(self) -> None:
        if not self.objectives:
            raise UsageError("an SLO needs an objective, such as tbt:p99<=100ms")
        seen: dict[str, Objective] = {}
        for objective in self.objectives:
            if other := seen.get(objective.key):
                raise UsageError(f"{objective.key} has two objectives, {other} and {objective}: keep one")
            seen[objective.key] = objective
        if "error_rate" not in seen:
            implicit = Objective("error_rate", None, "<=", 0.0, implicit=True)
            object.__setattr__(self, "objectives", (*self.objectives, implicit))

    def constraint_keys(self) -> tuple[str, ...]:
        """The keys of Judgement.constraints(), sorted."""
        return tuple(sorted(objective.key for objective in self.objectives))

    def judge(self, figures: Figures) -> Judgement:
        """Every objective against one run, in the order of `objectives`."""
        return Judgement(tuple(objective.judge(figures) for objective in self.objectives))

    def __str__(self) -> str:
        return ", ".join(str(objective) for objective in self.objectives)


def parse_objective(text: str, *, shown: str = "", implicit: bool = False) -> Objective:
    """The objective that `text` writes in one of the forms above; kept as `shown`, else as `text`.

    Refused with a UsageError that says what to write: what Objective refuses, a time without a unit
    (except in the forms that imply milliseconds), and unknown units.
    """
    tenant, _, rest = text.partition("/") if _TENANT.match(text) else ("", "", text)
    parts = split_objective(rest)
    metric, stat = metric_and_stat(parts.metric, parts.stat)
    limit = parse_limit(parts, metric.name, stat, metric.unit_of(stat))
    return Objective(metric.name, stat, parts.op, limit, text=shown or text.strip(), implicit=implicit,
                     tenant=tenant.strip())


def check_tenants(slo: Slo, workload: Workload) -> Slo:
    """`slo`; UsageError where it names a tenant that the workload has not."""
    for objective in slo.objectives:
        if objective.tenant and objective.tenant not in workload.tenants:
            none = "it has none"
            if workload.trace is not None and any(workload.trace.tenant_names):
                none += (f"; a workload file with `traces` and `tenants` makes tenants of the trace's, "
                         f"{', '.join(filter(None, workload.trace.tenant_names[:5]))}")
            raise UsageError(f"unknown tenant {objective.tenant!r} in {objective.text!r}; the workload's "
                             f"tenants: {', '.join(workload.tenants) or none}")
    return slo


def parse_slo(texts: Sequence[str]) -> Slo:
    """The SLO of these objectives, one per text; refuses what parse_objective and Slo refuse."""
    return Slo(tuple(parse_objective(text) for text in texts))
