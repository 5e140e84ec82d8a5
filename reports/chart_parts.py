"""What every chart shares: layout, markers and limit lines, as plain plotly dictionaries.

Colours are names of the page's CSS variables; the page puts their values in, so a chart
follows light, dark and paper. Shape says the same as colour everywhere.
"""

import html
import math
from collections.abc import Sequence
from typing import Any

Mark = tuple[list[dict[str, Any]], dict[str, Any]]
"""Lines or an area of a chart and their label."""

ACCENT, NEUTRAL, BAD, THIRD, FOURTH, INK, SOFT, GRID, PAPER = (
    f"var(--{name})"
    for name in ("accent", "neutral", "bad", "third", "fourth", "ink", "soft", "grid", "paper")
)

CONFIG = {
    # plotly.js 4 offers to upload the chart to a cloud service unless told otherwise.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}


def figure(
    traces: Sequence[dict[str, Any]],
    *,
    height: int,
    xaxis: dict[str, Any],
    yaxes: Sequence[dict[str, Any]],
    marks: Sequence[Mark] = (),
) -> dict[str, Any]:
    """A figure of panels of equal height stacked over one x axis; `yaxes` from top to bottom."""
    layout: dict[str, Any] = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 8, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": GRID, "font": {"color": INK}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.05, "xanchor": "left", "yanchor": "bottom"},
        "hovermode": "closest",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": SOFT, "activecolor": ACCENT},
        "xaxis": {**_AXIS, **xaxis, "anchor": "y" if len(yaxes) == 1 else f"y{len(yaxes)}"},
        "shapes": [shape for shapes, _ in marks for shape in shapes],
        "annotations": [note for _, note in marks],
    }
    gap = 0.1 if len(yaxes) == 2 else 0.07
    each = (1 + gap) / len(yaxes)
    for position, axis in enumerate(yaxes, start=1):
        # Rounding must not push the top panel out of the paper.
        top = max(0.0, round(1 - (position - 1) * each, 4))
        domain = [max(0.0, round(top - each + gap, 4)), top]
        layout["yaxis" if position == 1 else f"yaxis{position}"] = {**_AXIS, **axis, "domain": domain}
    return {"data": list(traces), "layout": layout, "config": CONFIG}


_AXIS: dict[str, Any] = {
    "gridcolor": GRID,
    "linecolor": GRID,
    "zeroline": False,
    "ticks": "",
    "automargin": True,
    "title": {"standoff": 8},
}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with a title; further keys are plotly's own."""
    return {"title": {"text": title, "standoff": 8}, **more}


def limit_line(value: float, label: str, *, panel: int = 1) -> Mark:
    """A dashed horizontal line across a panel; its label stands above the panel, where no mark can be."""
    yref = "y" if panel == 1 else f"y{panel}"
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": yref, "y0": value, "y1": value}
    place = {"xref": "paper", "x": 1, "xanchor": "right", "yref": f"{yref} domain", "y": 1}
    return [{**shape, "line": _DASHED}], {**place, "yanchor": "bottom", **_LABEL, "text": words(label)}


def upright_line(value: float, label: str) -> Mark:
    """A dashed vertical line at `value` on a logarithmic x axis, its label at the top."""
    shape = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "xref": "x", "x0": value, "x1": value}
    note = {"yref": "paper", "y": 1, "yanchor": "top", "xref": "x", "x": math.log10(value), "xanchor": "left"}
    return [{**shape, "line": _DASHED}], {**note, **_LABEL, "xshift": 4, "text": words(label)}


def forbidden_corner(x: float, right: float, y: float, top: float, lines: Sequence[str]) -> Mark:
    """The area right of `x` and above `y`, as far as `right` and `top`, on two logarithmic axes; its
    label stands in its upper right, one of `lines` under the other."""
    area = {"type": "rect", "x0": x, "x1": right, "y0": y, "y1": top, "layer": "below"}
    sides = [{"x0": x, "x1": x, "y0": y, "y1": top}, {"x0": x, "x1": right, "y0": y, "y1": y}]
    note = {"xref": "paper", "x": 1, "xanchor": "right", "yref": "paper", "y": 1, "yanchor": "top"}
    shapes = [
        {**area, "fillcolor": BAD, "opacity": 0.14, "line": {"width": 0}},
        *({"type": "line", **side, "line": _DASHED} for side in sides),
    ]
    text = "<br>".join(map(words, lines))
    return shapes, {**note, **_LABEL, "xshift": -6, "yshift": -4, "align": "right", "text": text}


_DASHED = {"color": INK, "width": 1.2, "dash": "dash"}
_LABEL = {"showarrow": False, "font": {"size": 12, "color": INK}}


def words(text: str) -> str:
    """Text from outside for a label: plotly reads tags and entities in every text it draws."""
    return html.escape(text, quote=False)


def value_ticks(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis that is labelled at the values themselves, but for those too close to the one
    before; the largest always is. The page leaves out more where it is narrow."""
    distinct = sorted(set(values))
    least = math.log(distinct[-1] / distinct[0]) * _TICKS_APART
    kept = distinct[:1]
    for value in distinct[1:]:
        if math.log(value / kept[-1]) >= least and math.log(distinct[-1] / value) >= least:
            kept.append(value)
    return _labelled([*kept, *distinct[-1:]] if len(distinct) > 1 else kept)


def decade_ticks(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis over positive values that is labelled at 1, 2 and 5 of each decade."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    return _labelled([step * 10.0**decade for decade in decades for step in steps])


def value_axis(title: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis from 0; logarithmic where the values differ so much that a linear axis would press
    the small ones together."""
    wide = bool(values) and min(values) > 0 and max(values) / min(values) > _WIDE
    return axis(title, **(decade_ticks(values) if wide else {"rangemode": "tozero"}))


def points(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    notes: Sequence[str],
    marker: dict[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """A trace of markers; each says its note when it is pointed at. Further keys are plotly's own."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": words(name),
        "x": list(x),
        "y": list(y),
        "text": [words(note) for note in notes],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": marker,
        **more,
    }


def _labelled(ticks: Sequence[float]) -> dict[str, Any]:
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": list(ticks),
        "ticktext": [f"{v:.6g}" for v in ticks],
    }


_WIDE = 8.0
_TICKS_APART = 0.04
"""The least distance of labels as a share of the axis: some 30 pixels of a wide page."""
