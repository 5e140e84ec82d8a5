"""Playing a whole load: the shortcut, conservation, refusals, the livelock detector."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from engine_adapter.errors import Hung
from engine_adapter.simulator import play as play_module
from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.state_arrays import fill_rows
from engine_adapter.simulator.step_cost import StepCost
from workloads.errors import UsageError

SMALL = SchedulerSettings(token_budget=32, max_seqs=4, max_model_len=200, num_kv_blocks=100, block_size=8)
COST = StepCost.linear(fixed_ns=3e6, token_ns=2e4, most_tokens=64, chunk_ns=1e5, chunk_pair_ns=3.0,
                       chunk_kv_ns=40.0, decode_ns=2e4, decode_kv_ns=7.0, host_ns=4e5, host_request_ns=900.0,
                       arrival_ns=2e5, arrival_token_ns=100.0, delivery_ns=3e5)


@st.composite
def loads(draw):
    """A few requests, some at once, some far apart, some with a common beginning."""
    n = draw(st.integers(1, 30))
    lengths = st.lists(st.integers(1, 90), min_size=n, max_size=n)
    gaps = draw(st.lists(st.sampled_from([0, 1000, 5_000_000, 40_000_000, 300_000_000]), min_size=n,
                         max_size=n))
    counts = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    keys = [key for count in counts for key in range(count)]
    return SimulatedLoad(
        arrival_ns=np.cumsum(gaps), input_len=draw(lengths), output_len=draw(lengths),
        priority=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        prefix_keys=keys, prefix_offset=np.concatenate([[0], np.cumsum(counts)]))


schedulers = st.builds(
    SchedulerSettings, token_budget=st.sampled_from([8, 32, 100]), max_seqs=st.sampled_from([1, 3, 8]),
    max_model_len=st.just(190), num_kv_blocks=st.sampled_from([14, 26, 200]),
    block_size=st.sampled_from([8, 16]), long_prefill_token_threshold=st.sampled_from([0, 16]),
    priority=st.booleans(), prefix_caching=st.booleans(), watermark=st.sampled_from([0.0, 0.05]),
    async_scheduling=st.booleans(), pipeline_parallel=st.sampled_from([1, 1, 2]))


def same(one, other):
    """Every column of two Played."""
    for field in fields(one):
        mine, others = getattr(one, field.name), getattr(other, field.name)
        if field.name == "steps":
            for name, column in (mine.steps | mine.chunks).items():
                np.testing.assert_array_equal(column, (others.steps | others.chunks)[name], name)
        else:
            np.testing.assert_array_equal(mine, others, field.name)


@examples(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(load=loads(), settings=schedulers, cap=st.sampled_from([None, None, 2, 5]))
def test_the_shortcut_changes_nothing(load, settings, cap):
    """Stretches of decodes played at once give the times, the step log and all else of single steps."""
    slow = play(load, settings, COST, max_concurrency=cap, step_by_step=True)
    same(play(load, settings, COST, max_concurrency=cap), slow)


others = st.builds(
    SchedulerSettings, token_budget=st.sampled_from([8, 32]), max_seqs=st.sampled_from([1, 3, 8]),
    max_model_len=st.just(190), num_kv_blocks=st.sampled_from([26, 200]), block_size=st.just(8),
    rule=st.sampled_from(["sarathi-serve", "vllm-v0", "orca", "request-level"]),
    pipeline_parallel=st.sampled_from([1, 2]))
drafting = st.builds(
    SchedulerSettings, token_budget=st.sampled_from([16, 50]), max_seqs=st.sampled_from([1, 3, 8]),
    max_model_len=st.just(190), num_kv_blocks=st.sampled_from([30, 200]), block_size=st.just(8),
    num_spec_tokens=st.sampled_from([1, 4]), draft_method=st.sampled_from(["eagle", "draft_model"]),
    async_scheduling=st.booleans(), prefix_caching=st.booleans())


@examples(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(load=loads(), settings=schedulers | others | drafting, acceptance=st.sampled_from([0.0, 0.6, 1.0]))
def test_nothing_is_lost_and_nothing_differs(load, settings, acceptance):
    """Every token asked for is read once, in order of time, after its request was sent and scheduled; the
    step log adds up; the same load has the same outcome again."""
    load = replace(load, draft_acceptance=acceptance)
    played = play(load, settings, COST)
    starts, ends = played.reads_offset[:-1], played.reads_offset[1:]
    for row in range(len(load)):
        reads = played.read_ns[starts[row]:ends[row]]
        if played.refused[row]:
            assert (len(reads), played.end_ns[row], played.first_scheduled_ns[row]) == (0, -1, -1)
            continue
        assert played.read_tokens[starts[row]:ends[row]].sum() == load.output_len[row]
        assert load.arrival_ns[row] <= played.sent_ns[row] <= played.first_scheduled_ns[row] < reads[0]
        assert np.all(np.diff(reads) > 0)
        assert reads[-1] == played.end_ns[row]
    steps, chunks = played.steps.steps, played.steps.chunks
    assert len(steps["step"]) == played.num_steps
    assert np.all(np.diff(steps["end_ns"]) > 0)
    assert np.all(steps["end_ns"] > steps["start_ns"])
    assert chunks["tokens"].sum() == steps["num_prefill_tokens"].sum()
    assert steps["num_preempted"].sum() == played.preemptions.sum()
    assert np.all((steps["kv_blocks_used"] >= 1) & (steps["kv_blocks_used"] <= settings.num_kv_blocks))
    same(played, play(load, settings, COST))


@examples(max_examples=40, deadline=None)
@given(shorter=st.integers(1, 150), more=st.integers(1, 40), budget=st.sampled_from([8, 32, 256]),
       rule=st.sampled_from(["vllm-v1", "sarathi-serve", "vllm-v0", "orca", "request-level"]))
def test_a_longer_prompt_never_lowers_its_own_ttft(shorter, more, budget, rule):
    """A request that is alone waits for its first token at least as long if its prompt is longer."""
    settings = replace(SMALL, token_budget=budget, rule=rule)
    alone = [SimulatedLoad(arrival_ns=[0], input_len=[tokens], output_len=[1])
             for tokens in (shorter, shorter + more)]
    one, other = (play(load, settings, COST).read_ns[0] for load in alone)
    assert one <= other


def test_the_times_of_a_small_case():
    """In lock step: the way to the queue, the host's part, the device's part, the delivery; then the next
    step is decided at the end of the one before."""
    cost = StepCost.linear(fixed_ns=1000, token_ns=10, host_ns=100, host_request_ns=1, arrival_ns=50,
                           arrival_token_ns=1, delivery_ns=7)
    played = play(SimulatedLoad(arrival_ns=[5], input_len=[40], output_len=[2]), SMALL, cost)
    first = 5 + 50 + 40
    ends = np.cumsum([first + 101 + 1000 + 320, 101 + 1000 + 80, 101 + 1000 + 10])
    assert played.first_scheduled_ns.tolist() == [first]
    assert played.steps.steps["start_ns"].tolist() == [first, *ends[:2]]
    assert played.steps.steps["end_ns"].tolist() == ends.tolist()
    assert played.read_ns.tolist() == [ends[1] + 7, ends[2] + 7]
    assert played.simulated_ns == ends[2] - 5


def test_the_host_hides_behind_the_step_before():
    """With asynchronous scheduling steps follow one another on the device without a gap, unless the host
    takes longer than the device."""
    load = SimulatedLoad(arrival_ns=[0], input_len=[4], output_len=[50])
    for device, host, gap in ((1000, 300, 1000), (300, 1000, 1000)):
        cost = StepCost.linear(fixed_ns=device, token_ns=0, host_ns=host)
        played = play(load, replace(SMALL, async_scheduling=True), cost)
        assert set(np.diff(played.read_ns)[5:-1].tolist()) == {gap}
        assert set(np.diff(play(load, SMALL, cost).read_ns).tolist()) == {device + host}


def test_pipeline_stages_work_on_different_steps():
    """Two stages carry two groups of requests in turn; each step passes through both."""
    load = SimulatedLoad(arrival_ns=[0, 0], input_len=[4, 4], output_len=[40, 40])
    cost = StepCost.linear(fixed_ns=2000, token_ns=0, transfer_ns=10)
    # A budget of one prompt keeps the two requests in steps of their own.
    played = play(load, replace(SMALL, pipeline_parallel=2, token_budget=4), cost)
    ends = played.steps.steps["end_ns"]
    assert (ends[0], ends[1]) == (2010, 3010)
    assert set((ends[3:] - ends[1:-2]).tolist()) == {2010}


def test_a_request_that_can_never_run_is_refused_and_counted():
    """Too long for the model or for the memory: no tokens, and the others are served."""
    load = SimulatedLoad(arrival_ns=[0, 1, 2], input_len=[190, 150, 8], output_len=[20, 40, 4])
    played = play(load, replace(SMALL, num_kv_blocks=20), COST)
    assert played.refused.tolist() == [True, True, False]
    assert np.diff(played.reads_offset).tolist() == [0, 0, 4]


def test_a_concurrency_cap_holds_requests_back():
    """A request is sent when it arrives and a place is free; a refused one gives its place back at once."""
    n, cap = 12, 3
    lengths = np.full(n, 20)
    lengths[4] = 300
    load = SimulatedLoad(arrival_ns=np.zeros(n), input_len=lengths, output_len=np.arange(n) % 4 + 1)
    played = play(load, SMALL, COST, max_concurrency=cap)
    served = ~played.refused
    for sent in played.sent_ns[served]:
        assert np.sum((played.sent_ns[served] <= sent) & (played.end_ns[served] > sent)) <= cap
    assert played.sent_ns[4] == played.sent_ns[5]
    with pytest.raises(UsageError, match="max_concurrency"):
        play(load, SMALL, COST, max_concurrency=0)


def test_without_the_step_log_all_else_is_the_same():
    """keep_steps only decides whether the log is kept."""
    load = SimulatedLoad(arrival_ns=[0, 0, 9], input_len=[50, 60, 70], output_len=[9, 30, 20])
    kept, left_out = play(load, SMALL, COST), play(load, SMALL, COST, keep_steps=False)
    assert (len(left_out.steps), left_out.num_steps) == (0, kept.num_steps)
    same(replace(kept, steps=left_out.steps), left_out)


def test_an_empty_load_takes_no_time():
    """No requests, no steps."""
    played = play(SimulatedLoad(arrival_ns=[], input_len=[], output_len=[]), SMALL, COST)
    assert (played.num_steps, played.simulated_ns, len(played.read_ns)) == (0, 0, 0)


def test_a_scheduler_that_can_do_nothing_is_reported():
    """A pushed-out request that has outgrown a budget without chunked prefill waits for ever: Hung names
    the step and the reason."""
    load = SimulatedLoad(arrival_ns=[0, 0], input_len=[16, 16], output_len=[60, 60])
    with pytest.raises(Hung, match=r"livelock at step \d+: nothing can be scheduled .*1 waiting"):
        play(load, replace(SMALL, chunked_prefill=False, num_kv_blocks=12), COST)


def test_requests_that_push_one_another_out_for_ever_are_reported(monkeypatch):
    """vLLM's priority policy lets equals of the same arrival time push one another out in a circle."""
    def all_at_once(rows, input_len, output_len, arrival, priority):
        fill_rows(rows, input_len, output_len, 0 * arrival, priority)

    monkeypatch.setattr(play_module, "fill_rows", all_at_once)
    load = SimulatedLoad(arrival_ns=[0] * 4, input_len=[37, 84, 22, 16], output_len=[27, 2, 28, 33])
    settings = replace(SMALL, priority=True, num_kv_blocks=13, token_budget=128, reserve_full_isl=False,
                       long_prefill_token_threshold=4)
    with pytest.raises(Hung, match="push one another out"):
        play(load, settings, COST)


def test_a_growing_load_takes_no_less_time():
    """One more request at the end never ends a load earlier, first come, first served."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 90, size=(2, 25))
    ends = [play(SimulatedLoad(arrival_ns=np.arange(n) * 1_000_000, input_len=lengths[0, :n],
                               output_len=lengths[1, :n]), SMALL, COST).simulated_ns for n in range(1, 25)]
    assert np.all(np.diff(ends) >= 0)
