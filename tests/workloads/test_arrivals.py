import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import UsageError, arrival_offsets_ns

_SEEDS = st.integers(0, 2**32)
_RATES = st.floats(1e-3, 1e6)
_BURSTINESS = st.one_of(st.floats(0.05, 50), st.just(math.inf))


def _offsets(n: int, rate: float, burstiness: float, seed: int) -> np.ndarray:
    return arrival_offsets_ns(n, rate, burstiness, np.random.default_rng(seed))


@given(st.integers(1, 300), _RATES, _BURSTINESS, _SEEDS)
def test_arrivals_start_after_zero_and_never_go_back(
    n: int, rate: float, burstiness: float, seed: int
) -> None:
    """At a finite rate offsets are integers above 0 in time order."""
    offsets = _offsets(n, rate, burstiness, seed)
    assert offsets.dtype == np.int64
    assert offsets.shape == (n,)
    assert offsets[0] > 0
    assert np.all(np.diff(offsets) >= 0)


@given(st.integers(1, 100), st.integers(0, 100), _RATES, _BURSTINESS, _SEEDS)
def test_fewer_arrivals_are_a_prefix_of_more(
    n: int, more: int, rate: float, burstiness: float, seed: int
) -> None:
    """The same seed gives the same first arrivals however many follow."""
    np.testing.assert_array_equal(
        _offsets(n + more, rate, burstiness, seed)[:n], _offsets(n, rate, burstiness, seed))


@given(st.integers(1, 100), st.floats(0.01, 1000), st.floats(0.01, 100), _BURSTINESS, _SEEDS)
def test_another_rate_stretches_the_same_pattern(
    n: int, rate: float, factor: float, burstiness: float, seed: int
) -> None:
    """Offsets scale with 1 / rate, to the nanosecond of rounding."""
    slow, fast = _offsets(n, rate, burstiness, seed), _offsets(n, rate * factor, burstiness, seed)
    np.testing.assert_allclose(fast * factor, slow, rtol=1e-9, atol=1 + factor)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_spread_asked_for(burstiness: float) -> None:
    """Mean gap is 1 / rate, coefficient of variation 1 / sqrt(burstiness)."""
    n = 100_000
    gaps = np.diff(_offsets(n, 50.0, burstiness, 11), prepend=0)
    cv = 1 / math.sqrt(burstiness)
    assert gaps.mean() == pytest.approx(1e9 / 50, rel=5 * cv / math.sqrt(n))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_burstiness_one_is_a_poisson_process() -> None:
    """Counts per second have variance equal to their mean."""
    offsets = _offsets(100_000, 20.0, 1.0, 5)
    counts = np.bincount((offsets // 10**9).astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.1)


def test_infinite_burstiness_is_a_constant_gap() -> None:
    """One arrival every 1 / rate, the first after one gap; exact for long plans too."""
    offsets = _offsets(10_000, 8.0, math.inf, 0)
    np.testing.assert_array_equal(offsets, 125_000_000 * np.arange(1, 10_001))


def test_an_infinite_rate_sends_everything_at_once() -> None:
    """All offsets are 0."""
    np.testing.assert_array_equal(_offsets(5, math.inf, 0.5, 0), np.zeros(5))


@pytest.mark.parametrize(("n", "rate", "burstiness", "complaint"), [
    (0, 1.0, 1.0, "at least 1 request"),
    (1, 0.0, 1.0, "request rate must be above 0"),
    (1, -2.0, 1.0, "request rate must be above 0"),
    (1, math.nan, 1.0, "request rate must be above 0"),
    (1, 1.0, 0.0, "burstiness must be above 0"),
    (1, 1.0, math.nan, "burstiness must be above 0"),
    (1, 1e-12, 1.0, "after a century"),
    (1, 5e-324, math.inf, "after a century"),
])
def test_impossible_arrivals_are_refused(n: int, rate: float, burstiness: float, complaint: str) -> None:
    """What cannot be sent is the user's error, in one line."""
    with pytest.raises(UsageError, match=complaint):
        _offsets(n, rate, burstiness, 0)
