"""Lengths written in a file: one whole number a line, or one column of a CSV file."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from workloads.errors import UsageError

MAX_TOKENS = 2**31 - 1
"""The largest length of a prompt or an answer; plans store lengths as int32."""


def read_lengths(path: Path, column: str | None) -> tuple[int, ...]:
    """The lengths of `path` in the file's order, each 1 to MAX_TOKENS tokens.

    Without `column` the file holds one whole number a line; with it, a CSV file whose first
    row names the columns. Blank lines are skipped. Anything else is refused with the file and
    the line: a length of 0 is a failed request in most traces, and to drop it is the user's decision.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = _plain_cells(file) if column is None else _csv_cells(file, path, column)
            lengths = tuple(_length(text, path, line) for line, text in cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read lengths from {path}: {error}") from error
    if not lengths:
        raise UsageError(f"{path} holds no lengths")
    return lengths


def _plain_cells(file: TextIO) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield number, line


def _csv_cells(file: TextIO, path: Path, column: str) -> Iterator[tuple[int, str]]:
    rows = csv.DictReader(file)
    columns = rows.fieldnames or ()
    if column not in columns:
        raise UsageError(f"{path} has no column {column!r}; its columns: {', '.join(columns) or '(none)'}")
    for row in rows:
        yield rows.line_num, row[column] or ""


def _length(text: str, path: Path, line: int) -> int:
    text = text.strip()
    # Longer digit strings are out of range anyway, and int() refuses very long ones.
    if text.isdecimal() and len(text) <= 10 and 1 <= (length := int(text)) <= MAX_TOKENS:
        return length
    raise UsageError(f"{path}:{line}: {text[:40]!r} is not a whole number of tokens from 1 to {MAX_TOKENS}")
