"""Every metric, declared once: name, unit, direction, population, statistics, definition."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from workloads.errors import UsageError

Unit = Literal["ns", "fraction", "per_s", "count"]
Direction = Literal["lower", "higher"]
Population = Literal["tokens", "messages", "requests", "run"]

DISTRIBUTION = ("mean", "median", "min", "max", "std", "pNN")
"""Statistics of a metric with many samples; pNN stands for p1, p50, p99.9 and so on."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `statistics` is empty for a scalar, which is asked for without one."""

    name: str
    unit: Unit
    better: Direction
    population: Population
    statistics: tuple[str, ...]
    definition: str
    stat_units: Mapping[str, Unit] = field(default_factory=lambda: MappingProxyType({}))
    """The unit of a statistic where it differs from the metric's own."""

    def unit_of(self, stat: str | None) -> Unit:
        """The unit of one statistic of this metric."""
        return self.stat_units.get(stat, self.unit) if stat else self.unit


def _times(name: str, population: Population, definition: str) -> Metric:
    return Metric(name, "ns", "lower", population, DISTRIBUTION, definition)


_ALL = (
    _times("ttft", "requests", "Time from sending a request to its first token."),
    _times("ttft_from_intended", "requests",
           "Time from the planned send time of a request to its first token; includes a late client."),
    _times("tbt", "tokens", "Gap between successive tokens of one request; the k tokens of one read count as "
           "gap, 0, ..., 0. The first token has no gap."),
    _times("itl", "messages", "Gap between successive token-bearing messages of one request, as "
           "`vllm bench serve` prints it."),
    _times("tpot", "requests",
           "(last token - first token) / (tokens - 1) of one request; none below two tokens."),
    _times("e2e", "requests", "Time from sending a request to its last token."),
    _times("e2e_from_intended", "requests",
           "Time from the planned send time of a request to its last token; includes a late client."),
    _times("scheduling_delay", "requests",
           "Time from sending a request to the first engine step that contains it, from the step log."),
    Metric("fluidity", "fraction", "higher", "requests", (*DISTRIBUTION, "pooled"),
           "Share of the token deadlines of one request that were kept (Etalon's fluidity-index, arXiv "
           "2407.07000); `pooled` is 1 - missed / total over all requests."),
    Metric("fluid_token_rate", "per_s", "higher", "run", (),
           "Fastest steady reading speed, in tokens per second, at which 99 % of the requests reach a "
           "fluidity of 0.9; the first token is left out."),
    Metric("stall", "ns", "lower", "requests", (*DISTRIBUTION, "count", "total"),
           "Longest time by which a token of one request missed its fluidity deadline, 0 where none did; "
           "`max` is the longest stall of the run, `count` the late tokens, `total` their lateness summed.",
           MappingProxyType({"count": "count"})),
    Metric("stalled_requests", "fraction", "lower", "run", (),
           "Share of the successful requests with at least one token behind its fluidity deadline."),
    Metric("goodput", "per_s", "higher", "run", ("attainment", "rate", "token_rate"),
           "Requests that meet every per-request objective: `attainment` is their share (failed requests "
           "count as missed), `rate` and `token_rate` are they and their output tokens per second.",
           MappingProxyType({"attainment": "fraction"})),
    Metric("error_rate", "fraction", "lower", "run", (),
           "Share of the attempted requests that failed; what the client itself cut off is not counted, "
           "unless the engine failed."),
    Metric("request_throughput", "per_s", "higher", "run", (), "Successful requests per second of the run."),
    Metric("output_throughput", "per_s", "higher", "run", (),
           "Output tokens of successful requests per second of the run."),
    Metric("total_token_throughput", "per_s", "higher", "run", (),
           "Prompt and output tokens of successful requests per second of the run."),
    _times("schedule_lag", "requests", "Time from the planned to the actual sending of a request."),
    Metric("achieved_rate", "fraction", "higher", "run", (),
           "Rate at which requests were really sent, as a share of the planned rate."),
)

CATALOG: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""All metrics by name."""

ALIASES: Mapping[str, str] = MappingProxyType({"e2el": "e2e"})
"""Names of `vllm bench serve` that differ from ours."""

_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


def percentile_of(stat: str) -> Fraction | None:
    """The quantile, between 0 and 1 exclusive, that `p99.9` asks for; `median` is 1/2; else None."""
    if stat == "median":
        return Fraction(1, 2)
    match = _PERCENTILE.fullmatch(stat)
    quantile = Fraction(match[1]) / 100 if match else Fraction(0)
    return quantile or None


def metric_and_stat(name: str, stat: str | None = None) -> tuple[Metric, str | None]:
    """The metric called `name`, and `stat` in its one spelling (`p50` becomes `median`, `p99.0` `p99`).

    Refuses an unknown metric, a statistic the metric does not have, a missing statistic, and
    a statistic for a scalar, with a UsageError that lists what exists.
    """
    metric = CATALOG.get(ALIASES.get(name, name))
    if metric is None:
        raise UsageError(f"unknown metric {name!r}; known: {', '.join(CATALOG)}")
    if stat is None:
        if metric.statistics:
            raise UsageError(f"{metric.name} needs a statistic: {_choices(metric)}")
        return metric, None
    if not metric.statistics:
        raise UsageError(f"{metric.name} is a single figure: write it without {stat!r}")
    spelled = _one_spelling(stat)
    if spelled in metric.statistics and spelled != "pNN":
        return metric, spelled
    if "pNN" in metric.statistics and percentile_of(spelled) is not None:
        return metric, spelled
    raise UsageError(f"unknown statistic {stat!r} of {metric.name}; known: {_choices(metric)}")


def _one_spelling(stat: str) -> str:
    quantile = percentile_of(stat)
    if quantile is None:
        return stat
    if quantile == Fraction(1, 2):
        return "median"
    whole, _, decimals = stat[1:].partition(".")
    decimals = decimals.rstrip("0")
    return f"p{int(whole)}" + (f".{decimals}" if decimals else "")


def _choices(metric: Metric) -> str:
    shown = {"pNN": "p1 to p99.9 (any pNN or pNN.N)"}
    return ", ".join(f"{metric.name}:{shown.get(stat, stat)}" for stat in metric.statistics)
