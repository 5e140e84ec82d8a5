"""CSV files as columns of text, in pieces, with the line of the file on which each row begins."""

import csv
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from workloads.traces.csv_header import Header
from workloads.traces.csv_piece import CsvPiece
from workloads.traces.opening import MAX_LINE_BYTES, LineBlock, line_blocks

_QUOTED_ROWS = 1 << 15
"""So many records that need Python's parser are handed over at once."""


def csv_pieces(path: Path, header: Header, columns: Mapping[str, str]) -> Iterator[CsvPiece]:
    """The rows below the header, with the columns whose names are the values of `columns`, by its keys."""
    places = {ours: place for ours, theirs in columns.items() if (place := header.place(theirs)) is not None}
    blocks = _below(header, line_blocks(path))
    for block in blocks:
        data = block.data.replace(b"\r\n", b"\n")
        if not data.isascii():
            # What is not UTF-8 becomes a mark that is no number, so that its own row is bad.
            data = data.decode(errors="replace").encode()
        if b"\r" in data or _quote_over_lines(data):
            yield from _parsed_by_python(chain([block], blocks), header, places, columns)
            return
        yield _parsed_by_arrow(block._replace(data=data), header, places, columns)


def _below(header: Header, blocks: Iterator[LineBlock]) -> Iterator[LineBlock]:
    for block in blocks:
        if block.first_line > header.line:
            yield block
            continue
        data, line = block.data, block.first_line
        while line <= header.line and data:
            data = data[(data.find(b"\n") + 1) or len(data):]
            line += 1
        if data:
            yield LineBlock(line, data, block.cut)


def _quote_over_lines(data: bytes) -> bool:
    """Whether some line has an odd number of quotes: a field that goes on in the next line."""
    if b'"' not in data:
        return False
    codes = np.frombuffer(data, np.uint8)
    begins = np.concatenate([[0], np.flatnonzero(codes == ord("\n"))])
    quotes = np.add.reduceat(codes == ord('"'), begins, dtype=np.int64)
    return bool(np.any(quotes % 2))


def _parsed_by_arrow(block: LineBlock, header: Header, places: Mapping[str, int],
                     names: Mapping[str, str]) -> CsvPiece:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    codes = np.frombuffer(block.data, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if block.cut:
        ends = np.append(ends, len(codes))
    filled = np.diff(ends, prepend=-1) > 1   # Arrow leaves out lines without a character
    line = block.first_line + np.flatnonzero(filled)
    faults: dict[int, str] = {}

    def wrong_width(row: Any) -> str:
        faults[int(line[row.number - 1])] = _width(row.actual_columns, row.expected_columns)
        return "skip"

    used = sorted({str(place) for place in places.values()})
    table = arrow_csv.read_csv(
        pa.BufferReader(block.data),
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(block.data) + 1,
                                           column_names=[str(i) for i in range(len(header.names))]),
        parse_options=arrow_csv.ParseOptions(delimiter=header.delimiter, invalid_row_handler=wrong_width),
        convert_options=arrow_csv.ConvertOptions(include_columns=used,
                                                 column_types={name: pa.string() for name in used}))
    if faults:
        line = line[~np.isin(line, list(faults))]
    cells = {ours: _one_chunk(table.column(str(place))) for ours, place in places.items()}
    last = block.first_line + len(ends) - 1 if block.cut else None
    return CsvPiece(line, cells, names, faults, last)


def _one_chunk(column: Any) -> Any:
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def _parsed_by_python(blocks: Iterator[LineBlock], header: Header, places: Mapping[str, int],
                      names: Mapping[str, str]) -> Iterator[CsvPiece]:
    """Slower, and right about quoted fields of several lines."""
    import pyarrow as pa

    csv.field_size_limit(MAX_LINE_BYTES)   # a column of prompts may hold longer texts than Python's default
    records = _records(blocks, header)
    more = True
    while more:
        line: list[int] = []
        rows: list[list[str]] = []
        faults: dict[int, str] = {}
        last = None
        more = False
        for begins, record, why, ended in records:
            last = ended
            if why:
                faults[begins] = why
            else:
                line.append(begins)
                rows.append(record)
            if len(rows) + len(faults) == _QUOTED_ROWS:
                more = True
                break
        cells = {ours: pa.array([row[place] for row in rows], pa.string()) for ours, place in places.items()}
        yield CsvPiece(np.array(line, dtype=np.int64), cells, names, faults, last)


def _records(blocks: Iterator[LineBlock], header: Header) -> Iterator[tuple[int, list[str], str, int | None]]:
    """The line where each record begins, its fields, why it is bad if it is, and the last line of a file
    that ends without a line end, once it was read."""
    first, cut = 0, False

    def lines() -> Iterator[str]:
        nonlocal first, cut
        for block in blocks:
            first, cut = first or block.first_line, block.cut
            parts = block.data.split(b"\n")
            if not cut:
                parts.pop()
            for part in parts:
                yield part.decode(errors="replace") + "\n"

    reader = csv.reader(lines(), delimiter=header.delimiter, strict=True)
    while True:
        began = reader.line_num
        try:
            record, why = next(reader), ""
        except StopIteration:
            return
        except csv.Error as error:
            record, why = [], f"no row of CSV: {error}"
        if not why and record and len(record) != len(header.names):
            why = _width(len(record), len(header.names))
        if record or why:
            yield first + began, record, why, first + reader.line_num - 1 if cut else None


def _width(found: int, expected: int) -> str:
    return f"{found} fields where the header names {expected}"
