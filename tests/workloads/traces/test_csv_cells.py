"""Columns of text as numbers, times and keys."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.traces.csv_cells import exact_ns, keys, wall_ns, whole_numbers
from workloads.traces.options import TIME_UNIT_NS


def cells(*texts: str) -> pa.Array:
    return pa.array(texts, pa.string())


def test_whole_numbers_and_what_is_none() -> None:
    """Blanks around a number and a point with zeros are allowed; everything else is marked, in its place."""
    texts = ["12", " 7 ", "5.0", "-3", "", "x", "1.5", "0x10", "1_0", "nan", "1e2", "+4", "9" * 30, "8."]
    values, bad = whole_numbers(cells(*texts))
    assert [None if b else v for v, b in zip(values.tolist(), bad.tolist(), strict=True)] == [
        12, 7, 5, -3, None, None, None, None, None, None, 100, 4, 2**62, 8]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2**63 // 10**9 - 1), st.integers(0, 10**9 - 1), st.booleans())))
def test_no_digit_of_a_time_is_lost(times: list[tuple[int, int, bool]]) -> None:
    """Seconds with nine digits after the point come back as their nanoseconds, negative ones too."""
    texts = [f"{'-' if negative else ''}{seconds}.{ns:09d}" for seconds, ns, negative in times]
    values, bad = exact_ns(cells(*texts), "s")
    assert not bad.any()
    assert values.tolist() == [(-1 if negative else 1) * (seconds * 10**9 + ns)
                               for seconds, ns, negative in times]


@settings(deadline=None, max_examples=60)
@given(st.decimals(min_value=-9 * 10**9, max_value=9 * 10**9, allow_nan=False),
       st.sampled_from(["s", "ms", "us", "ns"]))
def test_any_decimal_is_rounded_half_to_even(number: Decimal, unit: Literal["s", "ms", "us", "ns"]) -> None:
    """Numbers with more digits, or exponents, are rounded to the nearest nanosecond, halves to even."""
    values, bad = exact_ns(cells(format(number, "f")[:59]), unit)
    exact = Fraction(format(number, "f")[:59]) * TIME_UNIT_NS[unit]
    assert not bad[0]
    assert values[0] == round(exact)


@pytest.mark.parametrize("text", ["", "-", "inf", "nan", "1e30", "12ms", "2023-11-16", "9999999999999"])
def test_what_is_no_time_is_marked(text: str) -> None:
    """Text, infinity, and seconds beyond the year 2262 are no times; their neighbours are."""
    values, bad = exact_ns(cells("1.5", text, "2"), "s")
    assert bad.tolist() == [False, True, False]
    assert values[[0, 2]].tolist() == [1_500_000_000, 2_000_000_000]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1)), st.integers(0, 9),
                          st.integers(0, 10**9 - 1), st.sampled_from(["", "Z", "+00:00", "+05:30", "-0800"]),
                          st.sampled_from([" ", "T"])), max_size=20))
def test_dates_and_times_are_exact(rows: list[tuple[datetime, int, int, str, str]]) -> None:
    """Zero to nine digits of a second, with an offset or in UTC, in one column together."""
    texts, expected = [], []
    for moment, digits, ns, zone, between in rows:
        fraction = f"{ns:09d}"[:digits]
        texts.append(f"{moment:%Y-%m-%d}{between}{moment:%H:%M:%S}{'.' if digits else ''}{fraction}{zone}")
        hours = {"+05:30": 5.5, "-0800": -8}.get(zone, 0)
        seconds = (moment.replace(microsecond=0, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
                   - timedelta(hours=hours)) // timedelta(seconds=1)
        expected.append(seconds * 10**9 + int(fraction.ljust(9, "0")))
    values, bad = wall_ns(cells(*texts))
    assert not bad.any()
    assert values.tolist() == expected


def test_impossible_dates_are_marked_alone() -> None:
    """One 30th of February among many rows is found, as are plain numbers and years beyond 64 bits."""
    texts = ["2024-02-29 00:00:00"] * 500
    texts[321], texts[17], texts[400] = "2024-02-30 00:00:00", "12.5", "2500-01-01 00:00:00"
    values, bad = wall_ns(cells(*texts))
    assert np.flatnonzero(bad).tolist() == [17, 321, 400]
    assert set(values[~bad].tolist()) == {1_709_164_800 * 10**9}


def test_keys_are_equal_for_equal_cells_only() -> None:
    """Numbers are keys themselves, texts are hashed apart from them, an empty cell and -1 are none."""
    found = keys(cells("7", "chat-7", "", "-1", "chat-7", "7", "9" * 40)).tolist()
    assert found[:1] == [7]
    assert found[2:4] == [-1, -1]
    assert found[1] == found[4] >= 2**62
    assert found[5] == 7
    assert len({*found}) == 4
