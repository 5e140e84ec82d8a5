import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.budget import analytic_budget, decode_step_ns
from bench.prefill_curve import Deadlines, PrefillCurve, measure_prefill_curve
from engine_adapter.clock import VirtualClock
from engine_adapter.errors import EngineError, Hung, Rejected
from engine_adapter.knobs import Knobs
from engine_adapter.scripted import Fault, ScriptedEngine
from engine_adapter.seam import EngineInfo
from workloads.errors import EvidenceError

MS = 1_000_000
T = TypeVar("T")


def with_engine(
    work: Callable[[ScriptedEngine, EngineInfo, VirtualClock], Awaitable[T]], **scripted: object
) -> T:
    async def go() -> T:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, **scripted)  # type: ignore[arg-type]
        info = await engine.start()
        try:
            return await work(engine, info, clock)
        finally:
            await engine.stop()

    return asyncio.run(go())


def test_the_curve_is_the_lone_prefill_time_of_the_engine() -> None:
    """Measured lengths give the engine's own step time, with every repeat kept, for any order asked."""
    curve = with_engine(
        lambda e, i, c: measure_prefill_curve(e, i, [256, 64, 64], clock=c, salt="s", repeats=3),
        step_cost=lambda prefill, decodes, work: 10 * MS + prefill * MS,
    )
    assert curve.tokens == (64, 256)
    assert curve.times_ns == (74 * MS, 266 * MS)
    assert curve.samples_ns == ((74 * MS,) * 3, (266 * MS,) * 3)
    assert curve.fingerprint["knobs"] == Knobs(token_budget=2048, max_seqs=128).as_dict()


def test_the_curve_is_linear_between_and_goes_on_beyond() -> None:
    """Between lengths it is linear, beyond the last it keeps the last slope and says that it guesses."""
    curve = PrefillCurve((100, 200, 400), (10 * MS, 30 * MS, 90 * MS))
    lengths = [1, 100, 150, 300, 400, 500]
    assert (curve.prefill_ns(lengths) / MS).tolist() == [10, 10, 20, 60, 90, 120]
    assert curve.extrapolates(lengths).tolist() == [False] * 5 + [True]
    assert PrefillCurve((10,), (5 * MS,)).prefill_ns([20]).tolist() == [10 * MS]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=9), st.lists(st.integers(1, 5000), min_size=2))
def test_deadlines_never_fall_with_the_prompt(medians: list[int], lengths: list[int]) -> None:
    """Whatever the medians were, the pooled curve does not fall, and keeps their mean."""
    from bench.prefill_curve import non_decreasing

    times = non_decreasing(np.array(medians, dtype=np.float64))
    assert times == sorted(times)
    assert sum(times) == pytest.approx(sum(medians), abs=len(medians))
    curve = PrefillCurve(tuple(range(100, 100 * len(times) + 1, 100)), tuple(times))
    deadlines = Deadlines(curve, 300 * MS, 50 * MS).prefill_deadline_ns(sorted(lengths))
    assert (np.diff(deadlines) >= 0).all()


def test_a_curve_survives_json_and_has_a_name() -> None:
    """Round trip keeps everything; another curve has another digest; rubbish is refused in one line."""
    curve = PrefillCurve((1, 2), (3, 4), ((3, 3), (4, 4)), {"engine": "x"})
    deadlines = Deadlines(curve, 5, 6)
    assert Deadlines.from_dict(deadlines.as_dict()) == deadlines
    assert curve.digest() != PrefillCurve((1, 2), (3, 5)).digest()
    for rubbish in ({}, {"tokens": [2, 1], "times_ns": [1, 1]}, {"tokens": [1, 2], "times_ns": [2, 1]},
                    {"tokens": ["a"], "times_ns": [1]}):
        with pytest.raises(EvidenceError, match="no prefill curve"):
            PrefillCurve.from_dict(rubbish)
    with pytest.raises(EvidenceError, match="no deadlines"):
        Deadlines.from_dict({"curve": curve.as_dict()})


@pytest.mark.parametrize(("fault", "error"), [("crash", EngineError), ("hang", Hung)])
def test_an_engine_that_fails_during_the_probe_is_said(fault: str, error: type[EngineError]) -> None:
    """A crash or a hang raises, within the time limit; a prompt too long for the model is refused."""
    with pytest.raises(error):
        with_engine(
            lambda e, i, c: measure_prefill_curve(e, i, [64], clock=c, salt="s", timeout_s=3),
            faults=(Fault(fault, at_step=2),),  # type: ignore[arg-type]
        )
    with pytest.raises(Rejected):
        with_engine(lambda e, i, c: measure_prefill_curve(e, i, [9_000], clock=c, salt="s"))


def test_decode_steps_are_timed_on_a_steady_batch() -> None:
    """Prefill steps at the start are left out: the median is the pure decode step of that batch."""
    steps = with_engine(
        lambda e, i, c: decode_step_ns(e, i, [1, 8], clock=c, salt="s"),
        step_cost=lambda prefill, decodes, work: 10 * MS + prefill * MS + decodes * MS,
    )
    assert steps == {1: 11 * MS, 8: 18 * MS}


def test_the_analytic_budget_is_the_largest_tile_multiple_that_fits() -> None:
    """Linear prefill of 1 ms a token: 20 ms of decode and a 100 ms target leave room for 80 tokens."""
    curve = PrefillCurve((16, 512), (16 * MS, 512 * MS))
    assert analytic_budget(curve, 20 * MS, 100 * MS) == 80
    assert analytic_budget(curve, 20 * MS, 99 * MS) == 64
    assert analytic_budget(curve, 20 * MS, 30 * MS) is None
    assert analytic_budget(curve, 20 * MS, 10_000 * MS) == 512


def test_the_analytic_budget_heeds_attention_growth() -> None:
    """Where late tokens cost twice as much as early ones, the late ones decide."""
    curve = PrefillCurve((16, 256, 512), (16 * MS, 256 * MS, 768 * MS))
    assert analytic_budget(curve, 20 * MS, 100 * MS) == 32
    assert analytic_budget(curve, 20 * MS, 120 * MS) == 48
