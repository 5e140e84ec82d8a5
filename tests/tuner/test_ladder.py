"""The search for the highest rate that holds."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.ladder import Ladder, highest_level


def search(capacity: int, *, start: int = 0, floor: int = -20, ceiling: int = 60, max_runs: int = 30,
           downwards: bool = True) -> tuple[int | None, list[int]]:
    played: list[int] = []

    async def holds(level: int) -> bool:
        played.append(level)
        return level <= capacity

    found = asyncio.run(highest_level(holds, start=start, floor=floor, ceiling=ceiling, max_runs=max_runs,
                                      downwards=downwards))
    return found, played


@given(st.integers(-20, 60), st.integers(-20, 60))
def test_the_capacity_is_found_from_anywhere(capacity: int, start: int) -> None:
    """Whatever the start, the highest level that holds is found, no level is played twice, and few are."""
    found, played = search(capacity, start=start)
    assert found == capacity
    assert len(set(played)) == len(played) <= 14
    assert all(-20 <= level <= 60 for level in played)


def test_a_challenger_that_fails_at_the_start_costs_one_run() -> None:
    """It must hold where the best setting holds before its own capacity is sought."""
    assert search(-1, downwards=False) == (None, [0])


def test_nothing_below_the_floor_is_played() -> None:
    """A setting that holds nowhere is said to hold nowhere."""
    found, played = search(-100, floor=-5)
    assert found is None
    assert min(played) == -5


def test_the_end_of_time_keeps_what_was_found() -> None:
    """When a run cannot be played any more, the best level so far counts."""
    async def holds(level: int) -> bool | None:
        return None if level > 3 else True

    assert asyncio.run(highest_level(holds, start=0, floor=0, ceiling=60, max_runs=9, downwards=False)) == 3


def test_rates_have_one_spelling() -> None:
    """A level always names the same rate, to the digit."""
    ladder = Ladder(2.0, 1.1)
    assert ladder.rate_rps(0) == 2.0
    assert ladder.rate_rps(3) == pytest.approx(2.662)
    assert ladder.rate_rps(ladder.lowest_level(1.0)) >= 1.0 > ladder.rate_rps(ladder.lowest_level(1.0) - 1)
