"""Results of other load generators in the terminal, as rich renderables readable at 80 columns."""

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.foreign import ImportedResult
from reports.imported_report import (
    CLIENT_UNKNOWN,
    client_facts,
    imported_figures,
    result_names,
    result_sentence,
    result_status,
)
from reports.simulated import shouted
from reports.terminal import STYLES


def imported_screen(results: Sequence[ImportedResult]) -> RenderableType:
    """What was measured and by whom, of our own files first whether it is valid; the figures, how our
    client fared, and in what the definitions of others differ from ours."""
    parts: list[RenderableType] = []
    names = result_names(results)
    for result, name in zip(results, names, strict=True):
        parts += _told(result, name)
    if not all(result.tells_lateness for result in results):
        parts.append(Text(f"Note: {CLIENT_UNKNOWN}", style="dim"))
    parts.append(_figures(results))
    for result, name in zip(results, names, strict=True):
        if facts := client_facts(result):
            parts.append(Text(f"Client: {name}" if len(results) > 1 else "Client", style="bold"))
            parts.append(_named(facts))
    shown = {metric for result in results for metric, _ in result.figures()}
    notes = dict.fromkeys(f"{metric}, {result.tool}: {note}" for result in results
                          for metric, note in result.definitions.items() if metric in shown)
    parts += [Text(note, style="dim") for note in notes]
    return Group(*parts)


def _told(result: ImportedResult, name: str) -> list[RenderableType]:
    """The sentence of one result, then what makes it invalid, warnings and notes."""
    sentence = f"{name}. {result_sentence(result)}"
    if result.own:
        status, tone = result_status(result)
        first = Text.assemble((shouted(status), f"bold {STYLES[tone]}".strip()), f". {sentence}")
    else:
        first = Text.assemble((name, "bold"), sentence.removeprefix(name))
    lines: list[RenderableType] = [first]
    if result.validity is not None:
        lines += [Text(f"Invalid: {reason}", style="red") for reason in result.validity.reasons]
    lines += [Text(f"Warning: {warning}", style="yellow") for warning in result.warnings]
    notes = result.validity.notes if result.validity is not None else ()
    return [*lines, *(Text(f"Note: {note}", style="dim") for note in notes)]


def _named(facts: Sequence[tuple[str, str]]) -> RenderableType:
    made = Table.grid(padding=(0, 2, 0, 0))
    for name, told in facts:
        made.add_row(Text(f"  {name}"), Text(told))
    return made


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
