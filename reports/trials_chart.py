"""The chart of a study's trials: the largest piece of a prompt in a step against what readers saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.chart_parts import ACCENT, BAD, axis, figure, limit_line, points, value_axis, value_ticks
from reports.document import Chart, table
from reports.objectives import ChartMetric, chart_metric
from reports.quantities import quantity, show
from reports.shown_settings import shown_settings
from reports.study import Figures, Study, Trial, knobs_label
from reports.tolerant import number

_CAPACITY = quantity("capacity_rps")
_APART = 0.045
"""Trials of one piece size are drawn this much apart, as a share of the size, each at its own place."""
_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class _Point:
    """A measured trial. `place` is where it is drawn, `piece` what it means."""

    trial: Trial
    run: Figures
    piece: float
    place: float
    value: float
    """The SLO's TBT figure."""

    @property
    def capped(self) -> bool:
        """Whether the cap on long prefills, not the budget, makes the pieces small."""
        return bool(number(self.trial.knobs.get("long_prefill_token_threshold")))


def trials_chart(study: Study) -> Chart:
    """Every trial at its judged rate: piece of a prompt against TBT and fluidity, capacity below them."""
    tbt, fluid = chart_metric(study, "tbt", "p99"), chart_metric(study, "fluidity", "p10")
    named, found = tbt.quantity, _points(study, tbt)
    rows = [
        [point.trial.label, knobs_label(point.trial.knobs), show(point.piece), named.show(point.value),
         fluid.quantity.show(point.run.values.get(fluid.quantity.key)), _CAPACITY.show(point.run.rate_rps),
         point.run.slo_word, _CAPACITY.show(point.trial.capacity_rps)]
        for point in found
    ]
    columns = ("trial", "setting", "largest piece", named.label, fluid.quantity.label, "judged at", "SLO",
               "capacity")
    data = table(columns, rows, numeric=(0, 2, 3, 4, 5, 7))
    title = f"Largest piece of a prompt in one step, against {named.label}, fluidity and capacity"
    if not found:
        missing = f"No finished trial has a {named.label} and a token budget yet."
        return Chart("trials", title, missing, None, data)
    traces, yaxes, marks = _panel(found, tbt, [point.value for point in found], panel=1), [], []
    yaxes.append(value_axis(named.heading, [point.value for point in found]))
    marks += [limit_line(tbt.limit, tbt.limit_label)] if tbt.limit else []
    fluidity = [point.run.values.get(fluid.quantity.key) for point in found]
    if any(value is not None for value in fluidity):
        yaxes.append(axis(fluid.quantity.label, range=[0, 1.08]))
        traces += _panel(found, fluid, fluidity, panel=2)
        if fluid.limit:
            marks.append(limit_line(fluid.limit, fluid.limit_label, panel=2))
    if any(point.trial.capacity_rps is not None for point in found):
        yaxes.append(axis(_CAPACITY.heading, rangemode="tozero"))
        capacities = [point.trial.capacity_rps for point in found]
        traces += _panel(found, ChartMetric(_CAPACITY, None), capacities, panel=len(yaxes))
    traces += _rings(study, found)
    pieces = axis("largest piece of a prompt in one step (tokens)", **value_ticks([p.piece for p in found]))
    drawn = figure(traces, height=180 + 190 * len(yaxes), yaxes=yaxes, xaxis=pieces, marks=marks)
    return Chart("trials", title, _reading(study, found, tbt), drawn, data)


def _points(study: Study, metric: ChartMetric) -> list[_Point]:
    measured = []
    for trial in study.trials:
        run, piece = trial.judged, _largest_piece(trial)
        value = run.values.get(metric.quantity.key) if run else None
        if run is not None and value is not None and piece is not None:
            measured.append((trial, run, piece, value))
    sizes = [piece for _, _, piece, _ in measured]
    seen: dict[float, int] = {}
    found = []
    for trial, run, piece, value in measured:
        count, position = sizes.count(piece), seen.get(piece, 0)
        seen[piece] = position + 1
        step = min(_APART, _SPREAD / count)
        place = piece * (1 + step) ** (position - (count - 1) / 2)
        found.append(_Point(trial, run, piece, place, value))
    return found


def _largest_piece(trial: Trial) -> float | None:
    budget, cap = (number(trial.knobs.get(name)) for name in ("token_budget", "long_prefill_token_threshold"))
    if budget is None or budget <= 0:
        return None
    return min(budget, cap) if cap and cap > 0 else budget


def _panel(
    found: Sequence[_Point], metric: ChartMetric, values: Sequence[float | None], *, panel: int
) -> list[dict[str, Any]]:
    named, traces = metric.quantity, []
    for holds, colour, verdict in ((True, ACCENT, "holds"), (False, BAD, "does not hold")):
        for capped, symbol, kind in ((True, "diamond", "cap"), (False, "circle", "budget alone")):
            chosen = [(point, value) for point, value in zip(found, values, strict=True)
                      if value is not None and bool(point.run.holds) is holds and point.capped is capped]
            if not chosen:
                continue
            notes = [f"trial {point.trial.label}: {knobs_label(point.trial.knobs)}; {named.label} "
                     f"{named.show(value)}, judged at {_CAPACITY.show(point.run.rate_rps)}"
                     for point, value in chosen]
            marker = {"symbol": symbol if holds else f"{symbol}-open", "size": 10, "color": colour,
                      "line": {"width": 2, "color": colour}}
            traces.append(points(
                f"{verdict}, {kind}", [point.place for point, _ in chosen], [value for _, value in chosen],
                notes, marker, showlegend=panel == 1, legendgroup=f"{verdict}, {kind}",
                yaxis="y" if panel == 1 else f"y{panel}"))
    return traces


def _rings(study: Study, found: Sequence[_Point]) -> list[dict[str, Any]]:
    # Named in the legend: a label beside a mark would lie on its neighbours.
    rings = []
    for shown in shown_settings(study):
        for point in [point for point in found if point.trial.knobs == shown.setting.knobs][:1]:
            marker = {"symbol": f"{shown.marker}-open", "size": 20, "color": shown.colour,
                      "line": {"width": 2}}
            rings.append(points(shown.name, [point.place], [point.value], [""], marker, hoverinfo="skip"))
    return rings


def _reading(study: Study, found: Sequence[_Point], metric: ChartMetric) -> str:
    named, limit = metric.quantity, metric.limit
    held = sum(bool(point.run.holds) for point in found)
    parts = [f"{held} of {len(study.trials)} trials held the SLO at some rate"]
    for shown in shown_settings(study):
        for point in found:
            if point.trial.knobs == shown.setting.knobs:
                parts.append(f"{shown.name}, in pieces of up to {show(point.piece)} tokens, had a "
                             f"{named.label} of {named.show(point.value)} at "
                             f"{_CAPACITY.show(point.run.rate_rps)}")
                break
    blind = sum(not point.run.holds and limit is not None and point.value <= limit for point in found)
    if blind:
        are, miss = ("is", "misses") if blind == 1 else ("are", "miss")
        parts.append(f"{blind} {are} within the TBT limit and still {miss}: another objective or overload")
    explained = ("A step takes at most the token budget of a prompt, or the cap where one is set "
                 "(an adaptive cap may give way to more).")
    beside = " Trials of one size stand side by side." if len({p.piece for p in found}) < len(found) else ""
    return f"{'; '.join(parts)}. {explained}{beside}"
