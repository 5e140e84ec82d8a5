"""The scheduler one step at a time: each rule in a small case. test_differential.py has vLLM beside it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from engine_adapter.errors import NeedsRestart, Rejected
from engine_adapter.simulator.acceptance import accepted
from engine_adapter.simulator.scheduler import Scheduler
from engine_adapter.simulator.settings import SchedulerSettings
from workloads.errors import UsageError

BASE = SchedulerSettings(token_budget=32, max_seqs=4, max_model_len=128, num_kv_blocks=101, block_size=8)


def started(requests, acceptance=0.0, **changes):
    """A scheduler with these (input, output) requests in its queue."""
    scheduler = Scheduler(replace(BASE, **changes), draft_acceptance=acceptance)
    for input_len, output_len in requests:
        scheduler.add(input_len, output_len)
    return scheduler


def carried(step):
    """What a step carries, in its order."""
    return dict(zip(step.rows.tolist(), step.tokens.tolist(), strict=True))


def steps(scheduler, most=200):
    """Play in lock step to the end; what each step carried."""
    seen = []
    while scheduler.has_work and len(seen) < most:
        step = scheduler.schedule()
        scheduler.update(step)
        seen.append(carried(step))
    assert not scheduler.has_work
    assert scheduler.num_free_blocks == scheduler.settings.num_kv_blocks - 1
    return seen


def test_prompts_fill_the_budget_in_order_of_admission():
    """Running requests come first, in order; what they leave of the budget goes to the next in the queue."""
    assert steps(started([(40, 2), (30, 1)])) == [{0: 32}, {0: 8, 1: 24}, {0: 1, 1: 6}]


def test_the_long_prefill_cap_spares_a_lone_request():
    """The threshold caps a prompt while others run or wait, and not while it is alone."""
    assert steps(started([(40, 1)], long_prefill_token_threshold=10)) == [{0: 32}, {0: 8}]
    assert steps(started([(25, 1), (8, 1)], long_prefill_token_threshold=10))[:3] == [
        {0: 10, 1: 8}, {0: 15}]


def test_an_adaptive_cap_is_at_least_a_fair_share():
    """The cap is raised to the input budget divided by the requests that run or wait."""
    scheduler = started([(40, 1), (40, 1)], long_prefill_token_threshold=4, adaptive_long_prefill=True)
    assert carried(scheduler.schedule()) == {0: 16, 1: 16}


def test_no_more_requests_run_than_allowed():
    """max_seqs limits admissions, and the queue keeps its order."""
    scheduler = started([(4, 3)] * 4, max_seqs=2)
    step = scheduler.schedule()
    assert (carried(step), step.num_running, step.num_waiting) == ({0: 4, 1: 4}, 2, 2)
    assert scheduler.waiting == [2, 3]


def test_the_last_running_request_is_pushed_out_and_starts_again():
    """Without a free block the last running request loses its own, waits in front and computes all of its
    tokens again; a step that pushed one out admits nothing."""
    scheduler = started([(14, 12), (14, 12), (1, 1)], num_kv_blocks=5, max_seqs=2)
    seen = []
    while scheduler.has_work:
        step = scheduler.schedule()
        if len(step.preempted):
            seen.append((step.preempted.tolist(), carried(step), scheduler.waiting))
        scheduler.update(step)
    assert seen == [([1], {0: 1}, [1, 2])]
    assert scheduler.num_free_blocks == 4


def test_the_least_urgent_request_is_pushed_out_first():
    """Under the priority policy the queue goes by (priority, arrival), and so do victims, wherever they
    run."""
    scheduler = Scheduler(replace(BASE, priority=True, num_kv_blocks=6))
    for arrival, urgency in enumerate([2, 0, 1]):
        scheduler.add(14, 12, arrival_ns=arrival, priority=urgency)
    first = scheduler.schedule()
    assert carried(first) == {1: 14, 2: 14}
    pushed_out = []
    scheduler.update(first)
    while scheduler.has_work:
        step = scheduler.schedule()
        pushed_out += step.preempted.tolist()
        scheduler.update(step)
    assert pushed_out
    assert 1 not in pushed_out


def test_a_cached_prefix_is_not_computed_again():
    """Full blocks with the same content are found; of a prompt that is cached whole, the last block is
    computed again for its last token."""
    scheduler = Scheduler(replace(BASE, prefix_caching=True))
    for input_len, keys in ((20, [7, 8]), (18, [7, 8]), (16, [7, 8]), (18, [7, 9])):
        scheduler.add(input_len, 1, prefix_keys=keys)
    step = scheduler.schedule()
    assert (carried(step), step.prefixes.tolist()) == ({0: 20, 1: 2, 2: 8, 3: 2}, [0, 16, 8, 8])
    scheduler.update(step)
    while scheduler.has_work:
        scheduler.update(scheduler.schedule())
    scheduler.add(30, 1, prefix_keys=[7, 8, 10])
    step = scheduler.schedule()
    assert (carried(step), step.prefixes.tolist()) == ({4: 14}, [16])
    assert not scheduler.reset_prefix_cache()
    scheduler.update(step)
    assert scheduler.reset_prefix_cache()
    scheduler.add(30, 1, prefix_keys=[7, 8, 10])
    assert scheduler.schedule().prefixes.tolist() == [0]


def test_a_prompt_waits_until_all_of_it_fits():
    """Admission needs free blocks for the whole prompt, not for its first chunk alone; and the watermark
    on top while something runs."""
    assert carried(started([(20, 9), (20, 1)], num_kv_blocks=5).schedule()) == {0: 20}
    assert carried(started([(20, 9), (20, 1)], num_kv_blocks=5, reserve_full_isl=False).schedule()) == {0: 20}
    small = [(20, 4), (8, 1)]
    assert carried(started(small, num_kv_blocks=5).schedule()) == {0: 20, 1: 8}
    assert carried(started(small, num_kv_blocks=5, watermark=0.3).schedule()) == {0: 20}


def test_without_chunked_prefill_a_prompt_waits_for_its_budget():
    """A prompt is never cut, and none overtakes it."""
    scheduler = started([(20, 2), (20, 1), (2, 1)], chunked_prefill=False)
    assert steps(scheduler) == [{0: 20}, {0: 1, 1: 20, 2: 2}]


def test_the_next_step_is_decided_while_one_runs():
    """With asynchronous scheduling a request is in two steps in flight, and in none after its last token."""
    scheduler = started([(4, 2)], async_scheduling=True)
    first, second = scheduler.schedule(), scheduler.schedule()
    assert (carried(first), carried(second)) == ({0: 4}, {0: 1})
    with pytest.raises(RuntimeError, match="in flight already"):
        scheduler.schedule()
    with pytest.raises(ValueError, match="not the oldest"):
        scheduler.update(second)
    assert scheduler.update(first).new_tokens.tolist() == [1]
    assert len(scheduler.schedule()) == 0
    assert scheduler.update(second).finished.tolist() == [True]


@pytest.mark.parametrize(("acceptance", "expected"), [(1.0, [1, 4, 4, 1]), (0.0, [1] * 10)])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_drafts_give_a_decode_more_than_one_token(acceptance, expected, async_scheduling):
    """A decode carries its drafts and gives one token more than were accepted, up to the answer's end."""
    scheduler = started([(4, 10)], acceptance=acceptance, num_spec_tokens=3,
                        async_scheduling=async_scheduling)
    given_tokens, flight = [], []
    while scheduler.has_work:
        step = scheduler.schedule()
        flight += [step] if len(step) else []
        if len(flight) > async_scheduling or not len(step):
            given_tokens += scheduler.update(flight.pop(0)).new_tokens.tolist()
    assert given_tokens == expected


