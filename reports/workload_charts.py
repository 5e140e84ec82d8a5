"""Charts about traffic: how long prompts and answers are, and when requests come."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from reports.chart_parts import ACCENT, BAD, FOURTH, NEUTRAL, THIRD, axis, decade_ticks, figure, words
from reports.document import Chart, table
from reports.quantities import digits, duration, share
from reports.workload_tables import Traffic
from workloads.traces.length_counts import LengthCounts

_STYLES = ((ACCENT, "solid"), (NEUTRAL, "dash"), (THIRD, "dot"), (BAD, "dashdot"), (FOURTH, "longdash"))
Line = tuple[str, LengthCounts]


def prompt_chart(traffics: Sequence[Traffic]) -> Chart:
    """Lengths of the prompts; of one traffic also without what a prefix cache holds."""
    lines = [(_named(traffic, "whole prompt", traffics), traffic.statistics.all.input_len)
             for traffic in traffics]
    lines += [(_named(traffic, "after prefix hits", traffics), traffic.statistics.all.uncached_len)
              for traffic in traffics if traffic.figures["prefix_reuse"]]
    return _length_chart("prompts", "Lengths of the prompts", "prompt tokens", lines)


def answer_chart(traffics: Sequence[Traffic]) -> Chart:
    """Lengths of the answers."""
    lines = [(_named(traffic, "answers", traffics), traffic.statistics.all.output_len)
             for traffic in traffics]
    return _length_chart("answers", "Lengths of the answers", "answer tokens", lines)


def arrival_chart(traffics: Sequence[Traffic]) -> Chart:
    """Requests per second over time, averaged over windows; nothing is drawn without times."""
    title = "Arrivals over time"
    timed = [traffic for traffic in traffics if traffic.figures["span_s"]]
    if not timed:
        return Chart("arrivals", title, "The requests have no arrival times, or all came at once.", None,
                     table(("from (s)", "requests/s"), ()))
    lines, rows, told = [], [], []
    for position, traffic in enumerate(timed):
        width_s, counts = traffic.statistics.all.arrivals.series()
        begins, rates = _rates(width_s, counts, traffic.figures["span_s"])
        name = _named(traffic, "arrivals", timed)
        lines.append(_line(name, begins, rates, begins[-1] + width_s, position, [
            f"{name}, from {duration(begin)} on: {digits(rate)} requests/s"
            for begin, rate in zip(begins, rates, strict=True)]))
        rows += [[name, digits(begin), digits(rate)] for begin, rate in zip(begins, rates, strict=True)]
        told.append(f"{name}: {digits(min(rates))} to {digits(max(rates))} requests/s in windows of "
                    f"{duration(width_s)}")
    plot = figure(lines, height=300, xaxis=axis("time (s)", rangemode="tozero"),
                  yaxes=[axis("requests/s", rangemode="tozero")])
    data = table(("traffic", "from (s)", "requests/s"), rows, numeric=(1, 2))
    return Chart("arrivals", title, f"{'; '.join(told)}.", plot, data)


def doubling_edges(largest: int, *, steps: int = 2) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Whole edges from 1 to beyond `largest` that double every `steps`."""
    powers = np.arange(int(np.ceil(np.log2(largest + 1) * steps)) + 1)
    return np.unique(np.ceil(2.0 ** (powers / steps)).astype(np.int64))


def _rates(width_s: int, counts: Any, span_s: float) -> tuple[list[float], list[float]]:
    """Where each window begins, and its rate; a last window that the span hardly reaches is left out."""
    widths = np.full(len(counts), float(width_s))
    widths[-1] = min(width_s, span_s - width_s * (len(counts) - 1))
    kept = len(counts) - 1 if len(counts) > 1 and widths[-1] < width_s / 2 else len(counts)
    begins = [float(number * width_s) for number in range(kept)]
    return begins, (counts[:kept] / widths[:kept]).tolist()


def _length_chart(chart_id: str, title: str, unit: str, lines: Sequence[Line]) -> Chart:
    lines = [(name, counts) for name, counts in lines if counts.n]
    if not lines:
        return Chart(chart_id, title, "There are no requests.", None, table((unit,), ()))
    edges = doubling_edges(max(int(counts.values[-1]) for _, counts in lines))
    shares = [counts.histogram(edges) / counts.n for _, counts in lines]
    used = np.flatnonzero(np.sum(shares, axis=0))
    shown = range(int(used[0]), int(used[-1]) + 1)
    begins = [float(edges[i]) for i in shown]
    labels = [_span(int(edges[i]), int(edges[i + 1])) for i in shown]
    drawn = []
    for position, ((name, _), of) in enumerate(zip(lines, shares, strict=True)):
        heights = [float(of[i]) for i in shown]
        notes = [f"{name}: {share(height)} have {label} tokens"
                 for height, label in zip(heights, labels, strict=True)]
        drawn.append(_line(name, begins, heights, float(edges[shown.stop]), position, notes))
    plot = figure(drawn, height=320, xaxis=axis(unit, **decade_ticks(begins)),
                  yaxes=[axis("share of requests", rangemode="tozero", tickformat=".0%")])
    # Shares of all that are as short, so that a table that is thinned stays true.
    rows = [[digits(int(edges[i + 1]) - 1), *(share(1 - counts.above(int(edges[i + 1]) - 1) / counts.n)
                                              for _, counts in lines)] for i in shown]
    data = table((f"{unit} up to", *(name for name, _ in lines)), rows, numeric=range(1, 1 + len(lines)))
    told = "; ".join(f"{name}: half have at most {digits(counts.percentile(50) or 0)}, one in a hundred more "
                     f"than {digits(counts.percentile(99) or 0)}" for name, counts in lines)
    return Chart(chart_id, title, f"{told}.", plot, data)


def _line(name: str, x: list[float], y: list[float], end: float, position: int,
          notes: list[str]) -> dict[str, Any]:
    """Steps that begin at each `x`; the last one reaches as far as `end`."""
    colour, dash = _STYLES[position % len(_STYLES)]
    return {"type": "scatter", "mode": "lines", "name": words(name), "x": [*x, end], "y": [*y, *y[-1:]],
            "line": {"color": colour, "width": 2, "dash": dash, "shape": "hv"},
            "text": [words(note) for note in (*notes, *notes[-1:])],
            "hovertemplate": "%{text}<extra></extra>"}


def _span(low: int, beyond: int) -> str:
    return digits(low) if beyond - low == 1 else f"{digits(low)} to {digits(beyond - 1)}"


def _named(traffic: Traffic, what: str, traffics: Sequence[Traffic]) -> str:
    return f"{traffic.name}, {what}" if len(traffics) > 1 else what
