"""Results of other load generators in the terminal, as rich renderables readable at 80 columns."""

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.foreign import ImportedResult
from reports.imported_report import CLIENT_UNKNOWN, imported_figures, result_names, result_sentence


def imported_screen(results: Sequence[ImportedResult]) -> RenderableType:
    """What was measured and by whom, the figures, and in what their definitions differ from ours."""
    parts: list[RenderableType] = []
    for result, name in zip(results, result_names(results), strict=True):
        parts.append(Text.assemble((name, "bold"), f". {result_sentence(result)}"))
        parts += [Text(f"Warning: {warning}", style="yellow") for warning in result.warnings]
    if any("schedule_lag" not in result.samples for result in results):
        parts.append(Text(f"Note: {CLIENT_UNKNOWN}", style="dim"))
    parts.append(_figures(results))
    shown = {metric for result in results for metric, _ in result.figures()}
    notes = dict.fromkeys(f"{metric}, {result.tool}: {note}" for result in results
                          for metric, note in result.definitions.items() if metric in shown)
    parts += [Text(note, style="dim") for note in notes]
    return Group(*parts)


def _figures(results: Sequence[ImportedResult]) -> RenderableType:
    source = imported_figures(results)
    if not source.rows:
        return Text("There are no figures.")
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for position, name in enumerate(source.columns):
        side: Literal["left", "right"] = "right" if position in source.numeric else "left"
        made.add_column(Text(name), justify=side, overflow="fold")
    for row in source.rows:
        made.add_row(*(Text(cell.text) for cell in row))
    return made
