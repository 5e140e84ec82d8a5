"""The kinds of arrivals that a workload may name."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import UsageError, Workload, build_plan, load_workload, parse_stages
from workloads.arrival_processes import (
    AllAtOnce,
    ArrivalProcess,
    Constant,
    Gamma,
    OnOff,
    Poisson,
    Profile,
    Weibull,
    process_offsets_ns,
)
from workloads.slot_process import RepeatedRates, Slots

_SEEDS = st.integers(0, 2**32)
PROCESSES: dict[str, ArrivalProcess] = {
    "poisson": Poisson(), "gamma": Gamma(shape=0.4), "gamma by cv": Gamma(cv=0.5),
    "weibull": Weibull(shape=0.7), "constant": Constant(), "on-off": OnOff(on_s=4, off_s=12, low=0.1),
    "profile": Profile(slot_s=5, factors=(1, 0, 3, 0.5)),
    "slots": Slots(slot_s=10, factors=tuple(range(30)), correlation=0.5, persistence=0.9, burstiness=0.5),
    "slots over hours": Slots(slot_s=10, factors=(0, 1, 2), over=RepeatedRates(slot_s=60, factors=(1, 3))),
}
_ANY = st.sampled_from(list(PROCESSES))


def _streams(seed: int) -> Callable[[str], np.random.Generator]:
    return lambda name: np.random.default_rng([seed, zlib.crc32(name.encode())])


def _asking(**changes: Any) -> Workload:
    return Workload.model_validate(load_workload("chat").model_dump() | changes)


@given(_ANY, _SEEDS, st.integers(1, 300), st.integers(0, 300), st.floats(0.05, 500), st.booleans())
def test_fewer_arrivals_are_a_prefix_of_more(
    kind: str, seed: int, n: int, more: int, rate: float, even: bool
) -> None:
    """Times ascend, begin above 0 and do not depend on how many follow."""
    short, long = (process_offsets_ns(PROCESSES[kind], count, rate, _streams(seed), even=even)
                   for count in (n, n + more))
    np.testing.assert_array_equal(long[:n], short)
    assert (len(short), len(long)) == (n, n + more)
    assert short[0] > 0
    assert np.all(np.diff(long) >= 0)


@pytest.mark.parametrize("kind", PROCESSES)
@pytest.mark.parametrize("even", [False, True])
def test_the_mean_rate_is_the_one_asked_for(kind: str, even: bool) -> None:
    """Over many arrivals, whatever the process."""
    arrivals = PROCESSES[kind].arrivals_s(60_000, 12.0, _streams(3), even=even)
    off = 0.08 if kind == "on-off" else 0.02   # 300 bursts
    assert len(arrivals) / arrivals[-1] == pytest.approx(12, rel=off)


@given(st.sampled_from(["poisson", "gamma", "weibull", "constant"]), _SEEDS, st.floats(0.01, 1000))
def test_even_renewals_keep_the_rate_in_every_thousand(kind: str, seed: int, rate: float) -> None:
    """1,024 arrivals last exactly 1,024 mean gaps."""
    arrivals = PROCESSES[kind].arrivals_s(3 * 1024, rate, _streams(seed), even=True)
    np.testing.assert_allclose(arrivals[1023::1024] * rate, [1024, 2048, 3072])


@pytest.mark.parametrize(("process", "cv"), [
    (Poisson(), 1.0), (Gamma(cv=2.5), 2.5), (Gamma(shape=4), 0.5), (Constant(), 0.0),
    (Weibull(shape=0.5), math.sqrt(5)), (Weibull(shape=1), 1.0)])
def test_gaps_vary_as_their_distribution_says(process: ArrivalProcess, cv: float) -> None:
    """Weibull of shape 0.5 has a CV of the square root of 5, for one."""
    gaps = np.diff(process.arrivals_s(200_000, 3.0, _streams(1)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.04, abs=1e-9)


def test_bursts_keep_their_seconds_at_any_rate() -> None:
    """On/off states last as long at 5 as at 500 requests a second, and nothing comes between bursts."""
    process = OnOff(on_s=2, off_s=8)
    lengths = []
    for rate in (50.0, 500.0):
        arrivals = process.arrivals_s(int(rate * 4000), rate, _streams(5))
        pauses = np.diff(arrivals)[np.diff(arrivals) > 1]
        lengths.append((len(pauses), pauses.mean()))
    # Of exponential pauses of mean 8 those above a second have a mean of 9.
    assert lengths[0][1] == pytest.approx(9, rel=0.2)
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=0.05)


def test_a_profile_repeats_its_rates() -> None:
    """Each slot has its factor's share of the arrivals, cycle after cycle."""
    arrivals = Profile(slot_s=5, factors=(1, 0, 3)).arrivals_s(40_000, 10.0, _streams(1))
    slot = (arrivals // 5).astype(int) % 3
    np.testing.assert_allclose(np.bincount(slot, minlength=3) / 40_000, [0.25, 0, 0.75], atol=0.01)
    first_cycle = arrivals[arrivals < 15]
    assert len(first_cycle) == pytest.approx(150, abs=50)


def test_slots_use_every_factor_once_a_cycle() -> None:
    """With even draws each slot of a cycle has about its factor's arrivals, in another order each time."""
    slots = Slots(slot_s=10, factors=tuple(range(40)))
    arrivals = slots.arrivals_s(90_000, 100.0, _streams(2), even=True)
    counts = np.bincount((arrivals // 10).astype(int))[:80].reshape(2, 40)
    expected = np.arange(40) / 19.5 * 1000
    for cycle in counts:
        np.testing.assert_allclose(np.sort(cycle), expected, atol=130)
        assert cycle.sum() == pytest.approx(40_000, rel=0.005)
    assert not np.array_equal(np.argsort(counts[0]), np.argsort(counts[1]))


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_slots_are_as_alike_as_asked(correlation: float) -> None:
    """The rank correlation of a slot and the next."""
    slots = Slots(slot_s=10, factors=tuple(range(300)), correlation=correlation, persistence=correlation)
    found = []
    for seed in range(10):
        ranks = slots.ranks(np.random.default_rng(seed))
        found.append(np.corrcoef(ranks[:-1], ranks[1:])[0, 1])
    assert np.mean(found) == pytest.approx(correlation, abs=0.06)


def test_a_first_slot_begins_with_an_arrival() -> None:
    """So that windows counted from the first arrival are the slots."""
    arrivals = PROCESSES["slots"].arrivals_s(10, 50.0, _streams(0))
    assert arrivals[0] == 0


@given(_SEEDS, st.integers(1, 50))
def test_all_at_once_takes_no_rate(seed: int, n: int) -> None:
    """Every request is sent at 0, whatever rate is asked for, and seconds are refused."""
    workload = _asking(arrivals=AllAtOnce())
    plan = build_plan(workload, rate_rps=3, num_prompts=n, seed=seed)
    assert plan.intended_ns.tolist() == [0] * n
    assert math.isinf(plan.rate_rps)
    with pytest.raises(UsageError, match="numbers of requests"):
        build_plan(workload, rate_rps=3, duration_s=10, seed=seed)


def test_burstiness_of_one_is_the_poisson_process() -> None:
    """`kind: poisson`, gamma of shape 1 and a workload that says nothing are the same arrivals."""
    plain = build_plan(load_workload("chat"), rate_rps=3, num_prompts=50, seed=1)
    for process in (Poisson(), Gamma(shape=1)):
        plan = build_plan(_asking(arrivals=process), rate_rps=3, num_prompts=50, seed=1)
        assert plan.digest() == plain.digest()


def test_a_given_burstiness_replaces_the_arrivals() -> None:
    """The flag wins over the file."""
    plan = build_plan(_asking(arrivals=OnOff(on_s=1, off_s=50)), rate_rps=3, num_prompts=9, seed=1,
                      burstiness=math.inf)
    assert set(np.diff(plan.intended_ns).tolist()) <= {333333333, 333333334}


def test_stages_take_only_arrivals_that_scale_with_the_rate() -> None:
    """Renewals are placed into stages; processes with seconds of their own are refused with the reason."""
    stages = parse_stages("20s@4,20s@8")
    plan = build_plan(_asking(arrivals=Constant()), profile=stages, seed=0)
    assert np.bincount(plan.stage).tolist() == [79, 160]   # those at the edges belong to what follows
    for process in (OnOff(on_s=1, off_s=1), AllAtOnce(), PROCESSES["slots"]):
        with pytest.raises(UsageError, match="stages say themselves"):
            build_plan(_asking(arrivals=process), profile=stages, seed=0)


def test_too_low_a_rate_for_slots_is_refused() -> None:
    """In place of searching millennia for a request."""
    with pytest.raises(UsageError, match="raise the rate"):
        Slots(slot_s=1, factors=(1,)).arrivals_s(1, 1e-9, _streams(0))


@pytest.mark.parametrize(("values", "complaint"), [
    ({"kind": "gamma"}, "either shape or cv"), ({"kind": "gamma", "shape": 1, "cv": 1}, "either shape or cv"),
    ({"kind": "profile", "slot_s": 1, "factors": [0, 0]}, "at least one of the factors"),
    ({"kind": "slots", "slot_s": 0, "factors": [1]}, "greater than 0"),
    ({"kind": "slots", "slot_s": 1, "factors": [-1]}, "greater than or equal to 0"),
    ({"kind": "on-off", "on_s": 1}, "off_s"), ({"kind": "weibull", "shape": math.nan}, "shape"),
    ({"kind": "pareto"}, "poisson")])
def test_what_no_process_is_is_refused(values: dict[str, Any], complaint: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(ValidationError, match=complaint):
        TypeAdapter(ArrivalProcess).validate_python(values)


def test_burstiness_beside_arrivals_is_refused() -> None:
    """Two descriptions of one thing."""
    with pytest.raises(ValidationError, match="give either burstiness or arrivals"):
        _asking(arrivals=Poisson(), burstiness=0.5)


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_process_is_what_its_file_says(kind: str) -> None:
    """Written as plain values and read again it is the same, and has a description of one line."""
    process = PROCESSES[kind]
    assert TypeAdapter(ArrivalProcess).validate_python(process.model_dump(mode="json")) == process
    assert "\n" not in process.describe()
