"""A document as Markdown for a pull request or a job summary."""

import re
from collections.abc import Sequence

from reports.document import (
    Block,
    Bullets,
    Chart,
    Command,
    Details,
    Document,
    Facts,
    Headline,
    Notice,
    Paragraph,
    Table,
)

_MOST_CHART_ROWS = 24
"""A comment on GitHub holds 65 536 characters; a distribution's table is thinned to this many rows."""
_LINE_BREAKS = re.compile(r"[ \t]*[\r\n\v\f\x85\u2028\u2029]+[ \t]*")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")


def markdown(document: Document) -> str:
    """GitHub-flavoured Markdown; text from outside is escaped and cannot become markup."""
    parts = [f"# {escape(document.title)}"]
    if document.badge:
        parts.append(f"**{escape(document.badge.upper())}**")
    if document.source:
        parts.append(escape(document.source))
    for section in document.sections:
        parts.append(f"## {escape(section.title)}")
        parts += [_block(block) for block in section.blocks]
    if document.footer:
        parts.append(f"---\n{escape(document.footer)}")
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """The text on one line with every character that Markdown could read as markup escaped."""
    return _SPECIAL.sub(r"\\\1", _LINE_BREAKS.sub(" ", text))


def _block(block: Block | Details) -> str:
    match block:
        case Headline():
            return _headline(block)
        case Notice():
            return f"> **{block.title}.** {escape(block.text)}"
        case Paragraph():
            return escape(block.text)
        case Bullets():
            return "\n".join(f"- {escape(item)}" for item in block.items)
        case Command():
            note = f"\n\n{escape(block.note)}" if block.note else ""
            return f"{escape(block.label)}:\n\n{_fenced(block.text)}{note}"
        case Facts():
            return _rows(
                ("", ""), [(f"**{escape(name)}**", escape(text)) for name, text in block.items], frozenset()
            )
        case Table():
            return _table(block)
        case Chart():
            return _chart(block)
        case Details():
            return _folded(block.summary, "\n\n".join(_block(inner) for inner in block.blocks))


def _headline(block: Headline) -> str:
    figures = [
        f"- **{escape(figure.label)}** {escape(f'{figure.value} {figure.unit}'.strip())}"
        + (f" ({escape(figure.against)})" if figure.against else "")
        for figure in block.figures
    ]
    return "\n\n".join(
        filter(None, (f"**{escape(block.status)}.** {escape(block.sentence)}", "\n".join(figures)))
    )


def _chart(chart: Chart) -> str:
    parts = [f"### {escape(chart.title)}", escape(chart.reading)]
    rows = chart.data.rows
    if rows:
        every = -(-len(rows) // _MOST_CHART_ROWS)
        kept = Table(chart.data.columns, rows[::-1][::every][::-1], chart.data.numeric)
        thinned = f" (every {every}th row)" if every > 1 else ""
        parts.append(_folded(f"Data of this chart{thinned}", _table(kept)))
    return "\n\n".join(parts)


def _table(block: Table) -> str:
    rows = [tuple(escape(cell.text) for cell in row) for row in block.rows]
    drawn = _rows(tuple(escape(name) for name in block.columns), rows, block.numeric)
    return f"{escape(block.caption)}\n\n{drawn}" if block.caption else drawn


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int]) -> str:
    rule = ["---:" if position in numeric else "---" for position in range(len(columns))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows))


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>\n\n{content}\n\n</details>"


def _fenced(text: str) -> str:
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}\n{text}\n{fence}"