def test_acceptance_depends_on_nothing_but_its_arguments():
    """The same numbers in every process, as likely as was asked for."""
    assert [accepted(1, 2, output, 4, 0.7) for output in range(8)] == [0, 0, 1, 2, 0, 1, 1, 0]
    rate = sum(accepted(3, row, 5, 1, 0.7) for row in range(4000)) / 4000
    assert abs(rate - 0.7) < 0.03
    assert {accepted(0, 0, 0, 5, 0.0), accepted(0, 0, 0, 5, 1.0)} == {0, 5}


@pytest.mark.parametrize(("request_", "changes", "reason"), [
    ((100, 29), {}, "longer than the model's 128 tokens"),
    ((60, 22), {"num_kv_blocks": 11}, "more than the 10 KV blocks of 8 tokens"),
    ((33, 1), {"chunked_prefill": False}, "fit into the budget of 32 tokens"),
])
def test_what_can_never_run_is_refused(request_, changes, reason):
    """One line that says why, and the next request gets the row."""
    scheduler = started([], **changes)
    with pytest.raises(Rejected, match=reason):
        scheduler.add(*request_)
    assert scheduler.add(10, 10) == 0


def test_a_request_that_just_fits_runs():
    """The last token of an answer needs no place in the KV cache."""
    assert steps(started([(60, 21)], num_kv_blocks=11))


def test_an_aborted_request_leaves_nothing_behind():
    """Running, waiting or ended: its blocks are free, its place is free, what is in flight is dropped."""
    scheduler = started([(8, 9), (8, 9), (8, 9)], max_seqs=2)
    step = scheduler.schedule()
    for row in (0, 2, 2):
        scheduler.abort(row)
    assert scheduler.update(step).rows.tolist() == [1]
    assert (scheduler.running, scheduler.waiting) == ([1], [])
    scheduler.abort(1)
    assert not scheduler.has_work
    assert scheduler.num_free_blocks == 100


