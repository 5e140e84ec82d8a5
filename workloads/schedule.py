"""How many requests a run has and when they come: so many, or all within so much time, after a warm-up."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from workloads.arrivals import whole_ns
from workloads.errors import UsageError
from workloads.stages import RateProfile

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int16 = npt.NDArray[np.int16]
Arrivals = TypeVar("Arrivals", Int64, Float64)

MAX_REQUESTS = 10_000_000
"""A larger plan is taken for a mistake in the rate or the duration."""


def staged(
    profile: RateProfile,
    unit_arrivals: Callable[[int], Float64],
    *,
    num_prompts: int | None,
    num_warmups: int | None,
    warmup_s: float | None,
) -> tuple[Int64, Int16, int]:
    """Arrival offsets in ns, the stage of each, and how many of them are warm-up."""
    rate = profile.first_rps
    before = float(unit_arrivals(num_warmups)[-1]) if num_warmups else rate * (warmup_s or 0)
    if num_prompts is None:
        arrivals = arrivals_before(before + profile.expected(), unit_arrivals)
        warmups = num_warmups or int(np.searchsorted(arrivals, before))
    else:
        warmups = num_warmups or len(arrivals_before(before, unit_arrivals))
        arrivals = unit_arrivals(warmups + num_prompts)
    seconds, stage = profile.place(arrivals[warmups:] - before)
    if np.isinf(seconds[-1:]).any():
        raise UsageError(f"the stages end with a pause after {np.isfinite(seconds).sum()} of {num_prompts} "
                         f"requests: ask for fewer, or end with a rate above 0")
    with np.errstate(over="ignore"):   # refused by whole_ns
        offsets_ns = np.concatenate([arrivals[:warmups] / rate, seconds + before / rate]) * 1e9
    return whole_ns(offsets_ns), np.concatenate([np.zeros(warmups, np.int16), stage]), warmups


def scheduled(
    first_arrivals: Callable[[int], Int64],
    *,
    num_prompts: int | None,
    duration_s: float | None,
    num_warmups: int | None,
    warmup_s: float | None,
) -> tuple[Int64, int]:
    """Arrival offsets of the whole plan in ns, and how many of them are warm-up."""
    if warmup_s:
        measured_from_ns = round(warmup_s * 1e9)
        warmups = len(arrivals_before(measured_from_ns, first_arrivals))
    else:
        warmups = num_warmups or 0
        measured_from_ns = int(first_arrivals(warmups)[-1]) if warmups else 0
    if num_prompts is not None:
        return first_arrivals(warmups + num_prompts), warmups
    assert duration_s is not None   # by _check
    return arrivals_before(measured_from_ns + round(duration_s * 1e9), first_arrivals), warmups


def arrivals_before(end: float, first_arrivals: Callable[[int], Arrivals]) -> Arrivals:
    n = 64
    while (arrivals := first_arrivals(n))[-1] < end:
        n *= 2   # drawing again gives the same arrivals and more of them
        if n > MAX_REQUESTS:
            raise UsageError(f"more than {MAX_REQUESTS // 2} requests would fall into the run; "
                             f"lower the rate or the duration")
    return arrivals[: np.searchsorted(arrivals, end)]
