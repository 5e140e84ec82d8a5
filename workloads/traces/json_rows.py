"""JSON lines decoded row by row, and what several JSON formats have in common."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from workloads.traces.formats import BadRows
from workloads.traces.opening import CUT_OFF, text_lines
from workloads.traces.options import TIME_UNIT_NS, TimeUnit

Row = TypeVar("Row")

MAX_IDS = 1 << 20
"""So many hash ids are handed over at once at most, but for those of a single row."""
_LATEST_NS = 2**63
_MOST_DIGITS = 30
"""Larger numbers are no times, and take long to compute with."""


def decoded_lines(path: Path, decode: Callable[[bytes], Row], bad: BadRows, *,
                  expected: str) -> Iterator[tuple[int, Row]]:
    """The number of each line that is not blank and what `decode` makes of it; a line that it does not take
    is reported to `bad`, with the keys that were `expected` where it is an object of other keys."""
    for line in text_lines(path):
        if not line.data or line.data.isspace():
            continue
        try:
            yield line.number, decode(line.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            bad.add(line.number, explained(line.data, error, expected) + (CUT_OFF if line.cut else ""))


def explained(line: bytes, error: Exception, expected: str) -> str:
    """Why a line is no row of its format."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        return f"this is not JSON: {fault}"
    if not isinstance(value, dict):
        return f"this is no JSON object with the keys {expected}"
    if "missing required field" in str(error):
        return f"{error}; found: {', '.join(map(str, value)) or 'no keys'}; expected: {expected}"
    return str(error)


def renamed(row: type[msgspec.Struct], columns: dict[str, str]) -> type[msgspec.Struct]:
    """The same struct read from keys of other names; `columns` has the file's names by ours."""
    if not columns:
        return row
    # Anew, as msgspec's rename does not touch inherited fields.
    names = {each.name: columns.get(each.name, each.encode_name) for each in msgspec.structs.fields(row)}
    return msgspec.defstruct(
        row.__name__, [(each.name, each.type, msgspec.field(name=names[each.name], **_default(each)))
                       for each in msgspec.structs.fields(row)], gc=False, kw_only=True)


def _default(each: Any) -> dict[str, Any]:
    if each.default_factory is not msgspec.NODEFAULT:
        return {"default_factory": each.default_factory}
    return {} if each.default is msgspec.NODEFAULT else {"default": each.default}


def time_in_ns(text: bytes, unit: TimeUnit) -> int:
    """A JSON number of `unit` as whole nanoseconds, exactly; ValueError for anything else."""
    try:
        number: int | Decimal = int(text) if text.lstrip(b"-").isdigit() else Decimal(text.decode())
        if isinstance(number, Decimal) and number.adjusted() > _MOST_DIGITS:
            raise ValueError(f"timestamp {text[:40].decode()} is not a time in {unit}")
        scaled = number * TIME_UNIT_NS[unit]
        whole = int(scaled) if isinstance(scaled, int) else int(scaled.to_integral_value())
    except (ArithmeticError, UnicodeDecodeError):
        raise ValueError(f"timestamp {text[:40].decode(errors='replace')} is not a number") from None
    if not -_LATEST_NS <= whole < _LATEST_NS:
        raise ValueError(f"timestamp {text[:40].decode()} is not a time in {unit}")
    return whole


def keys_of(ids: list[int]) -> npt.NDArray[np.int64]:
    """64-bit ids, signed or unsigned, as int64: different ids stay different. OverflowError beyond."""
    try:
        return np.array(ids, dtype=np.int64)
    except OverflowError:
        return np.array([value - 2**64 if value >= 2**63 else value for value in ids], dtype=np.int64)


def first_objects(head: bytes, most: int = 8) -> list[dict[str, Any]]:
    """The first lines of a file, as far as they are whole and hold JSON objects; empty otherwise."""
    found = []
    for line in head.split(b"\n")[:most]:
        try:
            value = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            break   # the head may end within a line
        if not isinstance(value, dict):
            return []
        found.append(value)
    return found