def test_live_knobs_act_on_the_next_step():
    """Budgets, caps and active requests change at once; what sized the engine does not."""
    scheduler = started([(64, 2), (64, 2)])
    scheduler.update(scheduler.schedule())
    scheduler.apply(replace(BASE, token_budget=48, long_prefill_token_threshold=20))
    assert carried(scheduler.schedule()) == {0: 20, 1: 20}
    with pytest.raises(NeedsRestart, match="num_kv_blocks"):
        scheduler.apply(replace(BASE, num_kv_blocks=50))


@pytest.mark.parametrize(("rule", "expected"), [
    # Request 0 decodes when 1 and 2 arrive, of 40 and 6 tokens.
    ("vllm-v1", [{0: 1, 1: 31}, {0: 1, 1: 9, 2: 6}]),
    ("sarathi-serve", [{0: 1, 1: 31}, {0: 1, 1: 9, 2: 6}]),
    ("vllm-v0", [{1: 40}, {2: 6}]),
    ("orca", [{0: 1, 1: 40}, {0: 1, 1: 1, 2: 6}]),
    ("request-level", [{0: 1}, {0: 1}]),
])
def test_each_rule_has_its_own_idea_of_a_step(rule, expected):
    """vllm-v1 and Sarathi-Serve chunk beside decodes, V0 lets decodes wait for whole prompts, Orca puts whole
    prompts beside them, request-level batching admits nothing while anything runs."""
    scheduler = started([(8, 6)], rule=rule)
    scheduler.update(scheduler.schedule())
    scheduler.add(40, 3)
    scheduler.add(6, 3)
    seen = []
    for _ in range(2):
        step = scheduler.schedule()
        seen.append(carried(step))
        scheduler.update(step)
    assert seen == expected
    steps(scheduler)


@pytest.mark.parametrize(("rule", "used"), [("vllm-v1", 2), ("sarathi-serve", 6), ("vllm-v0", 6),
                                            ("orca", 8), ("request-level", 8)])
def test_each_rule_reserves_its_own_share_of_memory(rule, used):
    """vllm-v1 takes blocks for the chunk, Sarathi-Serve and V0 for the prompt, the others for the answer
    too; the null block counts."""
    step = started([(40, 16)], rule=rule, token_budget=8).schedule()
    assert step.kv_blocks_used == used


@pytest.mark.parametrize("changes", [
    {"rule": "orca", "prefix_caching": True}, {"rule": "vllm-v0", "num_spec_tokens": 2},
    {"rule": "sarathi-serve", "async_scheduling": True}, {"rule": "request-level", "priority": True},
    {"num_spec_tokens": 2, "draft_method": "ngram", "async_scheduling": True},
    {"num_spec_tokens": 2, "pipeline_parallel": 2},
    {"num_spec_tokens": 4, "long_prefill_token_threshold": 4},
    {"num_spec_tokens": 2, "draft_method": "draft_model", "token_budget": 1},
])
def test_what_is_not_simulated_is_refused(changes):
    """A combination that would be silently wrong says so in one line."""
    with pytest.raises(UsageError) as caught:
        Scheduler(replace(BASE, **changes))
    assert "\n" not in str(caught.value)


@examples(max_examples=60, deadline=None)
@given(requests=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 30)), min_size=1, max_size=20),
       rule=st.sampled_from(["vllm-v1", "sarathi-serve"]), budget=st.sampled_from([8, 20, 64]),
       cap=st.sampled_from([0, 3, 16]), adaptive=st.booleans(), blocks=st.sampled_from([17, 40, 200]))
def test_no_decode_is_left_out_and_no_budget_exceeded(requests, rule, budget, cap, adaptive, blocks):
    """First come, first served, every running request that decodes is in every step, or is pushed out."""
    scheduler = started(requests, rule=rule, token_budget=budget, max_seqs=8, num_kv_blocks=blocks,
                        long_prefill_token_threshold=cap, adaptive_long_prefill=adaptive)
    decoding = set()
    while scheduler.has_work:
        step = scheduler.schedule()
        assert step.num_tokens <= budget
        assert decoding <= set(step.rows.tolist()) | set(step.preempted.tolist())
        outputs = scheduler.update(step)
        decoding = (decoding - set(step.preempted.tolist())) | set(outputs.rows.tolist())
        decoding -= set(outputs.rows[outputs.finished].tolist())
    assert scheduler.num_free_blocks == blocks - 1
