"""Columns of text as whole numbers, exact times and keys: converted together, the odd ones one by one."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from hashlib import blake2b
from typing import Any

import numpy as np

from workloads.traces.options import TIME_UNIT_NS, TimeUnit
from workloads.traces.raw_rows import Bool, Int64

_DIGITS_OF_NS: dict[TimeUnit, int] = {"s": 9, "ms": 6, "us": 3, "ns": 0}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", re.ASCII)
_WALL = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]{1,18}))? ?"
                   r"(Z|z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII)
_WALL_FAST = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
_MOST = 2**62

Converted = tuple[Int64, Bool]
"""A value for each cell, and whether there is none: what it says is not of the kind."""


def whole_numbers(cells: Any) -> Converted:
    """Whole numbers such as 12, ` 12 ` or 12.0; those beyond 2**62 are given as that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def plain(some: Any) -> Int64:
        found: Int64 = some.cast(pa.int64()).to_numpy()
        return found

    def of_pandas(some: Any) -> Int64:
        return plain(pc.replace_substring_regex(some, r"\.0*$", ""))

    return _converted(cells, [(r"^-?[0-9]{1,18}$", plain), (r"^-?[0-9]{1,18}\.0*$", of_pandas)], _whole)


def exact_ns(cells: Any, unit: TimeUnit) -> Converted:
    """Decimal numbers of `unit` as nanoseconds: no digit down to the nanosecond is lost, further ones are
    rounded half to even."""
    def fast(some: Any) -> Int64:
        import pyarrow as pa
        import pyarrow.compute as pc

        digits = _DIGITS_OF_NS[unit]
        rounded = pc.round(some.cast(pa.decimal128(38, 18)), digits, round_mode="half_to_even")
        scaled = rounded.cast(pa.decimal128(38, digits))
        # A decimal is stored as a 128-bit integer, here of nanoseconds; the lower half holds all of it.
        words = np.frombuffer(scaled.buffers()[1], "<i8").reshape(-1, 2)
        return words[scaled.offset:scaled.offset + len(scaled), 0].copy()

    # So few digits before the point that nanoseconds fit into 64 bits, which end at 9.22e18.
    digits = 18 - _DIGITS_OF_NS[unit]
    pattern = rf"^-?([0-9]{{1,{digits}}}|[1-8][0-9]{{{digits}}})(\.[0-9]{{1,18}})?$"
    return _converted(cells, [(pattern, fast)], lambda text: _decimal_ns(text, unit))


def wall_ns(cells: Any) -> Converted:
    """Dates and times, with or without an offset from UTC, as nanoseconds since 1970; without, it is UTC."""
    import pyarrow as pa

    def naive(some: Any) -> Int64:
        found: Int64 = some.cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy()
        return found

    def zoned(some: Any) -> Int64:
        found: Int64 = some.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()
        return found

    return _converted(cells, [(_WALL_FAST + "$", naive),
                              (_WALL_FAST + r"(Z|[+-][0-9]{2}:[0-9]{2})$", zoned)], _wall)


def keys(cells: Any) -> Int64:
    """A key for each cell, equal for equal ones: -1 for an empty cell and for -1, a number itself, and a hash
    of 62 bits for any other text."""
    encoded = cells.dictionary_encode()
    by_place = np.array([_key(text) for text in encoded.dictionary.to_pylist()], dtype=np.int64)
    return by_place[encoded.indices.to_numpy()] if len(by_place) else np.zeros(0, np.int64)


def _converted(cells: Any, ways: list[tuple[str, Callable[[Any], Int64]]],
               slow: Callable[[str], int]) -> Converted:
    """By the first way whose pattern a cell fits; whatever fits none, or fails, by `slow`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values, bad = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.bool_)
    rest = np.arange(len(cells))
    for pattern, fast in ways:
        if not len(rest):
            break
        some = cells if len(rest) == len(cells) else cells.take(pa.array(rest))
        fits = pc.match_substring_regex(some, pattern).to_numpy(zero_copy_only=False)
        rows = rest[fits]
        odd = _in_halves(some if fits.all() else some.filter(pa.array(fits)), rows, values, fast)
        rest = np.sort(np.concatenate([rest[~fits], *odd]))
    for row, text in zip(rest.tolist(), cells.take(pa.array(rest)).to_pylist() if len(rest) else (),
                         strict=True):
        try:
            values[row] = slow(text.strip())
        except ValueError:
            bad[row] = True
    return values, bad


def _in_halves(some: Any, rows: Int64, values: Int64, fast: Callable[[Any], Int64]) -> list[Int64]:
    """Writes the values of these rows; returns those that fail, such as the 30th of February."""
    import pyarrow as pa

    if not len(rows):
        return []
    try:
        values[rows] = fast(some)
        return []
    except pa.ArrowInvalid:   # it does not say which one
        if len(rows) <= 32:
            return [rows]
        half = len(rows) // 2
        return [*_in_halves(some[:half], rows[:half], values, fast),
                *_in_halves(some[half:], rows[half:], values, fast)]


def _number(text: str) -> Decimal:
    if len(text) > 60 or not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return Decimal(text)


def _whole(text: str) -> int:
    number = _number(text)
    if number != number.to_integral_value(context=_EXACT):
        raise ValueError(text)
    return int(max(min(number, Decimal(_MOST)), Decimal(-_MOST)))


def _decimal_ns(text: str, unit: TimeUnit) -> int:
    scaled = _EXACT.multiply(_number(text), Decimal(TIME_UNIT_NS[unit]))
    return _in_range(int(scaled.to_integral_value(context=_EXACT)))


def _wall(text: str) -> int:
    match = _WALL.fullmatch(text)
    if match is None:
        raise ValueError(text)
    date, time, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{date}T{time}{(zone or 'Z').upper()}")
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return _in_range(seconds * 10**9 + _decimal_ns(f"0.{fraction or 0}", "s"))


def _in_range(ns: int) -> int:
    if not -2**63 < ns < 2**63:
        raise ValueError(f"{ns} ns")
    return ns


def _key(text: str) -> int:
    if not text or text == "-1":
        return -1
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    # Above all numbers of 18 digits, so that texts and numbers never meet.
    return 1 << 62 | int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 2
