"""How numbers and metric names are written for a reader, the same in prose, tables and terminal."""

import math
import re
from dataclasses import dataclass

from bench.catalog import ALIASES, CATALOG

NONE = "—"
"""Stands for a figure that was not measured."""
_NBSP = "\u00a0"
_MOST_DECIMALS = 6
_CATALOG_UNITS = {"fraction": "", "count": "", "per_s": "/s"}
_TIMED = re.compile(r"(?P<stat>mean|median|std|min|max|p\d+(?:\.\d+)?)_(?P<metric>.+)_ms")
_PERCENTILE = re.compile(r"p\d")
_STATS = {
    "mean": "mean",
    "median": "median",
    "std": "standard deviation of",
    "min": "shortest",
    "max": "longest",
}
_TIMES = {
    "ttft": "TTFT",
    "tbt": "TBT",
    "itl": "ITL",
    "tpot": "TPOT",
    "e2el": "E2E",
    "e2e": "E2E",
    "ttft_from_intended": "TTFT from intended send",
    "e2e_from_intended": "E2E from intended send",
    "scheduling_delay": "scheduling delay",
    "stall": "stall",
    "schedule_lag": "schedule lag",
}
_PLAIN = {
    "capacity_rps": ("capacity", "requests/s"),
    "request_throughput": ("request throughput", "requests/s"),
    "output_throughput": ("output throughput", "tokens/s"),
    "total_token_throughput": ("token throughput", "tokens/s"),
    "fluid_token_rate": ("fluid token rate", "tokens/s"),
    "fluidity_pooled": ("pooled fluidity", ""),
    "mean_fluidity": ("mean fluidity", ""),
    "achieved_rate": ("achieved rate", "requests/s"),
    "achieved_rate_fraction": ("achieved / requested rate", ""),
    "longest_stall_ms": ("longest stall", "ms"),
    "stalled_time_ms": ("stalled time of all requests", "ms"),
    "stalled_requests": ("share of requests with a stall", ""),
    "error_rate": ("failed share", ""),
    "duration": ("duration", "s"),
    "completed": ("completed requests", ""),
    "failed": ("failed requests", ""),
}
_METRIC_OF = {
    "fluidity_pooled": "fluidity",
    "mean_fluidity": "fluidity",
    "achieved_rate_fraction": "achieved_rate",
    "longest_stall_ms": "stall",
    "stalled_time_ms": "stall",
}
_BETTER = {"capacity_rps": "higher", "failed": "lower"}
"""Direction of the figures that are no metric of the catalog."""
_OTHER_NAMES = {"fluidity_index_service": "fluidity_pooled", "fluidity_index_mean": "mean_fluidity"}
"""Names in a run's own summary for figures that a study stores under ours."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure's name for people, its unit, the better direction and the metric that defines it."""

    key: str
    label: str
    unit: str
    better: str
    metric: str

    @property
    def heading(self) -> str:
        """The label with the unit, for axes and columns of bare numbers."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def show(self, value: float | None) -> str:
        """The value with its unit; NONE where there is none."""
        return show(value, self.unit)


def quantity(key: str) -> Quantity:
    """How to write the figure stored under `key`; unknown keys keep their own name and no unit."""
    if key in _PLAIN:
        label, unit = _PLAIN[key]
        return _quantity(key, label, unit, _METRIC_OF.get(key, key))
    if key.startswith("fluidity_"):
        return _quantity(key, f"{key.removeprefix('fluidity_')} fluidity", "", "fluidity")
    if match := _TIMED.fullmatch(key):
        stat, metric = match["stat"], match["metric"]
        noun = _TIMES.get(metric, metric.replace("_", " "))
        noun = "gap between tokens" if (metric, stat) == ("tbt", "max") else noun
        return _quantity(key, f"{_STATS.get(stat, stat)} {noun}", "ms", ALIASES.get(metric, metric))
    return _quantity(key, key.replace("_", " "), "", key)


def _quantity(key: str, label: str, unit: str, metric: str) -> Quantity:
    better = CATALOG[metric].better if metric in CATALOG else _BETTER.get(key, "")
    return Quantity(key, label, unit, better, metric)


def canonical(key: str) -> str:
    """The one name of a figure that is also spelt as in `p50_tbt_ms` or `fluidity_index_p01`."""
    if key in _OTHER_NAMES:
        return _OTHER_NAMES[key]
    if key.startswith("p50_"):
        return "median_" + key.removeprefix("p50_")
    if key.startswith("fluidity_index_p"):
        return "fluidity_p" + key.removeprefix("fluidity_index_p").lstrip("0")
    return key


def figure_key(metric: str, stat: str) -> str:
    """The key under which a run stores a metric's statistic, as in `p99_tbt_ms`, `fluidity_p10`."""
    stat = "median" if stat == "p50" else stat
    if not stat or metric in _PLAIN:
        return metric
    if metric == "fluidity":
        return "mean_fluidity" if stat == "mean" else f"fluidity_{stat}"
    return f"{stat}_{metric}_ms" if metric in _TIMES else f"{metric}_{stat}"


def show(value: float | None, unit: str = "") -> str:
    """A number with three significant digits (whole above 100) and its unit.

    Milliseconds from ten seconds on are written as seconds. NONE for None. The catalog's `fraction`
    and `count` need no unit, its `per_s` is written `/s`.
    """
    if value is None:
        return NONE
    unit = _CATALOG_UNITS.get(unit, unit)
    if unit == "ms" and abs(value) >= 10_000:
        value, unit = value / 1000, "s"
    return f"{digits(value)}{_NBSP}{unit}" if unit else digits(value)


def digits(value: float) -> str:
    """Three significant digits, never an exponent; thousands grouped from 10 000 on."""
    size = abs(value)
    if 0 < size < 1:
        decimals = min(2 - math.floor(math.log10(size)), _MOST_DECIMALS)
        return f"{value:.{decimals}f}".rstrip("0").removesuffix(".").replace("-", "−")
    if size >= 10_000:
        written = f"{value:,.0f}".replace(",", _NBSP)
    elif size >= 100 or value == int(value):
        written = f"{value:.0f}"
    elif size >= 10:
        written = f"{value:.1f}"
    else:
        written = f"{value:.2f}"
    return written.replace("-", "−")


def change(old: float | None, new: float | None) -> str:
    """The relative change as a signed percentage or factor; empty where none can be said."""
    if old is None or new is None or old == 0:
        return ""
    ratio = new / old
    if ratio >= 3:
        return f"×{digits(ratio)}"
    percent = round((ratio - 1) * 100)
    return f"{'+' if percent > 0 else '−' if percent < 0 else '±'}{abs(percent)}{_NBSP}%"


def share(value: float | None) -> str:
    """A fraction as a percentage; NONE for None."""
    return NONE if value is None else f"{digits(value * 100)}{_NBSP}%"


def duration(seconds: float | None) -> str:
    """Seconds as `48 s`, `7 min 05 s` or `2 h 10 min`; NONE for None."""
    if seconds is None:
        return NONE
    whole = round(seconds)
    if whole < 120:
        return f"{digits(seconds) if seconds < 10 else whole}{_NBSP}s"
    if whole < 7200:
        return f"{whole // 60}{_NBSP}min {whole % 60:02d}{_NBSP}s"
    return f"{whole // 3600}{_NBSP}h {whole % 3600 // 60:02d}{_NBSP}min"


def capitalised(sentence: str) -> str:
    """The sentence with its first letter as a capital; percentiles (`p99 TBT`) stay as they are."""
    return sentence if _PERCENTILE.match(sentence) else sentence[:1].upper() + sentence[1:]
