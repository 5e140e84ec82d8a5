"""A result of another load generator, or of a result file of ours, in our names and units, with what differs
said beside it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bench.catalog import CATALOG, DISTRIBUTION, metric_and_stat, percentile_of
from bench.run import ClientHealth, Int64, Validity
from bench.samples import Samples, needed_for

SHOWN_STATS = ("mean", "median", "p90", "p95", "p99", "p99.9", "max")
"""Statistics of samples that are shown; any other can be asked for."""
Key = tuple[str, str | None]
"""Metric and statistic as bench.catalog names them."""


@dataclass(frozen=True, slots=True)
class ImportedFigure:
    """One value in the metric's unit (times in ns), or None; then `why_missing` says why."""

    value: float | None
    n: int | None
    """Samples behind it; None where the tool does not say."""
    source: Literal["samples", "stated"]
    """Computed here from the samples in the file, or as the tool states it."""
    why_missing: str = ""


@dataclass(frozen=True, slots=True)
class Theirs:
    """A figure that has no name of ours, in the tool's own unit."""

    value: float
    unit: str


@dataclass(frozen=True, eq=False)
class ImportedResult:
    """One run of another tool, or of ours from its result file. What the file does not hold is None or
    empty."""

    tool: str
    tool_version: str
    source: Path
    model: str
    endpoint: str
    """As the tool names it: `openai`, `/v1/chat/completions`, `completions` ..."""
    rate_rps: float | None
    """Requests per second that were asked for; inf for all at once."""
    max_concurrency: int | None
    completed: int | None
    failed: int | None
    duration_s: float | None
    date: str
    samples: Mapping[str, Int64] = field(default_factory=dict)
    """By metric: times in ns, of successful requests."""
    stated: Mapping[Key, ImportedFigure] = field(default_factory=dict)
    """Figures that the tool computed itself by our definition, or as `definitions` says."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """By metric: in what its definition differs from ours."""
    theirs: Mapping[str, Theirs] = field(default_factory=dict)
    """Figures under the tool's own names that are none of ours."""
    warnings: tuple[str, ...] = ()
    """What a reader must know before he believes the figures."""
    own: bool = False
    """Whether Stallfree wrote the file."""
    validity: Validity | None = None
    """As the file says it; None for other tools, which do not judge their runs."""
    client: ClientHealth | None = None
    """How the client fared, as far as the file says it."""

    @property
    def tells_lateness(self) -> bool:
        """Whether the file says how late the client was, in sending or in reading."""
        lags = [figure for (metric, _), figure in self.stated.items() if metric == "schedule_lag"]
        health = self.client
        return ("schedule_lag" in self.samples or any(figure.value is not None for figure in lags)
                or (health is not None and health.read_delay_p99_ns is not None))

    def figure(self, metric: str, stat: str | None = None) -> ImportedFigure:
        """The figure that the catalog knows under these names; UsageError for names it does not know.

        Where the file has samples they count, not what the tool states. A percentile without a sample
        beyond it is refused.
        """
        known, stat = metric_and_stat(metric, stat)
        samples = self._sorted.get(known.name)
        if samples is not None:
            assert stat is not None, "metrics with samples have statistics"
            value, why = samples.statistic(stat)
            return ImportedFigure(value, len(samples), "samples", why)
        missing = ImportedFigure(None, None, "stated", f"{self.tool} does not report it by this definition")
        return self.stated.get((known.name, stat), missing)

    def figures(self) -> dict[Key, ImportedFigure]:
        """What can be shown, refused figures included, in the catalog's order: of samples SHOWN_STATS, of
        other metrics whatever the tool states."""
        found: dict[Key, ImportedFigure] = {}
        for metric in CATALOG:
            computed: list[Key] = [(metric, stat) for stat in SHOWN_STATS] if metric in self.samples else []
            keys = computed or [key for key in self.stated if key[0] == metric]
            found.update({key: self.figure(*key) for key in keys})
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: everything but the samples; times in ns."""
        return {
            "tool": self.tool, "tool_version": self.tool_version, "source": self.source.name,
            "model": self.model, "endpoint": self.endpoint, "rate_rps": self.rate_rps,
            "max_concurrency": self.max_concurrency, "completed": self.completed, "failed": self.failed,
            "duration_s": self.duration_s, "date": self.date,
            "valid": None if self.validity is None else self.validity.valid,
            "invalid_reasons": list(self.validity.reasons) if self.validity else [],
            "validity_notes": list(self.validity.notes) if self.validity else [],
            "client": None if self.client is None else asdict(self.client),
            "figures": [
                {"metric": metric, "stat": stat, "value": figure.value, "n": figure.n,
                 "source": figure.source, "why_missing": figure.why_missing}
                for (metric, stat), figure in self.figures().items()],
            "definitions": dict(self.definitions),
            "theirs": {name: {"value": figure.value, "unit": figure.unit}
                       for name, figure in self.theirs.items()},
            "warnings": list(self.warnings),
        }

    @cached_property
    def _sorted(self) -> dict[str, Samples]:
        return {metric: Samples(values) for metric, values in self.samples.items()}


def known_stat(stat: str) -> str | None:
    """A statistic of samples as the catalog spells it: `p50` is `median`, `p100` `max`; None for others."""
    named = {"p0": "min", "p100": "max", "p50": "median"}.get(stat, stat)
    plain = named in DISTRIBUTION and named != "pNN"
    return metric_and_stat("ttft", named)[1] if plain or percentile_of(named) is not None else None


def stated(
    stat: str | None, value: float | None, n: int | None, *, at_most: int | None = None
) -> ImportedFigure:
    """A figure as the tool states it. `at_most` bounds the samples where `n` is not known.

    A percentile that so few samples cannot say is refused, as ours are.
    """
    most = n if n is not None else at_most
    quantile = percentile_of(stat) if stat else None
    if quantile is not None and most is not None and most < (needed := needed_for(quantile)):
        return ImportedFigure(None, n, "stated", f"{stat} needs at least {needed} samples, there are {most}")
    return ImportedFigure(value, n, "stated", "" if value is not None else "no samples")
