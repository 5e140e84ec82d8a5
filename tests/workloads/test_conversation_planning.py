"""Prefixes and conversations as they are planned: lengths, times, shares, and what stays the same."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads import Plan, UsageError, Workload, build_plan, parse_stages
from workloads.prompt_parts import Part

_AGENT = {
    "name": "agent", "weight": 60, "input": {"kind": "uniform", "low": 5, "high": 50},
    "output": {"kind": "uniform", "low": 5, "high": 30},
    "prefix": {"groups": 3, "tokens": {"kind": "uniform", "low": 100, "high": 200}, "zipf": 1.0},
    "conversation": {"turns": {"kind": "uniform", "low": 1, "high": 6},
                     "think": {"kind": "exponential", "mean": 2.0}},
}
_ASK = {"name": "ask", "weight": 40, "input": {"kind": "fixed", "tokens": 64},
        "output": {"kind": "fixed", "tokens": 8}}


def _workload(*components: dict[str, Any], **changes: Any) -> Workload:
    values = {"name": "w", "description": "", "components": components or (_AGENT, _ASK), "slo": (),
              "max_model_len": 4096, "decode_deadline_ms": 50, "run_seconds": 10, "warmup_seconds": 1}
    return Workload.model_validate(values | changes)


def _plan(workload: Workload | None = None, *, rate: float = 5.0, seed: int = 1, **how: Any) -> Plan:
    how = how or {"num_prompts": 400}
    return build_plan(workload or _workload(), rate_rps=rate, seed=seed, **how)


def test_a_turn_holds_prefix_history_and_what_it_adds() -> None:
    """The prompt of a later turn is longer than prompt and answer before it by what it adds; the first
    begins with its group's prefix."""
    plan = _plan()
    later = np.flatnonzero(plan.predecessor >= 0)
    before = plan.predecessor[later]
    added = plan.input_len[later] - plan.input_len[before] - plan.output_len[before]
    assert len(later) > 50
    assert added.min() >= 5
    assert added.max() <= 50
    first = np.flatnonzero((plan.prefix_group >= 0) & (plan.turn == 0))
    own = plan.input_len[first] - plan.prefix_lens[plan.prefix_group[first]]
    assert own.min() >= 5
    assert own.max() <= 50
    assert (plan.input_len[plan.component == 1] == 64).all()


def test_turns_of_a_conversation_follow_one_another_by_its_thinking() -> None:
    """A later turn is never meant before the one before it and the thinking between."""
    plan = _plan()
    later = np.flatnonzero(plan.predecessor >= 0)
    before = plan.predecessor[later]
    np.testing.assert_array_equal(plan.turn[later], plan.turn[before] + 1)
    np.testing.assert_array_equal(plan.intended_ns[later] - plan.intended_ns[before], plan.think_ns[later])
    assert (plan.component[later] == plan.component[before]).all()
    assert plan.think_ns[later].mean() / 1e9 == pytest.approx(2.0, rel=0.3)


def test_requests_come_at_the_rate_asked_for_and_in_the_components_shares() -> None:
    """Conversations are so many fewer as they have turns."""
    plan = _plan(rate=20.0, num_prompts=20_000)
    assert len(plan) * 1e9 / plan.intended_ns[-1] == pytest.approx(20.0, rel=0.05)
    assert (plan.component == 0).mean() == pytest.approx(0.6, abs=0.03)


def test_a_short_run_has_the_rate_and_the_late_turns_of_a_long_one() -> None:
    """The plan begins in the middle of conversations: a minute of ten turns half a minute apart is not all
    first turns. Of a conversation that began before, the history is nobody else's."""
    slow = _AGENT | {"conversation": {"turns": {"kind": "fixed", "tokens": 10},
                                      "think": {"kind": "fixed", "seconds": 30}}}
    plans = [_plan(_workload(slow), seed=seed, duration_s=60) for seed in range(8)]
    assert np.mean([len(plan) / 60 for plan in plans]) == pytest.approx(5.0, rel=0.1)
    turns = np.bincount(np.concatenate([plan.turn for plan in plans]), minlength=10)
    assert turns.min() > 0.7 * turns.mean()
    cut = int(np.flatnonzero((plans[0].turn > 0) & (plans[0].predecessor < 0))[0])
    assert plans[0].prompt_parts(cut).kind.tolist() == [Part.PREFIX, Part.OWN]


