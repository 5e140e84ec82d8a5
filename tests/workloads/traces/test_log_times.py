"""Times of logs."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.traces.log_times import LogTimes
from workloads.traces.options import TIME_UNIT_NS, TimeUnit

_MAY_4_2026_NS = 1_777_888_800_250_000_000   # 10:00:00.25 UTC


@pytest.mark.parametrize("written", [
    '"2026-05-04T10:00:00.250Z"', '"2026-05-04 10:00:00,25"', '"2026-05-04T12:00:00.2500000000+02:00"',
    '"2026-05-04T05:00:00.25-0500"', '"2026-05-04T10:00:00.250 UTC"', '"2026-05-04T12:00:00.25+02"',
    "1777888800.25", "1777888800250", "1777888800250000", "1777888800250000000", '"1777888800.25"',
    "1.77788880025e9", "1777888800250.0",
])
def test_one_moment_in_every_spelling(written: str) -> None:
    """Dates with and without zones, and Unix times of the unit that their size tells."""
    assert LogTimes(None).at_ns(written.encode()) == _MAY_4_2026_NS


@given(st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2262, 1, 1)), st.integers(0, 999),
       st.integers(-1439, 1439), st.sampled_from("T "))
def test_dates_are_kept_to_the_nanosecond(moment: datetime, rest_ns: int, offset_min: int,
                                          between: str) -> None:
    """No digit of a written time is lost, also before 1970."""
    zone = timezone(timedelta(minutes=offset_min))
    text = (f"{moment:%Y-%m-%d}{between}{moment:%H:%M:%S}.{moment.microsecond:06d}{rest_ns:03d}"
            f"{moment.replace(tzinfo=zone):%z}")
    since = moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    expected = (since // timedelta(microseconds=1)) * 1000 + rest_ns
    assert LogTimes(None).at_ns(json.dumps(text).encode()) == expected


@given(st.integers(-10**6, 9 * 10**9), st.sampled_from(["s", "ms", "us", "ns"]))
def test_a_unit_that_is_given_counts(number: int, unit: TimeUnit) -> None:
    """Whatever the size of the numbers would say."""
    assert LogTimes(unit).at_ns(str(number).encode()) == number * TIME_UNIT_NS[unit]


@pytest.mark.parametrize(("first", "second", "said"), [
    ("1777888800", "1777888801000", "numbers of ms, the times before as numbers of s"),
    ("1777888800", '"2026-05-04T10:00:01Z"', "dates with a zone, the times before as numbers of s"),
    ('"2026-05-04T10:00:00"', '"2026-05-04T10:00:01Z"', "mixed units"),
])
def test_mixed_units_are_refused(first: str, second: str, said: str) -> None:
    """Times of one log are all written alike, or some of them would mean something else."""
    times = LogTimes(None)
    times.at_ns(first.encode())
    with pytest.raises(ValueError, match=said):
        times.at_ns(second.encode())


@pytest.mark.parametrize("text", [
    '"yesterday"', '""', "true", "null", "[]", "{}", '"2026-13-04T10:00:00Z"', '"2026-05-04T10:00:60Z"',
    '"2026-05-04"', '"0001-01-01T00:00:00Z"', '"9999-01-01T00:00:00Z"', "1e999999", "1" * 30, '"NaN"',
    '"2026-05-04T10:00:00+99:00"', '"1777888800 s"', "1e99", '"' + "9" * 5000 + '"',
])
def test_what_is_no_time_is_refused(text: str) -> None:
    """Also dates that there are not, and those beyond 64 bits of nanoseconds."""
    with pytest.raises(ValueError, match=r"."):
        LogTimes(None).at_ns(text.encode())
