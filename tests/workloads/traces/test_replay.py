"""A replayed trace: its rows in order at its times, and what another rate or another seed makes of it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals import arrival_offsets_ns
from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.prompt_parts import PromptBlocks
from workloads.shared_blocks import found_again
from workloads.traces.replay import recorded_rate, trace_plan, with_arrivals
from workloads.traces.shaping import merge
from workloads.traces.trace import Trace

SECOND = 1_000_000_000


@st.composite
def traces(draw: Any) -> Trace:
    """Requests known again by their output lengths; some are turns, some share blocks."""
    n = draw(st.integers(2, 25))
    at_ns = np.cumsum(draw(st.lists(st.integers(1, 5 * SECOND), min_size=n, max_size=n)))
    session = np.array(draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n)))
    blocks = PromptBlocks(16, np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))),
                          np.arange(n + 1))
    return Trace(
        arrival_ns=at_ns - at_ns[0], input_len=np.arange(n) + 20, output_len=np.arange(1, n + 1),
        session=session, turn=[int((session[:i] == session[i]).sum()) for i in range(n)],
        think_ns=np.arange(n) * 1000, tenant=np.arange(n) % 2, tenant_names=("a", "b"), name="t",
        blocks=draw(st.sampled_from([None, blocks])))


def rows_of(plan: Plan) -> list[int]:
    return (plan.output_len - 1).tolist()


def seconds_apart(n: int, **columns: Any) -> Trace:
    return Trace(arrival_ns=np.arange(n) * SECOND, input_len=np.full(n, 64), output_len=np.arange(1, n + 1),
                 name="t", **columns)


def drawn(burstiness: float, seed: int) -> Callable[[int, float], np.ndarray]:
    return lambda n, rate: arrival_offsets_ns(n, rate, burstiness, np.random.default_rng(seed))


@given(traces())
def test_rows_come_as_recorded(trace: Trace) -> None:
    """Without a rate, seed 0 plays every row in order at its time, and the plan states the trace's rate."""
    plan = trace_plan(trace, seed=0)
    assert rows_of(plan) == list(range(len(trace)))
    assert plan.intended_ns.tolist() == trace.arrival_ns.tolist()
    assert plan.think_ns.tolist() == trace.think_ns.tolist()
    assert plan.input_len.tolist() == trace.input_len.tolist()
    assert [plan.component_names[number] for number in plan.component] == [
        trace.tenant_names[number] for number in trace.tenant]
    assert plan.rate_rps == recorded_rate(trace)
    assert plan.num_warmups == 0
    assert plan.component_tenants == ()
    assert trace_plan(trace, seed=0, tenants=True).component_tenants == ("a", "b")


@given(traces(), st.floats(0.01, 1000))
def test_a_rate_stretches_time(trace: Trace, rate_rps: float) -> None:
    """The same rows, so often on average; every gap changes by the same factor, thinking times too."""
    plan = trace_plan(trace, seed=0, rate_rps=rate_rps)
    recorded = recorded_rate(trace)
    assert recorded is not None
    assert rows_of(plan) == list(range(len(trace)))
    assert plan.rate_rps == rate_rps
    assert (len(trace) - 1) / (plan.intended_ns[-1] / SECOND) == pytest.approx(rate_rps, rel=1e-4)
    np.testing.assert_allclose(plan.intended_ns, trace.arrival_ns * (recorded / rate_rps), atol=1, rtol=1e-12)
    np.testing.assert_allclose(plan.think_ns, trace.think_ns * (recorded / rate_rps), atol=1)


def test_an_infinite_rate_sends_all_at_once() -> None:
    """All requests are due at the start; later turns still wait for their answers, not for a reader."""
    plan = trace_plan(seconds_apart(5, session=[0] * 5, turn=range(5), think_ns=[7] * 5), seed=0,
                      rate_rps=math.inf)
    assert not plan.intended_ns.any()
    assert not plan.think_ns.any()
    assert plan.predecessor.tolist() == [-1, 0, 1, 2, 3]


