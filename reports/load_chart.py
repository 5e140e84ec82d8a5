"""The chart of a study's loads: TBT and fluidity against the offered rate."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from reports.chart_parts import INK, axis, figure, limit_line, points, value_axis, words
from reports.document import Chart, Table, table
from reports.objectives import ChartMetric, chart_metric
from reports.quantities import NONE, capitalised, quantity
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
              for trace in _traces(shown, runs, metric, panel)]
    if not traces:
        missing = "No run of the default or of the recommendation has been measured yet."
        return Chart("load", title, missing, None, data)
    latencies = [value for _, runs in series for _, _, value in _measured(runs, tbt)]
    yaxes = [value_axis(tbt.quantity.heading, latencies), axis(fluid.quantity.label, range=[0, 1.08])]
    marks = [limit_line(metric.limit, metric.limit_label, panel=panel)
             for panel, metric in panels if metric.limit]
    xaxis = axis("offered rate (requests/s)", rangemode="tozero")
    drawn = figure(traces, height=560, xaxis=xaxis, yaxes=yaxes, marks=marks)
    return Chart("load", title, _reading(series, tbt), drawn, data)


def _by_rate(runs: Sequence[Figures]) -> list[Figures]:
    return sorted((run for run in runs if run.rate_rps is not None), key=lambda run: run.rate_rps or 0.0)


def _measured(runs: Sequence[Figures], metric: ChartMetric) -> list[tuple[Figures, float, float]]:
    key = metric.quantity.key
    return [(run, run.rate_rps, value) for run in runs
            if run.rate_rps is not None and (value := run.values.get(key)) is not None]


def _traces(
    shown: ShownSetting, runs: Sequence[Figures], metric: ChartMetric, panel: int
) -> list[dict[str, Any]]:
    measured = _measured(runs, metric)
    if not measured:
        return []
    named, by_rate = metric.quantity, dict[float, list[float]]()
    for _, rate, value in measured:
        by_rate.setdefault(rate, []).append(value)
    shared = {"legendgroup": shown.name, "yaxis": "y" if panel == 1 else "y2"}
    notes = [f"{shown.name}: {named.label} {named.show(y)} at {_CAPACITY.show(x)}; SLO {run.slo_word}"
             f"{'; in the confirmation' if run is shown.setting.confirmed else ''}" for run, x, y in measured]
    shapes = [shown.marker if run.holds else f"{shown.marker}-open" for run, _, _ in measured]
    fresh = [(x, y) for run, x, y in measured if run is shown.setting.confirmed]
    marker = {"color": shown.colour, "symbol": shapes, "size": 10,
              "line": {"width": 2, "color": shown.colour}}
    ring = {"color": INK, "symbol": "circle-open", "size": 19, "line": {"width": 1.2}}
    return [
        {
            "type": "scatter", "mode": "lines", "name": words(shown.name), "showlegend": False,
            "hoverinfo": "skip",
            "x": list(by_rate), "y": [median(values) for values in by_rate.values()],
            "line": {"color": shown.colour, "width": 2, "dash": shown.dash}, **shared,
        },
        points(shown.name, [x for _, x, _ in measured], [y for *_, y in measured], notes, marker,
               showlegend=panel == 1, **shared),
        *(points("confirmed", [x], [y], [""], ring, **shared, showlegend=False, hoverinfo="skip")
          for x, y in fresh),
    ]


def _table(series: Sequence[_Series], tbt: ChartMetric, fluid: ChartMetric) -> Table:
    rows = [
        [shown.name, _CAPACITY.show(run.rate_rps), tbt.quantity.show(run.values.get(tbt.quantity.key)),
         fluid.quantity.show(run.values.get(fluid.quantity.key)), run.slo_word,
         "confirmation" if run is shown.setting.confirmed else "search", run.run or NONE]
        for shown, runs in series for run in runs
    ]
    columns = ("setting", "offered rate", tbt.quantity.label, fluid.quantity.label, "SLO", "measured in",
               "run")
    return table(columns, rows, numeric=(1, 2, 3))


def _reading(series: Sequence[_Series], tbt: ChartMetric) -> str:
    parts = [said for shown, runs in series if (said := _held(shown, runs, tbt))]
    told = capitalised("; ".join(parts)) + "." if parts else "No run was judged against the SLO."
    # The rings are drawn for the confirmed runs that carry a figure.
    ringed = any(run is shown.setting.confirmed for shown, runs in series for run, *_ in _measured(runs, tbt))
    rings = ", ringed ones are from the confirmation" if ringed else ""
    return f"{told} Open marks do not hold{rings}; lines join the medians of each rate."


def _held(shown: ShownSetting, runs: Sequence[Figures], tbt: ChartMetric) -> str:
    """Up to which rate a setting held the SLO, and where it did not; empty where nothing was judged."""
    held = [run for run in runs if run.holds]
    missed = [run for run in runs if run.missed]
    if not held and not missed:
        return f"no run of {shown.name} counts" if any(run.holds is False for run in runs) else ""
    if not held:
        return f"{shown.name} misses the SLO at every rate tried, down to {_at(missed[0], tbt)}"
    if not missed:
        return f"{shown.name} holds the SLO at every rate tried, up to {_at(held[-1], tbt)}"
    within = (missed[0].rate_rps or 0.0) <= (held[-1].rate_rps or 0.0)
    misses = ", but also misses it at" if within else " and misses it from"
    return f"{shown.name} holds the SLO up to {_at(held[-1], tbt)}{misses} {_at(missed[0], tbt)}"


def _at(run: Figures, tbt: ChartMetric) -> str:
    named = tbt.quantity
    return f"{_CAPACITY.show(run.rate_rps)} ({named.label} {named.show(run.values.get(named.key))})"
