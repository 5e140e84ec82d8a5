"""The traces of Azure's LLM inference service of 2023 and 2024, and files like them."""

from collections.abc import Iterator
from pathlib import Path

from workloads.traces.column_names import keys_by_field
from workloads.traces.csv_header import first_line, required_header
from workloads.traces.csv_rows import csv_pieces
from workloads.traces.formats import BadRows
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import RawRows

_COLUMNS = {"timestamp": "TIMESTAMP", "input_len": "ContextTokens", "output_len": "GeneratedTokens"}


def sniff(head: bytes, path: Path) -> bool:
    """A header with the three names; the trace of multimodal requests has more."""
    header = first_line(head)
    return header is not None and set(_COLUMNS.values()) <= set(header.names)


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order. Times are UTC unless they say otherwise."""
    columns = {**_COLUMNS, **keys_by_field(options.columns, {ours: ours for ours in _COLUMNS}, "azure")}
    header = required_header(path, columns)
    for piece in csv_pieces(path, header, columns):
        raw = RawRows(line=piece.line, time_ns=piece.wall_ns("timestamp"),
                      input_len=piece.whole("input_len"), output_len=piece.whole("output_len"))
        yield from piece.judged(raw, bad)
