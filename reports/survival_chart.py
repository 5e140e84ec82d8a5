"""The chart of the gaps between tokens: which share of them is longer than a given time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.chart_parts import axis, decade_ticks, figure, upright_line, words
from reports.document import Chart, table
from reports.quantities import NONE, share, show
from reports.survival import LEVELS, TAIL, Survival

_TICKS = (1.0, 0.1, 0.01, 0.001, TAIL)


@dataclass(frozen=True, slots=True)
class Curve:
    """One sketch with the name, colour and dash of its line."""

    name: str
    colour: str
    dash: str
    sketch: Survival


def survival_chart(curves: Sequence[Curve], *, limit_ms: float | None = None, caution: str = "") -> Chart:
    """Share of gaps longer than x for each curve, both axes logarithmic, and the same as a table.

    `limit_ms` draws the SLO's limit; `caution` is added to the reading.
    """
    title = "Gaps between tokens (TBT), down to the longest 0.01 %".replace(" %", "\u00a0%")
    drawn = [curve for curve in curves if curve.sketch.n]
    rows = [
        [share(level), *(show(curve.sketch.gap_ms[i], "ms") for curve in curves)]
        for i, level in enumerate(LEVELS)
        if any(curve.sketch.gap_ms[i] is not None for curve in curves)
    ]
    rows.append(["longest", *(show(curve.sketch.longest_ms, "ms") for curve in curves)])
    rows.append(["number of gaps", *(show(float(curve.sketch.n)) for curve in curves)])
    data = table(
        ("share of gaps longer than", *(curve.name for curve in curves)),
        rows,
        numeric=tuple(range(1, len(curves) + 1)),
    )
    if not drawn:
        return Chart("survival", title, "No run with gaps between tokens is at hand.", None, data)
    lines = [upright_line(limit_ms, f"SLO {show(limit_ms, 'ms')}")] if limit_ms else []
    traces = [_trace(curve) for curve in drawn]
    plot = figure(
        traces,
        height=420,
        xaxis=axis(
            "gap between tokens (ms)",
            **decade_ticks([gap for trace in traces for gap in trace["x"]] or [1.0]),
        ),
        yaxes=[
            axis(
                "share of gaps that are longer",
                type="log",
                tickmode="array",
                tickvals=list(_TICKS),
                ticktext=["all", *(f"{level:.10g}\u00a0%" for level in (10, 1, 0.1, 0.01))],
                range=[-4.1, 0.05],
            )
        ],
        marks=lines,
    )
    reading = " ".join(filter(None, (_reading(drawn, limit_ms), caution)))
    return Chart("survival", title, reading, plot, data)


def _trace(curve: Curve) -> dict[str, Any]:
    # Several tokens of one read are gaps of 0, which a logarithmic axis cannot show.
    points = [(gap, level) for gap, level in zip(curve.sketch.gap_ms, LEVELS, strict=True) if gap]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": words(curve.name),
        "x": [gap for gap, _ in points],
        "y": [level for _, level in points],
        "line": {"color": curve.colour, "width": 2.5, "dash": curve.dash},
        "text": [
            words(f"{curve.name}: {share(level)} of gaps are longer than {show(gap, 'ms')}")
            for gap, level in points
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _reading(curves: Sequence[Curve], limit_ms: float | None) -> str:
    parts = []
    for curve in curves:
        sketch = curve.sketch
        tail = sketch.at(0.01)
        said = (
            f"1\u00a0% of gaps are longer than {show(tail, 'ms')}"
            if tail is not None
            else f"too few gaps ({sketch.n}) for a 99th percentile"
        )
        if limit_ms:
            said += f", {_rounded_share(sketch.share_longer(limit_ms))} longer than the limit"
        parts.append(f"{curve.name}: {said}, the longest is {show(sketch.longest_ms, 'ms')}")
    return "; ".join(parts) + "."


def _rounded_share(value: float | None) -> str:
    if value is None:
        return NONE
    if value == 0:
        return "none"
    return f"under {share(TAIL)}" if value < TAIL else share(float(f"{value:.2g}"))