@given(traces(), st.integers(1, 50))
def test_another_seed_begins_elsewhere(trace: Trace, seed: int) -> None:
    """The rows before its first come after the last, gaps stay, and no row comes twice: the plan still
    starts at 0 and sends as often."""
    plan = trace_plan(trace, seed=seed)
    begin = rows_of(plan)[0]
    assert rows_of(plan) == [(begin + i) % len(trace) for i in range(len(trace))]
    assert plan.intended_ns[0] == 0
    assert plan.to_bytes() == trace_plan(trace, seed=seed).to_bytes()
    gaps = dict(zip(rows_of(trace_plan(trace, seed=0))[1:], np.diff(trace.arrival_ns).tolist(), strict=True))
    mean_gap = round(trace.arrival_ns[-1] / (len(trace) - 1))
    for row, gap in zip(rows_of(plan)[1:], np.diff(plan.intended_ns).tolist(), strict=True):
        assert gap == pytest.approx(gaps.get(row, mean_gap), abs=2)


@given(traces(), st.floats(0.01, 100), st.integers(0, 30), st.data())
def test_a_part_of_a_trace_has_the_rate_that_was_asked_for(
        trace: Trace, rate_rps: float, seed: int, data: st.DataObject) -> None:
    """Whatever part is played, its own measured requests come so often; without a rate the plan says how
    often they came."""
    rows = data.draw(st.integers(2, len(trace)))
    warmups = data.draw(st.integers(0, rows - 2))
    part = {"seed": seed, "num_prompts": rows - warmups, "num_warmups": warmups}
    own = trace_plan(trace, **part)
    times = own.intended_ns[warmups:]
    if times[-1] == times[0]:
        return
    assert own.rate_rps == pytest.approx((len(times) - 1) * 1e9 / (times[-1] - times[0]))
    plan = trace_plan(trace, rate_rps=rate_rps, **part)
    stretch = own.rate_rps / rate_rps
    np.testing.assert_allclose(plan.intended_ns, own.intended_ns * stretch, atol=2, rtol=1e-9)


def test_seeds_differ() -> None:
    """Runs of a search that differ by their seed replay different parts of a long trace."""
    trace = seconds_apart(1000)
    begins = [rows_of(trace_plan(trace, seed=seed, num_prompts=10))[0] for seed in range(50)]
    assert len(set(begins)) > 45
    assert begins[0] == 0


def test_the_length_of_a_run_cuts_the_end_off() -> None:
    """By number or by time after the warm-up; rows come up to, and without, the end of that time."""
    trace = seconds_apart(100)
    by_number = trace_plan(trace, seed=0, num_prompts=10, num_warmups=5)
    assert (rows_of(by_number), by_number.num_warmups) == (list(range(15)), 5)
    by_time = trace_plan(trace, seed=0, duration_s=10, warmup_s=5)
    assert (rows_of(by_time), by_time.num_warmups) == (list(range(15)), 5)
    after_number = trace_plan(trace, seed=0, duration_s=10, num_warmups=5)
    assert (len(after_number), after_number.num_warmups) == (14, 5)   # 10 s from the warm-up's last, at 4 s
    faster = trace_plan(trace, seed=0, rate_rps=4, duration_s=10)
    assert len(faster) == 40


@given(traces(), st.integers(0, 20), st.integers(1, 80))
def test_a_trace_is_not_repeated_unasked(trace: Trace, seed: int, wanted: int) -> None:
    """More requests than there are are refused, with how many there are and what to do."""
    if wanted <= len(trace):
        assert len(trace_plan(trace, seed=seed, num_prompts=wanted)) == wanted
        return
    with pytest.raises(UsageError, match=f"t has {len(trace)} requests, and this run would take {wanted}"):
        trace_plan(trace, seed=seed, num_prompts=wanted)


@given(traces(), st.integers(0, 20), st.integers(1, 80))
def test_a_trace_that_begins_anew_shares_nothing_with_its_first_time(
    trace: Trace, seed: int, wanted: int
) -> None:
    """Rows come round in order; the first time that they come their prompts share what they shared, the
    second time too, and the two times nothing. No conversation goes on from the last row to the first."""
    plan = trace_plan(trace, seed=seed, num_prompts=wanted, begin_anew=True)
    n = len(trace)
    begin = rows_of(plan)[0]
    assert rows_of(plan) == [(begin + i) % n for i in range(wanted)]
    through = (begin + np.arange(wanted)) // n
    in_session = plan.session >= 0
    assert len(set(zip(plan.session[in_session].tolist(), through[in_session].tolist(), strict=True))) == len(
        set(plan.session[in_session].tolist()))
    for first in range(0, wanted, n):
        later = np.arange(wanted) >= first + n
        now = (np.arange(wanted) >= first) & ~later
        if plan.blocks is not None:
            keys, recorded = plan.blocks.keys[now], trace.blocks
            assert recorded is not None
            assert not set(keys.tolist()) & set(plan.blocks.keys[later].tolist())
            of_trace = recorded.keys[rows_of(plan)][now]
            assert len(set(zip(keys.tolist(), of_trace.tolist(), strict=True))) == len(
                set(keys.tolist())) == len(set(of_trace.tolist()))


