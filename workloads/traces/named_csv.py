"""CSV files whose header names the columns by our names, or by others that are common."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads.errors import UsageError
from workloads.traces.column_names import keys_by_field
from workloads.traces.csv_header import Header, first_line, listed, read_header
from workloads.traces.csv_piece import CsvPiece
from workloads.traces.csv_rows import csv_pieces
from workloads.traces.formats import BadRows
from workloads.traces.options import ReadOptions, TimeUnit
from workloads.traces.raw_rows import Int64, RawRows
from workloads.traces.tenant_numbers import TenantNumbers

_UNITS: dict[str, TimeUnit] = {"timestamp_s": "s", "timestamp_ms": "ms", "timestamp_us": "us",
                               "timestamp_ns": "ns"}
_TIMES = (*_UNITS, "timestamp", "arrived_at")
_LENGTHS = {
    "input_len": ("input_len", "input_length", "input_tokens", "prompt_tokens", "prompt_len",
                  "num_prefill_tokens", "ContextTokens", "Request tokens"),
    "output_len": ("output_len", "output_length", "output_tokens", "completion_tokens", "num_decode_tokens",
                   "GeneratedTokens", "Response tokens"),
}
_FURTHER = {"session": ("session", "session_id"), "turn": ("turn", "turn_index"),
            "think_time_s": ("think_time_s",), "tenant": ("tenant",), "prefix_group": ("prefix_group",),
            "prefix_len": ("prefix_len", "prefix_length")}


class _Time(NamedTuple):
    column: str
    unit: TimeUnit | None
    """None for dates and times."""


def sniff(head: bytes, path: Path) -> bool:
    """A first line of several fields that is no JSON; whether they are the right ones is said on reading."""
    header = first_line(head)
    return header is not None and len(header.names) > 1 and not head.lstrip().startswith((b"{", b"["))


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order; without a column of times the trace has none."""
    columns, header = _columns(path, options)
    time = _time(path, header, columns, options)
    numbers = TenantNumbers()
    for piece in csv_pieces(path, header, columns):
        time_ns = think_ns = turn = None
        if time is not None:
            time_ns = (piece.wall_ns(time.column) if time.unit is None
                       else piece.exact_ns(time.column, time.unit))
        if piece.has("turn"):
            turn = piece.whole("turn", blank="0")
        if piece.has("think_time_s"):
            think_ns = piece.exact_ns("think_time_s", "s", blank="0")
            piece.refuse(think_ns < 0, "think_time_s is below 0")
        input_len = piece.whole("input_len")
        group, prefix_len = _prefix(piece, input_len)
        tenant = piece.tenants("tenant", numbers, bad)
        yield from piece.judged(RawRows(
            line=piece.line, time_ns=time_ns, input_len=input_len, output_len=piece.whole("output_len"),
            session=piece.keys("session") if piece.has("session") else None, turn=turn, think_ns=think_ns,
            prefix_group=group, prefix_len=prefix_len, tenant=tenant, tenant_names=numbers.names), bad)


def _columns(path: Path, options: ReadOptions) -> tuple[dict[str, str], Header]:
    """The names that this file has for our columns."""
    known = {**dict.fromkeys(_TIMES), **_LENGTHS, **_FURTHER}
    columns = keys_by_field(options.columns, {ours: ours for ours in known}, "csv")
    header = read_header(path)
    for ours, names in {**{time: (time,) for time in _TIMES}, **_LENGTHS, **_FURTHER}.items():
        named_time = ours in _TIMES and any(time in columns for time in options.columns if time in _TIMES)
        found = [name for name in names if header.place(name) is not None]
        if len(found) > 1 and ours in _LENGTHS and ours not in columns:
            raise UsageError(f"{path}:{header.line}: {ours} in several columns, {listed(found)}; name the "
                             f"one to read, as in --column {ours}={found[0]}")
        if found and ours not in columns and not named_time:
            columns[ours] = found[0]
    twice = [theirs for theirs in columns.values() if header.count(theirs) > 1]
    if twice:
        raise UsageError(f"{path}:{header.line}: several columns are called {listed(twice)}: rename them")
    missing = [ours for ours in _LENGTHS if ours not in columns]
    absent = [theirs for theirs in columns.values() if header.place(theirs) is None]
    if missing or absent:
        raise UsageError(
            f"{path}:{header.line}: no column {listed(absent or missing)}; "
            f"found {listed(header.names)}; expected input_len, output_len and a time such as timestamp_s "
            "(other names: --column OURS=THEIRS)")
    if "prefix_group" in columns and "prefix_len" not in columns:
        raise UsageError(f"{path}:{header.line}: prefix_group needs a column prefix_len, the tokens that the "
                         f"group shares; found {listed(header.names)}")
    return columns, header


def unused_columns(path: Path, options: ReadOptions) -> tuple[str, ...]:
    """The columns of the file that are not read, which may hold what the user is looking for."""
    columns, header = _columns(path, options)
    used = {header.place(theirs) for theirs in columns.values()}
    return tuple(name for place, name in enumerate(header.names) if place not in used)


def _time(path: Path, header: Header, columns: Mapping[str, str], options: ReadOptions) -> _Time | None:
    times = [name for name in _TIMES if name in columns]
    where = f"{path}:{header.line}"
    if len(times) > 1:
        raise UsageError(f"{where}: times in several columns, {listed(columns[time] for time in times)}; "
                         f"name the one to read, as in --column {times[0]}={columns[times[0]]}")
    if not times:
        if options.window_s is not None:
            raise UsageError(f"{where}: no times, so no window of them; found {listed(header.names)}; "
                             f"expected one of {listed(_TIMES)}")
        return None
    time = times[0]
    if (unit := _UNITS.get(time)) is not None:
        if options.time_unit not in (None, unit):
            raise UsageError(f"{where}: {time} is in {unit}, not in {options.time_unit}; leave out "
                             f"--time-unit, or say --column timestamp={columns[time]}")
        return _Time(time, unit)
    if time == "arrived_at":   # Vidur's name, in seconds
        return _Time(time, options.time_unit or "s")
    if options.time_unit is None and _first_is_number(path, header, columns[time]):
        raise UsageError(f"{path}:{header.line + 1}: {columns[time]} holds plain numbers; say their unit, "
                         "as in --time-unit s")
    return _Time(time, options.time_unit)


def _first_is_number(path: Path, header: Header, name: str) -> bool:
    piece = next(csv_pieces(path, header, {"timestamp": name}), None)
    try:
        float(piece.first_text("timestamp") if piece is not None else "")
    except ValueError:
        return False
    return True


def _prefix(piece: CsvPiece, input_len: Int64) -> tuple[Int64 | None, Int64 | None]:
    if not (piece.has("prefix_group") and piece.has("prefix_len")):
        return None, None
    group, prefix_len = piece.keys("prefix_group"), piece.whole("prefix_len", blank="0")
    shared = group >= 0
    piece.refuse(shared & ((prefix_len < 1) | (prefix_len > np.maximum(input_len, 1))),
                 "prefix_len is not from 1 to the length of the prompt")
    return group, prefix_len
