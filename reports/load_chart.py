"""The chart of a study's loads: TBT and fluidity against the offered rate."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from reports.chart_parts import axis, figure, limit_line, points, value_axis, words
from reports.document import Chart, Table, table
from reports.objectives import ChartMetric, chart_metric
from reports.quantities import NONE, quantity
from reports.shown_settings import ShownSetting, shown_settings
from reports.study import Figures, Study, runs_of

_CAPACITY = quantity("capacity_rps")
_Series = tuple[ShownSetting, list[Figures]]
"""A setting and its runs by rising rate."""


def load_chart(study: Study) -> Chart:
    """The SLO's TBT figure and fluidity against the offered rate, default and recommendation."""
    tbt, fluid = chart_metric(study, "tbt", "p99"), chart_metric(study, "fluidity", "p10")
    title = f"{tbt.quantity.label} and {fluid.quantity.label} against load"
    series = [(shown, _by_rate(runs_of(study, shown.setting))) for shown in shown_settings(study)]
    data = _table(series, tbt, fluid)
    panels = list(enumerate((tbt, fluid), start=1))
    traces = [trace for panel, metric in panels for shown, runs in series
              for trace in _traces(shown, _measured(runs, metric), metric, panel)]
    if not traces:
        missing = "No run of the default or of the recommendation has been measured yet."
        return Chart("load", title, missing, None, data)
    latencies = [value for _, runs in series for _, value in _measured(runs, tbt)]
    yaxes = [value_axis(tbt.quantity.heading, latencies), axis(fluid.quantity.label, range=[0, 1.03])]
    marks = [limit_line(metric.limit, metric.limit_label, yaxes[panel - 1], panel=panel)
             for panel, metric in panels if metric.limit]
    xaxis = axis("offered rate (requests/s)", rangemode="tozero")
    drawn = figure(traces, height=560, xaxis=xaxis, yaxes=yaxes, marks=marks)
    return Chart("load", title, _reading(series, tbt), drawn, data)


def _by_rate(runs: Sequence[Figures]) -> list[Figures]:
    return sorted((run for run in runs if run.rate_rps is not None), key=lambda run: run.rate_rps or 0.0)


def _measured(runs: Sequence[Figures], metric: ChartMetric) -> list[tuple[float, float]]:
    key = metric.quantity.key
    return [(run.rate_rps, value) for run in runs
            if run.rate_rps is not None and (value := run.values.get(key)) is not None]


def _traces(
    shown: ShownSetting, measured: Sequence[tuple[float, float]], metric: ChartMetric, panel: int
) -> list[dict[str, Any]]:
    if not measured:
        return []
    named, by_rate = metric.quantity, dict[float, list[float]]()
    for rate, value in measured:
        by_rate.setdefault(rate, []).append(value)
    shared = {"legendgroup": shown.name, "yaxis": "y" if panel == 1 else "y2"}
    notes = [f"{shown.name}: {named.label} {named.show(y)} at {_CAPACITY.show(x)}" for x, y in measured]
    return [
        {
            "type": "scatter", "mode": "lines", "name": words(shown.name), "showlegend": False,
            "hoverinfo": "skip",
            "x": list(by_rate), "y": [median(values) for values in by_rate.values()],
            "line": {"color": shown.colour, "width": 2, "dash": shown.dash}, **shared,
        },
        points(shown.name, [x for x, _ in measured], [y for _, y in measured], notes,
               {"color": shown.colour, "symbol": shown.marker, "size": 9}, showlegend=panel == 1, **shared),
    ]


def _table(series: Sequence[_Series], tbt: ChartMetric, fluid: ChartMetric) -> Table:
    rows = [
        [shown.name, _CAPACITY.show(run.rate_rps), tbt.quantity.show(run.values.get(tbt.quantity.key)),
         fluid.quantity.show(run.values.get(fluid.quantity.key)), run.slo_word, run.run or NONE]
        for shown, runs in series for run in runs
    ]
    columns = ("setting", "offered rate", tbt.quantity.label, fluid.quantity.label, "SLO", "run")
    return table(columns, rows, numeric=(1, 2, 3))


def _reading(series: Sequence[_Series], tbt: ChartMetric) -> str:
    named, parts = tbt.quantity, []
    for shown, runs in series:
        measured = _measured(runs, tbt)
        if not measured:
            continue
        (low_rate, low), (high_rate, high) = measured[0], measured[-1]
        if low_rate == high_rate:
            values = [value for _, value in measured]
            spread = (
                named.show(low)
                if len(values) == 1
                else f"{named.show(min(values))} to {named.show(max(values))}"
            )
            parts.append(f"{shown.name} was measured at {_CAPACITY.show(low_rate)} only, {spread}")
        else:
            parts.append(f"{shown.name} goes from {named.show(low)} at {_CAPACITY.show(low_rate)} to "
                         f"{named.show(high)} at {_CAPACITY.show(high_rate)}")
    return f"{named.label}: {'; '.join(parts)}." if parts else f"No run has a {named.label}."
