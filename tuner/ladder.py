"""Find the highest rate that holds, in few runs, on a ladder of rates."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rates in a geometric series: level 0 is `base_rps`, each level `step` times the one below.

    Settings are compared at equal levels, so that the same plan, stretched the same way, meets them.
    """

    base_rps: float
    step: float

    def rate_rps(self, level: int) -> float:
        """Requests per second at `level`, rounded to five digits so that a rate has one spelling."""
        return float(f"{self.base_rps * self.step**level:.5g}")

    def lowest_level(self, least_rps: float) -> int:
        """The lowest level whose rate is at least `least_rps`."""
        return math.ceil(math.log(least_rps / self.base_rps) / math.log(self.step))


async def highest_level(
    holds: Callable[[int], Awaitable[bool | None]],
    *,
    start: int,
    floor: int,
    ceiling: int,
    max_runs: int,
    downwards: bool,
) -> int | None:
    """The highest level found to hold, or None when none was.

    `holds(level)` plays one run; it returns None when the search must end at once (time is up,
    the engine died). From `start` (floor <= start <= ceiling) the search doubles its stride upwards
    while levels hold. Where the start itself does not hold, it ends, or if `downwards` it goes to
    the floor, since most settings that fail there hold nowhere. The bracket between the highest
    level that held and the lowest that did not is then halved.
    """
    below = floor - 1  # no level that holds is known
    holding, failing, level, stride = below, ceiling + 1, start, 1
    for _ in range(max_runs):
        verdict = await holds(level)
        if verdict is None:
            break
        if verdict:
            holding = level
        else:
            failing = level
        if failing == holding + 1 or (holding == below and not downwards):
            break
        if holding == below:
            level = floor
        elif failing > ceiling:
            level, stride = min(holding + stride, ceiling), stride * 2
        else:
            level = (holding + failing) // 2
    return None if holding == below else holding
