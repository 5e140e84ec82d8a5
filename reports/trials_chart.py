"""The chart of a study's trials: token budget against TBT, and the capacity of each."""

from collections.abc import Sequence
from typing import Any

from reports.chart_parts import ACCENT, BAD, INK, axis, figure, limit_line, points, value_axis, value_ticks
from reports.document import Chart, table
from reports.objectives import ChartMetric, chart_metric
from reports.quantities import quantity, show
from reports.shown_settings import ShownSetting, shown_settings
from reports.study import Figures, Study, Trial, knobs_label
from reports.tolerant import number

_CAPACITY = quantity("capacity_rps")
_Point = tuple[Trial, Figures, float, float]


def trials_chart(study: Study) -> Chart:
    """Every trial at its judged rate: budget against the SLO's TBT figure, capacity below it."""
    metric = chart_metric(study, "tbt", "p99")
    named = metric.quantity
    found = _points(study, metric)
    rows = [
        [trial.label, show(budget), named.show(value), _CAPACITY.show(run.rate_rps), run.slo_word,
         _CAPACITY.show(trial.capacity_rps)]
        for trial, run, budget, value in found
    ]
    columns = ("trial", "token budget", named.label, "judged at", "SLO", "capacity")
    data = table(columns, rows, numeric=(0, 1, 2, 3, 5))
    title = f"Token budget against {named.label}"
    if not found:
        missing = f"No finished trial has a {named.label} and a token budget yet."
        return Chart("trials", title, missing, None, data)
    traces = _outcome_traces(found, metric) + _rings(study, found)
    yaxes = [value_axis(named.heading, [value for *_, value in found])]
    if capacities := [(trial, budget) for trial, _, budget, _ in found if trial.capacity_rps is not None]:
        traces.append(_capacity_trace(capacities))
        yaxes.append(axis(_CAPACITY.heading, rangemode="tozero"))
    budgets = value_ticks([budget for _, _, budget, _ in found])
    drawn = figure(
        traces,
        height=560 if capacities else 380,
        yaxes=yaxes,
        xaxis=axis("token budget (tokens per engine step)", **budgets),
        marks=[limit_line(metric.limit, metric.limit_label, yaxes[0])] if metric.limit else [],
    )
    return Chart("trials", title, _reading(study, found, metric), drawn, data)


def _points(study: Study, metric: ChartMetric) -> list[_Point]:
    found = []
    for trial in study.trials:
        run, budget = trial.judged, number(trial.knobs.get("token_budget"))
        value = run.values.get(metric.quantity.key) if run else None
        if run is not None and value is not None and budget is not None and budget > 0:
            found.append((trial, run, budget, value))
    return found


def _outcome_traces(found: Sequence[_Point], metric: ChartMetric) -> list[dict[str, Any]]:
    named = metric.quantity
    traces = []
    for name, holds, marker in (
        ("holds", True, {"symbol": "circle", "size": 10, "color": ACCENT, "opacity": 0.85}),
        ("does not hold", False, {"symbol": "x-thin", "size": 9, "line": {"color": BAD, "width": 2}}),
    ):
        chosen = [point for point in found if bool(point[1].holds) is holds]
        notes = [f"trial {trial.label}: {knobs_label(trial.knobs)}; {named.label} {named.show(value)} at "
                 f"{_CAPACITY.show(run.rate_rps)}" for trial, run, _, value in chosen]
        if chosen:
            x, y = [budget for _, _, budget, _ in chosen], [value for *_, value in chosen]
            traces.append(points(name, x, y, notes, marker))
    return traces


def _rings(study: Study, found: Sequence[_Point]) -> list[dict[str, Any]]:
    rings = []
    for shown in shown_settings(study):
        for budget, value in _of(shown, found)[:1]:
            marker = {"symbol": "circle-open", "size": 20, "color": shown.colour, "line": {"width": 2}}
            label = {"mode": "markers+text", "textposition": "bottom center", "textfont": {"color": INK}}
            hidden = {"showlegend": False, "hoverinfo": "skip"}
            rings.append(points(shown.name, [budget], [value], [shown.name], marker, **label, **hidden))
    return rings


def _capacity_trace(capacities: Sequence[tuple[Trial, float]]) -> dict[str, Any]:
    notes = [f"trial {trial.label}: {knobs_label(trial.knobs)}; capacity {_CAPACITY.show(trial.capacity_rps)}"
             for trial, _ in capacities]
    marker = {"symbol": "diamond", "size": 9, "color": ACCENT, "opacity": 0.85}
    y = [trial.capacity_rps or 0.0 for trial, _ in capacities]
    return points(
        "capacity", [budget for _, budget in capacities], y, notes, marker, showlegend=False, yaxis="y2"
    )


def _of(shown: ShownSetting, found: Sequence[_Point]) -> list[tuple[float, float]]:
    return [(budget, value) for trial, _, budget, value in found if trial.knobs == shown.setting.knobs]


def _reading(study: Study, found: Sequence[_Point], metric: ChartMetric) -> str:
    named, limit = metric.quantity, metric.limit
    held = sum(bool(run.holds) for _, run, _, _ in found)
    parts = [f"{held} of {len(study.trials)} trials held the SLO at some rate"]
    for shown in shown_settings(study):
        for trial, run, budget, value in found:
            if trial.knobs == shown.setting.knobs:
                parts.append(f"{shown.name} (budget {show(budget)}) reached a {named.label} of "
                             f"{named.show(value)} at {_CAPACITY.show(run.rate_rps)}")
                break
    blind = sum(not run.holds and limit is not None and value <= limit for _, run, _, value in found)
    if blind:
        lie, fail = ("trial lies", "does") if blind == 1 else ("trials lie", "do")
        parts.append(f"{blind} {lie} below the line and still {fail} not hold: another objective or overload")
    return "; ".join(parts) + "."
