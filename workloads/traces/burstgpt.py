"""BurstGPT, releases 1 to 3, read by the names of its columns: the third has two more."""

from collections.abc import Iterator
from pathlib import Path

from workloads.traces.column_names import keys_by_field
from workloads.traces.csv_header import first_line, required_header
from workloads.traces.csv_rows import csv_pieces
from workloads.traces.formats import BadRows
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import RawRows
from workloads.traces.tenant_numbers import TenantNumbers

_NEEDED = {"timestamp": "Timestamp", "input_len": "Request tokens", "output_len": "Response tokens"}
_FURTHER = {"tenant": "Log Type", "session": "Session ID"}


def sniff(head: bytes, path: Path) -> bool:
    """A header with the names of times and lengths."""
    header = first_line(head)
    return header is not None and set(_NEEDED.values()) <= set(header.names)


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order; those without an answer are failed ones."""
    known = {**_NEEDED, **_FURTHER}
    named = keys_by_field(options.columns, {ours: ours for ours in known}, "burstgpt")
    columns = {**known, **named}
    header = required_header(path, {ours: columns[ours] for ours in {**_NEEDED, **named}})
    numbers = TenantNumbers()
    for piece in csv_pieces(path, header, columns):
        output_len = piece.whole("output_len")
        raw = RawRows(
            line=piece.line, time_ns=piece.exact_ns("timestamp", options.time_unit or "s"),
            input_len=piece.whole("input_len"), output_len=output_len, failed=output_len == 0,
            tenant=piece.tenants("tenant", numbers, bad),
            session=piece.keys("session") if piece.has("session") else None, tenant_names=numbers.names)
        yield from piece.judged(raw, bad)
