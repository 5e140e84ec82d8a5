"""From a workload to a plan: drawn from one seed, before the run."""

import math
import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from workloads.arrivals import arrival_offsets_ns, unit_rate_arrivals, whole_ns
from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.stages import RateProfile
from workloads.workload import Workload

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int16 = npt.NDArray[np.int16]
Arrivals = TypeVar("Arrivals", Int64, Float64)

MAX_REQUESTS = 10_000_000
"""A larger plan is taken for a mistake in the rate or the duration."""


def build_plan(
    workload: Workload,
    *,
    rate_rps: float | None = None,
    profile: RateProfile | None = None,
    seed: int,
    num_prompts: int | None = None,
    duration_s: float | None = None,
    num_warmups: int | None = None,
    warmup_s: float | None = None,
    burstiness: float | None = None,
) -> Plan:
    """The requests of one run: warm-up first, then the measured part.

    The load is `rate_rps` throughout, or what `profile` says after the warm-up, which then runs at
    the rate that the profile begins with; exactly one is given. The measured part is `num_prompts`
    requests, or all that arrive within `duration_s` after the warm-up; exactly one is given. With
    a profile both may be left out: it has a length of its own. Of a profile `num_prompts` takes the
    first requests, and its final rate goes on while they are too few. The warm-up is the first
    `num_warmups` requests, or all within the first `warmup_s`; at most one is given, none is no
    warm-up. A counted warm-up ends with its last arrival. `burstiness` replaces the workload's.

    Every column has its own random stream, and every row takes one number of each: with the
    same seed a longer plan starts with the shorter one, and another rate only stretches time.
    UsageError for what cannot be planned.
    """
    _check(rate_rps, profile, seed, num_prompts=num_prompts, duration_s=duration_s,
           num_warmups=num_warmups, warmup_s=warmup_s)
    shape = workload.burstiness if burstiness is None else burstiness
    if profile is not None:
        intended_ns, stage, warmups = _staged(
            profile, lambda n: unit_rate_arrivals(n, shape, _stream(seed, "arrivals")),
            num_prompts=num_prompts, num_warmups=num_warmups, warmup_s=warmup_s)
        rate_rps = profile.mean_rps
    else:
        assert rate_rps is not None   # by _check
        rate = rate_rps
        intended_ns, warmups = _schedule(
            lambda n: arrival_offsets_ns(n, rate, shape, _stream(seed, "arrivals")),
            num_prompts=num_prompts, duration_s=duration_s, num_warmups=num_warmups, warmup_s=warmup_s)
        stage = np.zeros(len(intended_ns), dtype=np.int16)
    n = len(intended_ns)
    if n <= warmups:
        raise UsageError(f"no request falls into the measured part at {rate_rps:g} requests/s; "
                         f"raise the rate or the duration")
    component, input_len, output_len = _requests(workload, n, seed)
    return Plan(
        intended_ns=intended_ns,
        input_len=input_len,
        output_len=output_len,
        component=component,
        prefix_group=np.full(n, -1, dtype=np.int32),
        session=np.full(n, -1, dtype=np.int32),
        turn=np.zeros(n, dtype=np.int32),
        num_warmups=warmups,
        seed=seed,
        rate_rps=rate_rps,
        component_names=tuple(c.name for c in workload.components),
        stages=() if profile is None else profile.stages,
        stage=stage,
    )


