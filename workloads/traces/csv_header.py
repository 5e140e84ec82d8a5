"""The header of a CSV file: where its columns are."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from workloads.errors import UsageError
from workloads.traces.opening import file_head


class Header(NamedTuple):
    """The names of the columns."""

    names: tuple[str, ...]
    line: int
    delimiter: str

    def place(self, name: str) -> int | None:
        """Of a column: exactly so named, else but for upper and lower case; None where there is none."""
        if name in self.names:
            return self.names.index(name)
        folded = [each.casefold() for each in self.names]
        return folded.index(name.casefold()) if name.casefold() in folded else None

    def count(self, name: str) -> int:
        """How many columns are so named, as far as upper and lower case do not tell them apart."""
        return self.names.count(name) or sum(each.casefold() == name.casefold() for each in self.names)


def first_line(head: bytes) -> Header | None:
    """The first line of a text that is not blank, as a header; None where there is none."""
    for number, line in enumerate(head.splitlines(), start=1):
        text = line.decode(errors="replace").strip()
        if text:
            delimiter = max(",\t;", key=text.count)
            try:
                names = next(csv.reader([text], delimiter=delimiter))
            except csv.Error:
                return None
            return Header(tuple(name.strip() for name in names), number, delimiter)
    return None


def read_header(path: Path) -> Header:
    """The header of the file; UsageError where there is none."""
    header = first_line(file_head(path))
    if header is None:
        raise UsageError(f"the trace {path} has no header line that names its columns")
    return header


def required_header(path: Path, columns: Mapping[str, str]) -> Header:
    """The header of the file; UsageError where one of the columns named by the values is not in it."""
    header = read_header(path)
    missing = [name for name in columns.values() if header.place(name) is None]
    if missing:
        raise UsageError(f"{path}:{header.line}: no column {listed(missing)}; "
                         f"found {listed(header.names)}; expected {listed(columns.values())}")
    return header


def listed(names: Iterable[str]) -> str:
    """The names for a message of one line."""
    return ", ".join(name[:40] for name in list(names)[:20])
