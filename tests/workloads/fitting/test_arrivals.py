"""Arrival processes of recorded times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.fitting.own_trace import bursty_trace
from workloads.arrival_processes import AllAtOnce, Gamma, Poisson
from workloads.fitting.arrivals import fitted_arrivals
from workloads.slot_process import Slots
from workloads.traces.arrival_counts import ArrivalCounts


def test_a_bursty_trace_becomes_slots_with_its_unevenness() -> None:
    """Burstiness within slots and likeness of neighbours are found too, in a few hundred numbers."""
    process = fitted_arrivals(bursty_trace().arrival_ns)
    assert isinstance(process, Slots)
    assert len(process.factors) == 240
    assert 0.5 < process.burstiness < 2      # it is Poisson within its slots
    assert process.correlation > 0.3


def test_a_short_trace_becomes_gamma_gaps() -> None:
    """Below 160 s there are too few slots; their coefficient of variation remains."""
    rng = np.random.default_rng(0)
    gaps = rng.standard_gamma(0.25, 2000)
    arrivals = np.rint(np.cumsum(gaps) / gaps.sum() * 100e9)
    process = fitted_arrivals(arrivals.astype(np.int64))
    assert isinstance(process, Gamma)
    assert process.cv == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(("arrival_ns", "expected"), [
    ([], Poisson()), ([0], Poisson()), ([0, 10**9], Poisson()), ([0, 0, 0], AllAtOnce()),
    (np.arange(5000) * 10**8, Gamma(cv=0.001)),
    ([0, 1, 2, 3, 10**18], Gamma(cv=1.73))])   # 30 years
def test_small_and_even_traces_have_simple_processes(arrival_ns: object, expected: object) -> None:
    """Nothing to learn is Poisson, no time at all is all at once, equal gaps stay equal."""
    assert fitted_arrivals(np.array(arrival_ns, dtype=np.int64)) == expected


@settings(max_examples=15, deadline=None)
@given(st.lists(st.one_of(st.just(0), st.integers(0, 10**9), st.integers(0, 10**14)), max_size=60))
def test_any_times_have_a_process(gaps: list[int]) -> None:
    """Giant gaps, ties and bursts included; it can be drawn from."""
    arrivals = np.cumsum(np.array([0, *gaps], dtype=np.int64))
    process = fitted_arrivals(arrivals)
    drawn = process.arrivals_s(20, 1.0, lambda name: np.random.default_rng(0))
    assert np.all(np.diff(drawn) >= 0)
    assert len(process.model_dump_json()) < 20_000


def test_days_are_hours_times_slots() -> None:
    """Of two days the hours have rates of their own and the slots are few hundred numbers; the rate by day
    and by night comes back, and the dispersion with it."""
    rng = np.random.default_rng(4)
    slots = np.arange(48 * 360)
    rate = (1 + 0.8 * np.sin(slots / 8640 * 2 * np.pi)) * rng.gamma(3, 1 / 3, len(slots))
    counts = rng.poisson(5 * rate)
    seconds = np.sort(np.repeat(slots * 10.0, counts) + 10 * rng.random(int(counts.sum())))
    arrival_ns = np.rint((seconds - seconds[0]) * 1e9).astype(np.int64)
    process = fitted_arrivals(arrival_ns)
    assert isinstance(process, Slots)
    assert process.over is not None
    assert (len(process.factors), len(process.over.factors)) == (360, 48)
    drawn = process.arrivals_s(len(seconds), len(seconds) / seconds[-1], lambda name: np.random.default_rng(
        sum(map(ord, name))), even=True)
    hours, of_trace = (np.bincount((s // 3600).astype(int), minlength=49)[:47] for s in (drawn, seconds))
    assert np.corrcoef(hours, of_trace)[0, 1] > 0.98
    recorded, made = ArrivalCounts(), ArrivalCounts()
    recorded.add(arrival_ns)
    made.add(np.rint(drawn * 1e9).astype(np.int64))
    assert made.dispersion(10) == pytest.approx(recorded.dispersion(10), rel=0.1)


def test_ticks_are_spread() -> None:
    """Requests that a clock of 3 s bundles come as a Poisson process within their slots."""
    rng = np.random.default_rng(0)
    arrivals = np.sort(rng.integers(0, 1000, 10_000)) * 3 * 10**9
    process = fitted_arrivals(arrivals)
    assert isinstance(process, Slots)
    assert process.burstiness == 1


def test_a_model_of_a_poisson_process_has_minutes_like_one() -> None:
    """Slots of equal rate do not make every minute the same: dispersion is about 1 at 10 and at 60 s."""
    gaps = np.random.default_rng(3).exponential(0.4, 9000)
    process = fitted_arrivals(np.rint(np.cumsum(gaps) * 1e9).astype(np.int64))
    process = process.model_copy(update={"factors": (1.0,) * 359})
    found: dict[int, list[float]] = {10: [], 60: []}
    for seed in range(12):
        seconds = process.arrivals_s(9000, 2.5, lambda name, seed=seed: np.random.default_rng(
            [seed, len(name)]), even=True)
        counts = ArrivalCounts()
        counts.add(np.rint(seconds * 1e9).astype(np.int64))
        for width, values in found.items():
            values.append(counts.dispersion(width, whole=True) or 0.0)
    assert np.mean(found[10]) == pytest.approx(1.0, abs=0.15)
    assert np.mean(found[60]) == pytest.approx(1.0, abs=0.25)
