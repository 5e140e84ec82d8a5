"""Places for requests in flight: a closed loop, and a cap on an open one."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import Outcome, Run, play, summarise
from bench.slots import Slots
from engine_adapter.clock import VirtualClock
from engine_adapter.knobs import Knobs
from engine_adapter.scripted import LinearStep, ScriptedEngine
from workloads import Workload, build_plan

STEP = LinearStep(fixed_ns=10_000_000, prefill_token_ns=0, decode_ns=0, attention_ns=0)
"""Ten milliseconds a step whatever it carries: an answer of n tokens takes n steps."""


def played(*, output_len: int = 5, **asked: Any) -> Run:
    how = {name: asked.pop(name) for name in ("max_concurrency", "dispatch_for_s") if name in asked}

    async def go() -> Run:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, knobs=Knobs(512, 64), step_cost=STEP)
        info = await engine.start()
        plan = build_plan(Workload.from_lengths(8, output_len), seed=3, **asked)
        run = await play(plan, engine, info, clock=clock, salt="s", **how)
        await engine.stop()
        return run

    return asyncio.run(go())


@settings(max_examples=15)
@given(st.integers(1, 9), st.integers(1, 25))
def test_a_closed_loop_keeps_exactly_its_concurrency(cap: int, requests: int) -> None:
    """As many as the cap are in flight, no more and, while requests are left, no fewer; all are answered."""
    run = played(rate_rps=math.inf, num_prompts=requests, max_concurrency=cap)
    assert run.peak_in_flight() == min(cap, requests)
    assert run.ok.sum() == requests
    assert run.validity.valid


def test_a_place_is_filled_when_its_answer_ends() -> None:
    """In a closed loop a request is meant for, and due at, the moment its place became free: it waits for
    nobody, so its latency from the intended time is that from its sending."""
    run = played(rate_rps=math.inf, num_prompts=12, max_concurrency=3)
    assert (run.due_ns == run.intended_ns).all()
    later = run.intended_ns > run.start_ns
    assert later.sum() == 9
    assert set(run.intended_ns[later]) <= set(run.end_ns.tolist())
    figures = summarise(run).as_dict()
    assert figures["max_concurrency"] == 3
    assert figures["request_rate"] == "inf"
    assert figures["mean_ttft_from_intended_ms"] == pytest.approx(figures["mean_ttft_ms"], abs=1)


def test_answers_of_other_lengths_leave_no_place_empty() -> None:
    """No rounds: a short answer's place is taken at once, not when the longest of its round ends."""
    run = played(rate_rps=math.inf, num_prompts=40, max_concurrency=4, output_len=20)
    busy = int((run.end_ns - run.sent_ns).sum())
    span = int(run.end_ns.max() - run.start_ns)
    assert busy > 0.9 * 4 * span


def test_who_waits_behind_a_cap_waits_from_when_he_came() -> None:
    """At a finite rate the intended time stays the plan's: the wait is in the latency from there, not in that
    from the sending; the client is not blamed for it."""
    run = played(rate_rps=100.0, num_prompts=30, max_concurrency=1, burstiness=math.inf)
    figures = summarise(run).as_dict()
    assert figures["mean_ttft_from_intended_ms"] > 5 * figures["mean_ttft_ms"]
    waits = (run.sent_ns - run.intended_ns).tolist()
    assert waits == sorted(waits)
    assert (run.sent_ns - run.due_ns).max() < 1e6
    assert not any("sent late" in why for why in run.validity.reasons)
    assert run.validity.valid
    assert any("the cap of 1 concurrent requests held 29 back" in note for note in run.validity.notes)


def test_a_cap_that_nobody_reaches_changes_nothing() -> None:
    """The same run as without it."""
    capped = played(rate_rps=5.0, num_prompts=20, max_concurrency=64)
    free = played(rate_rps=5.0, num_prompts=20)
    assert (capped.sent_ns == free.sent_ns).all()
    assert (capped.end_ns == free.end_ns).all()
    assert capped.validity.valid


def test_nothing_is_sent_after_the_end_of_the_run() -> None:
    """A run of a duration stops sending then, however many a cap still holds back; those are counted."""
    run = played(rate_rps=100.0, duration_s=0.5, max_concurrency=1, dispatch_for_s=0.5)
    unsent = run.outcome == Outcome.NOT_SENT
    assert 0 < unsent.sum() < len(run)
    assert (run.sent_ns[~unsent] <= run.start_ns + 500_000_000).all()
    assert run.ok.sum() == (~unsent).sum(), "what was sent is waited for"
    assert summarise(run).as_dict()["arrivals_not_sent"] == unsent.sum()
    assert any("never sent: the cap of 1" in why for why in run.validity.reasons)


def test_one_place_is_handed_on_in_order() -> None:
    """Whoever takes a place learns when it became free; one waiter is woken by one place."""
    async def go() -> None:
        slots = Slots(2, free_since_ns=10)
        assert [await slots.take(), await slots.take()] == [10, 10]
        waiting = asyncio.create_task(slots.take())
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.free(25)
        slots.free(31)
        assert await waiting == 25
        assert await slots.take() == 31

    asyncio.run(go())


def test_rows_of_a_share_keep_their_numbers() -> None:
    """A worker plays some rows of the plan: only these are sent, at the plan's own times."""
    async def go() -> Run:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, knobs=Knobs(512, 64), step_cost=STEP)
        info = await engine.start()
        plan = build_plan(Workload.from_lengths(8, 2), rate_rps=10, num_prompts=9, seed=3)

        async def begin() -> int:
            return 5_000_000_000 + clock.now_ns()

        return await play(plan, engine, info, clock=clock, salt="s", rows=np.arange(1, 9, 3), start=begin)

    run = asyncio.run(go())
    assert np.flatnonzero(run.outcome == Outcome.OK).tolist() == [1, 4, 7]
    assert (run.sent_ns[[1, 4, 7]] >= run.intended_ns[[1, 4, 7]]).all()