def test_merged_traces_that_begin_anew_share_nothing() -> None:
    """What keeps two traces apart is not what keeps the rounds apart."""
    blocks = PromptBlocks(16, np.arange(4 * 3), np.arange(5) * 4 * 3 // 4)
    trace = seconds_apart(4, blocks=blocks)
    plan = trace_plan(merge([trace, trace, trace]), seed=0, num_prompts=40, begin_anew=True)
    assert not found_again(plan, 16).any()


def test_rotated_conversations_are_plans() -> None:
    """A conversation that a seed cuts in two is two: its first part does not follow its last."""
    trace = seconds_apart(6, session=[0] * 6, turn=range(6))
    for seed in range(1, 20):
        plan = trace_plan(trace, seed=seed)
        begin = rows_of(plan)[0]
        assert plan.turn.tolist() == [(begin + i) % 6 for i in range(6)]
        assert len(set(plan.session.tolist())) == (2 if begin else 1)


@given(st.integers(1, 400), st.floats(0.5, 100), st.sampled_from([0.3, 1.0, math.inf]), st.integers(0, 9))
def test_a_trace_without_times_gets_arrivals(n: int, rate_rps: float, burstiness: float, seed: int) -> None:
    """Every row once, at drawn times from 0 on; the turns of a conversation begin together, in order."""
    session = np.arange(n) // 3 - 1
    trace = Trace(arrival_ns=[], input_len=np.full(n, 9), output_len=np.arange(1, n + 1), session=session,
                  turn=np.arange(n) % 3)
    timed = with_arrivals(trace, drawn(burstiness, seed), rate_rps)
    assert sorted(timed.output_len.tolist()) == list(range(1, n + 1))
    assert timed.arrival_ns[0] == 0
    for number in range(session[-1] + 1):
        rows = timed.session == number
        assert len(set(timed.arrival_ns[rows].tolist())) == 1
        assert timed.turn[rows].tolist() == list(range(rows.sum()))


def test_drawn_arrivals_have_the_rate() -> None:
    """It counts every turn; a constant gap is exact."""
    trace = Trace(arrival_ns=[], input_len=np.full(3000, 9), output_len=np.full(3000, 9))
    rate = recorded_rate(with_arrivals(trace, drawn(math.inf, 0), 5))
    assert rate == pytest.approx(5, rel=1e-3)
    turns = Trace(arrival_ns=[], input_len=np.full(3000, 9), output_len=np.full(3000, 9),
                  session=np.arange(3000) // 3, turn=np.arange(3000) % 3)
    rate = recorded_rate(with_arrivals(turns, drawn(math.inf, 0), 5))
    assert rate == pytest.approx(5, rel=5e-3)


@pytest.mark.parametrize(("asked", "why"), [
    ({"num_prompts": 5, "duration_s": 1.0}, "either a number of requests or a duration"),
    ({"warmup_s": 8.0, "duration_s": 1.0, "begin_anew": False}, "has 5 requests"),
    ({"num_warmups": 5}, "no request falls into the measured part after 5 of warm-up"),
    ({"duration_s": 1e18}, "more than a plan holds"),
])
def test_what_a_trace_cannot_give_is_said(asked: dict[str, Any], why: str) -> None:
    """In one line, before anything is sent."""
    with pytest.raises(UsageError, match=why):
        trace_plan(seconds_apart(5), seed=0, **asked)


def test_traces_without_a_pace_take_no_rate() -> None:
    """One without times asks for a rate, one whose requests come together refuses all but inf."""
    untimed = Trace(arrival_ns=[], input_len=[1], output_len=[1], name="texts.json")
    with pytest.raises(UsageError, match=r"texts\.json does not say when .* give --request-rate"):
        trace_plan(untimed, seed=0)
    together = Trace(arrival_ns=[0, 0], input_len=[1, 1], output_len=[1, 1], name="t")
    with pytest.raises(UsageError, match="come at one moment"):
        trace_plan(together, seed=0, rate_rps=3)
    assert len(trace_plan(together, seed=0, rate_rps=math.inf)) == 2
    assert trace_plan(together, seed=0).rate_rps == math.inf
