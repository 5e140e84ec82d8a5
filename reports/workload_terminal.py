"""The screen of `tune workload show`, readable at 80 columns."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from reports.quantities import capitalised, digits, duration, share
from reports.terminal import STYLES, file_lines, rich_table, spaced
from reports.workload_charts import doubling_edges
from reports.workload_report import VERDICTS, arrival_doubts
from reports.workload_tables import (
    Traffic,
    arrival_table,
    budget_table,
    length_table,
    rejected_table,
    tenant_table,
)
from workloads.traces.length_counts import LengthCounts

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40


def workload_screen(traffic: Traffic, files: Mapping[str, str]) -> RenderableType:
    """What the traffic is like, and what that means for chunked prefill; `files` were written."""
    figures = traffic.figures
    parts: list[RenderableType] = [
        Text.assemble((traffic.name, "bold"), f": {traffic.counted()}; {traffic.about}.")]
    if (left_out := rejected_table(traffic)).rows:
        parts.append(rich_table(left_out))
    if figures["clipped"]:
        parts.append(Text(f"{digits(figures['clipped'])} rows were cut to fit the model."))
    if figures["rows"]:
        parts += [rich_table(length_table([traffic])), *_sharing(traffic)]
        parts.append(rich_table(arrival_table([traffic])))
        parts += [Text(doubt, style="dim") for doubt in arrival_doubts(traffic)]
        parts.append(Text("\n".join(_plots(traffic))))
    tenants = tenant_table(traffic)
    if tenants.rows:
        parts += [rich_table(tenants), *([Text(tenants.caption)] if tenants.caption else [])]
    parts += _advice(traffic)
    return spaced([*parts, *file_lines(files)])


def _sharing(traffic: Traffic) -> list[RenderableType]:
    figures, sessions = traffic.figures, traffic.figures["sessions"]
    above = ", ".join(f"{share(value)} above {digits(int(limit))}"
                      for limit, value in figures["share_of_prompts_above"].items())
    lines = [f"Prompts: {above} tokens; {digits(figures['input_per_output'])} prompt tokens for each answer "
             f"token"]
    if figures["prefix_reuse"] is not None:
        blocks = (figures["prefix_reuse_detail"] or {})["share_of_blocks"]
        also = f", {share(blocks)} of the blocks" if blocks is not None else ""
        lines.append(f"Prefix reuse: {share(figures['prefix_reuse'])} of the prompt tokens{also}")
    if sessions:
        think = sessions["think_s"]
        told = f", median think time {duration(think['p50'])}" if think else ""
        lines.append(f"Conversations: {digits(sessions['count'])}, {digits(sessions['turns_mean'])} turns on "
                     f"average{told}")
    return [Text("\n".join(lines))]


def _plots(traffic: Traffic) -> list[str]:
    everything = traffic.statistics.all
    lines = [_length_line("prompt tokens", everything.input_len),
             _length_line("answer tokens", everything.output_len)]
    if traffic.figures["span_s"]:
        width_s, counts = everything.arrivals.series()
        merged = -(-len(counts) // _WIDTH)
        padded = np.zeros(merged * -(-len(counts) // merged), np.int64)
        padded[:len(counts)] = counts
        per_bar = padded.reshape(-1, merged).sum(axis=1)
        lines.append(f"arrivals       {_bars(per_bar.tolist())}  {duration(width_s * merged)} a bar, at most "
                     f"{digits(int(per_bar.max()))}")
    return lines


def _length_line(label: str, counts: LengthCounts) -> str:
    edges = doubling_edges(int(counts.values[-1]))
    found = counts.histogram(edges)
    begin = int(np.flatnonzero(found)[0])
    end = int(np.flatnonzero(found)[-1]) + 1
    return (f"{label:<14} {_bars(found[begin:end].tolist())}  {digits(int(counts.values[0]))} to "
            f"{digits(int(counts.values[-1]))}, ×1.41 a bar")


def _bars(counts: Sequence[int]) -> str:
    """A column for each count, as tall as its share of the largest; a space for none."""
    most = max(counts)
    return "".join(_BARS[min(len(_BARS) - 1, count * len(_BARS) // most)] if count else " "
                   for count in counts)


def _advice(traffic: Traffic) -> list[RenderableType]:
    advice = traffic.advice
    status, tone = VERDICTS[advice.verdict]
    said = "\n".join(f"- {reason}" for reason in advice.reasons)
    parts: list[RenderableType] = [
        Text.assemble(("Chunked prefill: ", "bold"), (capitalised(status), f"bold {STYLES[tone]}".strip()),
                      f". {advice.headline}{chr(10) if said else ''}{said}")]
    if advice.budgets:
        parts.append(rich_table(budget_table(advice)))
    return parts
