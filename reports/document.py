"""What a report says, before it is HTML or Markdown: sections of typed blocks of plain text.

Text in a block is never markup; each writer escapes it for its own format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Tone = Literal["", "good", "bad", "muted"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table. `tone` repeats in colour what `text` says already."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; `numeric` holds the positions of right-aligned columns."""

    kind: ClassVar[str] = "table"
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph of prose."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """Sentences of equal rank."""

    kind: ClassVar[str] = "bullets"
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader must know before the figures beside it."""

    kind: ClassVar[str] = "notice"
    text: str
    title: Literal["Warning", "Invalid", "Missing", "Note", "Simulated"] = "Warning"


@dataclass(frozen=True, slots=True)
class Command:
    """Text to be copied as it is: a command line or a file. `note` is a line of small print under it."""

    kind: ClassVar[str] = "command"
    text: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    kind: ClassVar[str] = "facts"
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A plotly figure as plain data, what it shows in one sentence, and the same data as a table.

    Colours in `figure` are names of the page's CSS variables (`var(--accent)`), so that one
    figure serves the light and the dark page. `figure` is None when there is nothing to draw;
    `reading` then says what is missing.
    """

    kind: ClassVar[str] = "chart"
    id: str
    title: str
    reading: str
    figure: Mapping[str, Any] | None
    data: Table


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One large number of the headline, with the number it is compared to."""

    label: str
    value: str
    unit: str
    against: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict: one word for its kind, one sentence, the figures that carry it."""

    kind: ClassVar[str] = "headline"
    status: str
    tone: Tone
    sentence: str
    figures: tuple[KeyFigure, ...] = ()


Block = Table | Paragraph | Bullets | Notice | Command | Facts | Chart | Headline


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that are folded away behind one line."""

    kind: ClassVar[str] = "details"
    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it; `id` is its anchor in the page."""

    id: str
    title: str
    blocks: tuple[Block | Details, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report. `source` says where its data come from, `footer` what made it and when, `badge` what
    sets it apart from a measurement; empty for one."""

    title: str
    source: str
    sections: tuple[Section, ...]
    footer: str
    badge: str = ""


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell | str]],
    *,
    numeric: Sequence[int] = (),
    caption: str = "",
) -> Table:
    """A Table whose plain texts are made cells."""
    cells = tuple(tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(tuple(columns), cells, frozenset(numeric), caption)