@pytest.mark.parametrize("think", [
    {"kind": "fixed", "seconds": 1e300}, {"kind": "lognormal", "median": 1e9, "sigma": 1},
    {"kind": "exponential", "mean": float("inf")}])
def test_nobody_thinks_for_ever(think: dict[str, Any]) -> None:
    """Durations that would overflow a plan are refused with the workload; long tails are cut."""
    with pytest.raises(ValidationError):
        _workload(_AGENT | {"conversation": {"turns": {"kind": "fixed", "tokens": 2}, "think": think}})
    long = {"turns": {"kind": "fixed", "tokens": 3},
            "think": {"kind": "lognormal", "median": 1e7, "sigma": 10}}
    assert _plan(_workload(_AGENT | {"conversation": long}), num_prompts=50).think_ns.max() <= 1e7 * 1e9


def test_prefixes_follow_zipfs_law_and_keep_their_length() -> None:
    """With an exponent of 1 the first of three groups has 6 of 11 conversations."""
    plan = _plan(num_prompts=5000)
    begun = plan.prefix_group[(plan.prefix_group >= 0) & (plan.turn == 0)]
    assert (begun == 0).mean() == pytest.approx(6 / 11, abs=0.05)
    assert len(plan.prefix_lens) == 3
    assert ((plan.prefix_lens >= 100) & (plan.prefix_lens <= 200)).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**40), few=st.integers(1, 150), more=st.integers(1, 400))
def test_a_longer_plan_begins_with_the_shorter_one(seed: int, few: int, more: int) -> None:
    """Rows, sessions and times of the same seed are those of the shorter plan, as far as it goes."""
    long, short = _plan(seed=seed, num_prompts=few + more), _plan(seed=seed, num_prompts=few)
    for name in ("intended_ns", "input_len", "output_len", "session", "turn", "prefix_group", "component"):
        np.testing.assert_array_equal(getattr(long, name)[:few], getattr(short, name))


def test_a_conversation_ends_before_the_turn_that_would_not_fit() -> None:
    """Nothing in a plan is longer than max_model_len, and the workload says how long prompts may grow."""
    workload = _workload(max_model_len=320)
    plan = _plan(workload, num_prompts=2000)
    assert (plan.input_len + plan.output_len).max() <= 320
    assert (workload.longest_request, workload.longest_prompt) == (320, 319)
    with pytest.raises(ValidationError, match="may ask for 280 tokens"):
        _workload(max_model_len=279)


def test_all_at_once_is_a_closed_loop_of_conversations() -> None:
    """Every conversation begins at 0, and there are as many as hold the requests asked for."""
    plan = _plan(rate=math.inf, num_prompts=50)
    assert len(plan) == 50
    assert (plan.intended_ns[plan.turn == 0] == 0).all()


def test_prefixes_alone_go_with_stages_and_conversations_do_not() -> None:
    """A prefix is only a longer prompt; a conversation has one mean rate."""
    stages = parse_stages("10s@2..8")
    alone = _workload({k: v for k, v in _AGENT.items() if k != "conversation"})
    plan = build_plan(alone, profile=stages, seed=1)
    assert (plan.prefix_group >= 0).all()
    assert plan.input_len.min() >= 105
    with pytest.raises(UsageError, match="one mean rate"):
        build_plan(_workload(), profile=stages, seed=1)


def test_a_workload_without_them_has_the_plan_and_the_digest_that_it_had() -> None:
    """Prefixes and conversations change nothing for those that use none."""
    workload = _workload(_ASK)
    plan = _plan(workload)
    assert (plan.prefix_group == -1).all()
    assert not len(plan.prefix_lens)
    assert b"prefix_lens" not in plan.to_bytes()
    assert workload.digest() != _workload(_ASK | {"prefix": _AGENT["prefix"]}).digest()
