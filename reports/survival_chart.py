"""The chart of the gaps between tokens: which share of them is longer than a given time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.chart_parts import INK, Mark, axis, decade_ticks, figure, forbidden_corner, upright_line, words
from reports.document import Chart, Table, table
from reports.objectives import ChartMetric
from reports.quantities import digits, share, show
from reports.survival import LEVELS, Survival

_TITLE = "Gaps between tokens (TBT): how many are longer than a given time"
_TOP = 1.15
"""Just above the share of all gaps."""
_BELOW = 0.45
"""How far the axis goes below the share of one gap: room for the label of the longest."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One sketch with the name, colour and dash of its line."""

    name: str
    colour: str
    dash: str
    sketch: Survival


def survival_chart(curves: Sequence[Curve], *, slo: ChartMetric | None = None, caution: str = "") -> Chart:
    """Share of gaps longer than x for each curve, both axes logarithmic, and the same as a table.

    `slo` draws the SLO's limit on TBT: for a percentile as the area that no curve may enter. `caution`
    is added to the reading.
    """
    data = _table(curves)
    drawn = [curve for curve in curves if curve.sketch.n]
    if not drawn:
        return Chart("survival", _TITLE, "No run with gaps between tokens is at hand.", None, data)
    lines = [_line(curve) for curve in drawn]
    gaps = [gap for line in lines for gap in line["x"]]
    limit = slo.limit if slo else None
    left, right = min([*gaps, limit or 1.0]) * 0.95, max([*gaps, limit or 1.0]) * 1.12
    bottom = _BELOW / max(curve.sketch.n for curve in drawn)
    corner = [_limit(slo, limit, right, bottom)] if slo and limit else []
    shares = [10.0**-power for power in range(math.floor(-math.log10(bottom)) + 1)]
    plot = figure(
        [*lines, *_ends(drawn)],
        height=460,
        xaxis=axis(
            "gap between tokens (ms)",
            **decade_ticks([left, right]),
            range=[math.log10(left), math.log10(right)],
        ),
        yaxes=[
            axis(
                "share of gaps that are longer",
                type="log",
                tickmode="array",
                tickvals=shares,
                ticktext=["all", *(_one_in(level) for level in shares[1:])],
                range=[math.log10(bottom), math.log10(_TOP)],
            )
        ],
        marks=corner,
    )
    return Chart("survival", _TITLE, " ".join(filter(None, (_reading(drawn, slo), caution))), plot, data)


def _table(curves: Sequence[Curve]) -> Table:
    rows = [
        [share(level), *(show(curve.sketch.gap_ms[i], "ms") for curve in curves)]
        for i, level in enumerate(LEVELS)
        if any(curve.sketch.gap_ms[i] is not None for curve in curves)
    ]
    rows.append(["longest", *(show(curve.sketch.longest_ms, "ms") for curve in curves)])
    rows.append(["number of gaps", *(show(float(curve.sketch.n)) for curve in curves)])
    columns = ("share of gaps longer than", *(curve.name for curve in curves))
    return table(columns, rows, numeric=tuple(range(1, len(curves) + 1)))


def _line(curve: Curve) -> dict[str, Any]:
    points = _points(curve.sketch)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": words(curve.name),
        "x": [gap for gap, _ in points],
        "y": [level for _, level in points],
        "line": {"color": curve.colour, "width": 2.5, "dash": curve.dash},
        "text": [
            words(f"{curve.name}: {share(level)} of gaps are longer than {show(gap, 'ms')}")
            for gap, level in points[:-1]
        ]
        + [words(f"{curve.name}: the longest gap is {show(gap, 'ms')}") for gap, _ in points[-1:]],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _ends(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """A mark where each line ends, with the longest gap beside it where there is room for it."""
    ends = [(curve, *points[-1]) for curve in curves if (points := _points(curve.sketch))]
    gaps = [gap for _, gap, _ in ends]
    roomy = len(ends) == 1 or (len(ends) == 2 and max(gaps) > 2 * min(gaps))
    return [
        {
            "type": "scatter",
            "mode": "markers+text" if roomy else "markers",
            "name": words(curve.name),
            "x": [gap],
            "y": [level],
            "text": [f"longest {show(curve.sketch.longest_ms, 'ms')}"],
            "textposition": "bottom left",
            "textfont": {"color": INK, "size": 12},
            "marker": {"color": curve.colour, "size": 7},
            "showlegend": False,
            "hoverinfo": "skip",
        }
        for curve, gap, level in ends
    ]


def _points(sketch: Survival) -> list[tuple[float, float]]:
    """Gaps and the shares that are longer; at its end the longest gap, as one of all."""
    # Several tokens of one read are gaps of 0, which a logarithmic axis cannot show.
    known = [(gap, level) for gap, level in zip(sketch.gap_ms, LEVELS, strict=True) if gap]
    return [*known, (sketch.longest_ms, 1 / sketch.n)] if sketch.longest_ms else []


def _limit(slo: ChartMetric, limit: float, right: float, bottom: float) -> Mark:
    allowed = slo.allowed_share
    if allowed is None:
        return upright_line(limit, f"SLO: {slo.quantity.label} {show(limit, 'ms')}")
    many = f"over {_one_in(allowed)}" if allowed else "a gap"
    label = ("SLO missed:", many, f"beyond {show(limit, 'ms')}")
    return forbidden_corner(limit, right, max(allowed, bottom), _TOP, label)


def _one_in(level: float) -> str:
    return f"1 in {digits(round(1 / level, 2))}".replace(" ", "\u00a0")


def _reading(curves: Sequence[Curve], slo: ChartMetric | None) -> str:
    parts = []
    for curve in curves:
        sketch, tail = curve.sketch, curve.sketch.at(0.01)
        said = (
            f"1\u00a0% of gaps are longer than {show(tail, 'ms')}"
            if tail is not None
            else f"too few gaps ({sketch.n}) for a 99th percentile"
        )
        if sketch.limit_ms is not None and sketch.n_longer is not None:
            limit = show(sketch.limit_ms, "ms")
            said += f", {_longer(sketch.n_longer, sketch.n)} longer than the limit of {limit}"
        parts.append(f"{curve.name}: {said}, the longest is {show(sketch.longest_ms, 'ms')}")
    rule = ""
    if slo and slo.limit and slo.allowed_share is not None:
        rule = " A line that enters the shaded area misses the SLO."
    return "; ".join(parts) + "." + rule


def _longer(count: int, n: int) -> str:
    if not count:
        return f"none of {n} is"
    return f"{count} of {n} ({share(float(f'{count / n:.2g}'))}) {'is' if count == 1 else 'are'}"
