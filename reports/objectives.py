"""Which figures the SLO of a study is about, in the units that charts use."""

import re
from dataclasses import dataclass

from reports.quantities import Quantity, figure_key, quantity
from reports.study import Objective, Study

_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)_.+")
_TO_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class ChartMetric:
    """A figure worth a chart and its limit in the figure's unit; None where the SLO sets none."""

    quantity: Quantity
    limit: float | None

    @property
    def limit_label(self) -> str:
        """What a dashed limit line means, as in `SLO (dashed): at most 120 ms`; empty without a limit."""
        if self.limit is None:
            return ""
        bound = "at least" if self.quantity.better == "higher" else "at most"
        return f"SLO (dashed): {bound} {self.quantity.show(self.limit)}"

    @property
    def allowed_share(self) -> float | None:
        """The share of samples that may lie beyond the limit: 0.01 for a p99, 0 for a maximum; None for
        a statistic that allows no such reading, as a mean."""
        if match := _PERCENTILE.fullmatch(self.quantity.key):
            return 1 - float(match[1]) / 100
        stat = self.quantity.key.partition("_")[0]
        return {"median": 0.5, "max": 0.0}.get(stat)


def chart_metric(study: Study, metric: str, otherwise: str) -> ChartMetric:
    """The statistic of `metric` that the SLO limits, with the limit; the statistic `otherwise` if none."""
    for objective in study.slo:
        if objective.metric == metric:
            return ChartMetric(quantity(figure_key(metric, objective.stat)), _limit(objective))
    return ChartMetric(quantity(figure_key(metric, otherwise)), None)


def _limit(objective: Objective) -> float | None:
    # No chart can show a limit at or below zero on a logarithmic axis, and none is of use.
    if objective.limit is None or objective.limit <= 0:
        return None
    return objective.limit * _TO_MS.get(objective.unit, 1.0)
