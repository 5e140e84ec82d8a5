"""Shaping keeps the pace of a trace: how often requests come, and how unevenly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.traces import Trace, read_trace, shaping

SECOND = 1_000_000_000
DATA = Path(__file__).resolve().parents[3] / "../shared/data"


def cv(trace: Trace) -> float:
    gaps = np.diff(trace.arrival_ns)
    return float(gaps.std() / gaps.mean())


def dispersion(trace: Trace, seconds: int) -> float:
    """Variance over mean of the numbers of requests in windows of so many seconds."""
    counts = np.bincount(trace.arrival_ns // (seconds * SECOND))[:-1]
    return float(counts.var() / counts.mean())


def plain(at_ns: Any) -> Trace:
    n = len(at_ns)
    return Trace(arrival_ns=at_ns, input_len=np.ones(n), output_len=np.ones(n), name="t")


def bursty(n: int) -> Trace:
    """Independent gaps whose coefficient of variation is 3."""
    at_ns = np.cumsum(np.random.default_rng(1).gamma(1 / 9, 9 * 0.02 * SECOND, size=n)).astype(np.int64)
    return plain(at_ns - at_ns[0])


def check_pace(taken: Trace, trace: Trace, keep: float) -> None:
    assert trace.rate_rps is not None
    assert taken.rate_rps == pytest.approx(trace.rate_rps * keep, rel=0.02)
    assert cv(taken) == pytest.approx(cv(trace), rel=0.1)


def test_an_overlay_multiplies_the_rate() -> None:
    """Four parts of a Poisson trace over one another come four times as often, and are Poisson still."""
    at_ns = np.cumsum(np.random.default_rng(0).exponential(0.1 * SECOND, size=40_000)).astype(np.int64)
    trace = plain(at_ns - at_ns[0])
    folded = shaping.overlay(trace, 4)
    assert folded.rate_rps == pytest.approx(40, rel=0.02)
    assert cv(folded) == pytest.approx(1, abs=0.03)
    assert dispersion(folded, 1) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("keep", [0.03, 0.1, 0.5])
def test_a_subsample_is_as_bursty(keep: float) -> None:
    """The gaps keep their coefficient of variation, where leaving out requests at random does not; the rate
    is the share of it that was asked for."""
    trace = bursty(200_000)
    taken = shaping.subsample(trace, keep, np.random.default_rng(2))
    assert len(taken) == round(200_000 * keep)
    assert cv(taken) == pytest.approx(cv(trace), rel=0.1)
    assert trace.rate_rps is not None
    assert taken.rate_rps == pytest.approx(trace.rate_rps * keep, rel=0.1)
    thinned = trace.take(np.flatnonzero(np.random.default_rng(2).random(len(trace)) < keep))
    assert cv(thinned) < 0.8 * cv(trace)


@pytest.mark.parametrize("keep", [0.1, 0.25, 0.5])
def test_a_subsample_of_rare_silences(keep: float) -> None:
    """Where a few long gaps make most of the time, a run of requests has one of them or none: still the rate
    is exact and the gaps vary as much."""
    gaps = np.random.default_rng(8).lognormal(0, 2.2, size=9000) * 0.1 * SECOND
    trace = plain(np.cumsum(gaps).astype(np.int64) - int(gaps[0]))
    for seed in range(3):
        taken = shaping.subsample(trace, keep, np.random.default_rng(seed))
        check_pace(taken, trace, keep)


@pytest.mark.parametrize("name", ["code", "conv"])
@pytest.mark.skipif(not (DATA / "azure2023").is_dir(), reason="the public traces are not here")
def test_a_subsample_of_a_public_trace(name: str) -> None:
    """Azure 2023: a tenth of the code requests is as bursty as all of them, which chance alone is not."""
    trace = read_trace(DATA / f"azure2023/AzureLLMInferenceTrace_{name}.csv", format="azure")
    for seed in range(3):
        check_pace(shaping.subsample(trace, 0.1, np.random.default_rng(seed)), trace, 0.1)


def test_a_subsample_keeps_the_day() -> None:
    """Where the first half of a trace is four times as busy as the second, so is its subsample."""
    gaps = np.random.default_rng(3).exponential(SECOND, size=100_000) / np.repeat([4, 1], [80_000, 20_000])
    trace = plain(np.cumsum(gaps).astype(np.int64) - int(gaps[0]))
    taken = shaping.subsample(trace, 0.05, np.random.default_rng(4))
    half_ns = trace.arrival_ns[-1] / 2
    assert (taken.arrival_ns < half_ns).mean() == pytest.approx(0.8, abs=0.05)


def test_spread_ticks_keep_the_dispersion_of_longer_windows() -> None:
    """Ticks of 3 s make windows of 1 s burstier than they were; spread, they are as before at 1 s and
    unchanged from 10 s on."""
    rng = np.random.default_rng(6)
    rate_rps = np.repeat(rng.gamma(2, 5, size=400), 30)   # another rate every 30 s
    counts = rng.poisson(rate_rps)
    at_ns = np.sort((np.repeat(np.arange(len(counts)), counts) + rng.random(counts.sum())) * SECOND)
    truth = plain(at_ns.astype(np.int64) - int(at_ns[0]))
    ticked = replace(truth, arrival_ns=truth.arrival_ns // (3 * SECOND) * 3 * SECOND)
    spread = shaping.spread_ticks(ticked, rng)
    assert dispersion(ticked, 1) > 2 * dispersion(truth, 1)
    assert dispersion(spread, 1) == pytest.approx(dispersion(truth, 1), rel=0.1)
    for seconds in (10, 60):
        assert dispersion(spread, seconds) == pytest.approx(dispersion(truth, seconds), rel=0.1)