def _check(
    rate_rps: float | None,
    profile: RateProfile | None,
    seed: int,
    *,
    num_prompts: int | None,
    duration_s: float | None,
    num_warmups: int | None,
    warmup_s: float | None,
) -> None:
    if seed < 0:
        raise UsageError(f"the seed must be 0 or more; got {seed}")
    if (rate_rps is None) == (profile is None):
        raise UsageError("give the load as either one request rate or stages")
    if profile is not None and duration_s is not None:
        raise UsageError("stages have durations of their own: leave out the duration")
    if profile is None and (num_prompts is None) == (duration_s is None):
        raise UsageError("give either a number of requests or a duration for the measured part")
    if num_warmups is not None and warmup_s is not None:
        raise UsageError("give the warm-up either as a number of requests or as seconds")
    if num_prompts is not None and num_prompts < 1:
        raise UsageError(f"the number of requests must be at least 1; got {num_prompts}")
    if num_warmups is not None and num_warmups < 0:
        raise UsageError(f"the number of warm-up requests must be 0 or more; got {num_warmups}")
    if duration_s is not None and not 0 < duration_s < math.inf:
        raise UsageError(f"the duration must be above 0 and finite, in seconds; got {duration_s:g}")
    if warmup_s is not None and not 0 <= warmup_s < math.inf:
        raise UsageError(f"the warm-up must be 0 or more and finite, in seconds; got {warmup_s:g}")
    if (num_prompts or 0) + (num_warmups or 0) > MAX_REQUESTS:
        raise UsageError(f"a plan may hold at most {MAX_REQUESTS} requests; lower the number of requests")
    if rate_rps == math.inf and (duration_s is not None or warmup_s):
        raise UsageError("at an infinite request rate every request is sent at the start: give the "
                         "measured part and the warm-up as numbers of requests, not as seconds")


def _staged(
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
        arrivals = _arrivals_before(before + profile.expected(), unit_arrivals)
        warmups = num_warmups or int(np.searchsorted(arrivals, before))
    else:
        warmups = num_warmups or len(_arrivals_before(before, unit_arrivals))
        arrivals = unit_arrivals(warmups + num_prompts)
    seconds, stage = profile.place(arrivals[warmups:] - before)
    if np.isinf(seconds[-1:]).any():
        raise UsageError(f"the stages end with a pause after {np.isfinite(seconds).sum()} of {num_prompts} "
                         f"requests: ask for fewer, or end with a rate above 0")
    with np.errstate(over="ignore"):   # refused by whole_ns
        offsets_ns = np.concatenate([arrivals[:warmups] / rate, seconds + before / rate]) * 1e9
    return whole_ns(offsets_ns), np.concatenate([np.zeros(warmups, np.int16), stage]), warmups


def _schedule(
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
        warmups = len(_arrivals_before(measured_from_ns, first_arrivals))
    else:
        warmups = num_warmups or 0
        measured_from_ns = int(first_arrivals(warmups)[-1]) if warmups else 0
    if num_prompts is not None:
        return first_arrivals(warmups + num_prompts), warmups
    assert duration_s is not None   # by _check
    return _arrivals_before(measured_from_ns + round(duration_s * 1e9), first_arrivals), warmups


def _arrivals_before(end: float, first_arrivals: Callable[[int], Arrivals]) -> Arrivals:
    n = 64
    while (arrivals := first_arrivals(n))[-1] < end:
        n *= 2   # drawing again gives the same arrivals and more of them
        if n > MAX_REQUESTS:
            raise UsageError(f"more than {MAX_REQUESTS // 2} requests would fall into the run; "
                             f"lower the rate or the duration")
    return arrivals[: np.searchsorted(arrivals, end)]


def _requests(workload: Workload, n: int, seed: int) -> tuple[Int16, Int32, Int32]:
    """Component, prompt length and answer length of rows 0 .. n-1."""
    edges = np.cumsum(workload.shares)[:-1]   # the last edge is 1, give or take rounding
    component = np.searchsorted(edges, _stream(seed, "component").random(n), side="right").astype(np.int16)
    input_at = _stream(seed, "input").random(n)
    output_at = _stream(seed, "output").random(n)
    input_len, output_len = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    for index, kind in enumerate(workload.components):
        rows = component == index
        input_len[rows] = kind.input.quantile(input_at[rows])
        output_len[rows] = kind.output.quantile(output_at[rows])
    return component, input_len, output_len


def _stream(seed: int, name: str) -> np.random.Generator:
    """An independent generator for each name, the same for the same seed and name."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()),)))
