"""The times of a log, written as dates or as numbers, in whole nanoseconds."""

import re
from datetime import datetime
from decimal import Decimal, InvalidOperation

import msgspec

from workloads.traces.json_rows import time_in_ns
from workloads.traces.options import TimeUnit

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d+))?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?",
                     re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d{1,2})?", re.ASCII)
_LATEST_NS = 2**63
_DIGITS: tuple[tuple[int, TimeUnit], ...] = ((10, "s"), (13, "ms"), (16, "us"), (19, "ns"))
"""Up to so many digits before the point a number is of this unit: Unix times from 2001 to 2286 have exactly
so many. Times from a log's own start are short, and so taken for seconds."""


class LogTimes:
    """Times of one log, all written alike: what the first is decides for all."""

    def __init__(self, unit: TimeUnit | None) -> None:
        """The unit of numbers, or None to tell it by their size."""
        self._unit = unit
        self._written: str | None = None

    def at_ns(self, text: bytes) -> int:
        """Of a JSON value: an ISO 8601 date and time (UTC where it has no zone; digits beyond nanoseconds are
        dropped), or a number. ValueError for anything else, and for a time written otherwise than the ones
        before, which would be of another unit."""
        value = str(msgspec.json.decode(text)) if text.startswith(b'"') else text.decode()
        moment = _MOMENT.fullmatch(value)
        if moment:
            self._written_as("dates with a zone" if moment[4] else "dates without a zone", value)
            return _moment_ns(moment)
        if not _NUMBER.fullmatch(value):
            raise ValueError(f"{value[:40]!r} is no time: neither an ISO 8601 date and time nor a number")
        unit = self._unit or _unit_of(value)
        self._written_as(f"numbers of {unit}", value)
        return time_in_ns(value.encode(), unit)

    def _written_as(self, how: str, value: str) -> None:
        if self._written is None:
            self._written = how
        elif how != self._written:
            raise ValueError(f"mixed units: {value[:40]} is written as {how}, the times before as "
                             f"{self._written} (for numbers give --time-unit)")


def _unit_of(number: str) -> TimeUnit:
    try:
        digits = Decimal(number).adjusted() + 1
    except InvalidOperation:
        digits = 100
    for most, unit in _DIGITS:
        if digits <= most:
            return unit
    raise ValueError(f"{number[:40]} is too large for a time")


def _moment_ns(moment: re.Match[str]) -> int:
    date, time, fraction, zone = moment.groups()
    offset = ""
    if zone and zone[0] in "+-":
        offset = zone if ":" in zone or len(zone) == 3 else f"{zone[:3]}:{zone[3:]}"
    seconds = datetime.fromisoformat(f"{date}T{time}{offset or '+00:00'}").timestamp()
    at_ns = int(seconds) * 10**9 + int((fraction or "0")[:9].ljust(9, "0"))
    if not -_LATEST_NS <= at_ns < _LATEST_NS:
        raise ValueError(f"{date} is beyond what 64 bits of nanoseconds hold")
    return at_ns
