"""Playing a whole load: the shortcut, conservation, refusals, the livelock detector."""

from dataclasses import fields

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost

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
