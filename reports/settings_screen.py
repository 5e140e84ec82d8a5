"""Several simulated settings side by side in the terminal, readable at 80 columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from reports.document import Cell, Table, table
from reports.quantities import capitalised, show
from reports.run_view import RunView
from reports.simulated import BADGE, Simulation
from reports.study import Judgement
from reports.terminal import file_lines, rich_table, simulated_lines, spaced

FIGURES = {"output_throughput": "tokens per s", "p99_tbt_ms": "p99 TBT", "max_tbt_ms": "longest gap",
           "median_ttft_ms": "median TTFT", "p99_ttft_ms": "p99 TTFT", "fluidity_p10": "p10 fluidity"}
"""What is shown of each, by its heading in few letters; times in ms."""


def settings_screen(views: Sequence[RunView], judgements: Sequence[Judgement | None],
                    files: Mapping[str, str]) -> RenderableType:
    """One line a setting, in the order given; then what makes figures doubtful, the SLO, the files.

    All runs are of one load on one engine that was simulated.
    """
    first = views[0]
    load = f" {first.load}" if first.load else ""
    parts: list[RenderableType] = [
        Text.assemble((BADGE.upper(), "bold green" if all(v.validity.valid for v in views) else "bold red"),
                      f". {len(views)} settings{load}, {first.requests} requests each (times in ms).")]
    parts += simulated_lines(_common(views))
    figures = rich_table(settings_table(views, judgements))
    for column in figures.columns[1:]:  # only names may be broken
        column.header, column.no_wrap = str(column.header).replace(" ", "\n", 1), True
    parts.append(figures)
    parts += _doubts(views)
    if (judged := next((one for one in judgements if one is not None), None)) is not None:
        parts.append(Text(f"SLO: {', '.join(each.text for each in judged.objectives)}"))
    return spaced([*parts, *file_lines(files)])


def _common(views: Sequence[RunView]) -> Simulation | None:
    """What was simulated, without the rule where they have different ones: the settings' names tell it."""
    first = views[0].simulation
    same = len({view.simulation for view in views}) == 1
    return first if first is None or same else replace(first, rule="")


def settings_table(views: Sequence[RunView], judgements: Sequence[Judgement | None]) -> Table:
    """Figures and verdict of each setting; a figure that none has is left out."""
    keys = [key for key in FIGURES if any(view.figures.get(key) is not None for view in views)]
    rows: list[list[Cell | str]] = [
        [view.name, *(show(view.figures.get(key)) for key in keys), _verdict(view, judgement)]
        for view, judgement in zip(views, judgements, strict=True)]
    return table(("setting", *(FIGURES[key] for key in keys), "SLO"), rows,
                 numeric=tuple(range(1, len(keys) + 1)))


def _verdict(view: RunView, judgement: Judgement | None) -> Cell:
    if not view.validity.valid:
        return Cell("invalid", "bad")
    if judgement is None:
        return Cell("none", "muted")
    return Cell("holds", "good") if judgement.holds else Cell("missed", "bad")


def _doubts(views: Sequence[RunView]) -> list[RenderableType]:
    """What is said of each run, once where it is said of all."""
    told: dict[str, list[str]] = {}
    for view in views:
        for reason in view.validity.reasons:
            told.setdefault(f"invalid: {reason}", []).append(view.name)
        for why in view.unsustainable:
            told.setdefault(f"the load was not sustainable: {why}", []).append(view.name)
        for note in (*view.warnings, *view.notes):
            told.setdefault(note, []).append(view.name)
    lines = (capitalised(note) if len(names) == len(views) else f"{'; '.join(names)}: {note}"
             for note, names in told.items())
    return [Text(line, style="dim") for line in lines]
