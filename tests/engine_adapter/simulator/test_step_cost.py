"""A step costs what its parts cost, the same in Python and in compiled code."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.simulator import cost_arrays as compiled
from engine_adapter.simulator.step_cost import SCALARS, StepCost
from workloads.errors import UsageError

numbers = st.floats(0, 1e9, allow_nan=False, allow_subnormal=False)
tables = st.lists(st.floats(0, 1e6), min_size=2, max_size=40).map(lambda steps: np.cumsum(steps))
costs = st.builds(
    lambda table, scalars, tile: StepCost(linear_ns=table, query_tile=tile, **scalars),
    tables, st.fixed_dictionaries({name: numbers for name in SCALARS if name != "query_tile"}),
    st.sampled_from([1, 16, 64, 128]),
)
chunk_lists = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 100_000)), max_size=4)
context_lists = st.lists(st.integers(1, 100_000), max_size=6)


def _tokens(chunks: list[tuple[int, int]], contexts: list[int]) -> int:
    return sum(tokens for tokens, _ in chunks) + len(contexts)


@given(costs)
def test_a_cost_survives_json_bit_for_bit(cost: StepCost) -> None:
    """A calibration that is read back predicts exactly what the one that was written did."""
    again = StepCost.from_dict(json.loads(json.dumps(cost.as_dict())))
    assert again.linear_ns.tobytes() == cost.linear_ns.tobytes()
    assert again.as_dict() == cost.as_dict()


@given(costs, chunk_lists, context_lists)
def test_compiled_code_counts_as_python_does(cost: StepCost, chunks: list[tuple[int, int]],
                                             contexts: list[int]) -> None:
    """The fast path and the readable one give the same number, to the last bit."""
    tokens = _tokens(chunks, contexts)
    linear_ns, terms = compiled.cost_arrays(cost, tokens)
    attention = 0.0
    for chunk in chunks:
        attention += compiled.chunk_attention_ns(terms, *chunk)
    fast = compiled.step_ns(linear_ns, terms, tokens, len(chunks), attention, len(contexts), sum(contexts))
    assert fast == cost.step_ns(tokens, chunks, contexts)


@given(costs, chunk_lists, context_lists, st.integers(1, 500), st.data())
def test_more_work_is_never_cheaper(cost: StepCost, chunks: list[tuple[int, int]], contexts: list[int],
                                    more: int, data: st.DataObject) -> None:
    """One more decode, a longer context, a longer chunk or a longer prefix takes no less time."""
    def price(chunks: list[tuple[int, int]], contexts: list[int]) -> float:
        return cost.step_ns(_tokens(chunks, contexts), chunks, contexts)

    before = price(chunks, contexts)
    slack = 1e-9 * before   # of floats
    assert price(chunks, [*contexts, more]) >= before - slack
    assert price([*chunks, (more, 0)], contexts) >= before - slack
    if contexts:
        assert price(chunks, [contexts[0] + more, *contexts[1:]]) >= before - slack
    if chunks:
        place = data.draw(st.integers(0, len(chunks) - 1))
        tokens, prefix = chunks[place]
        for grown in ((tokens + more, prefix), (tokens, prefix + more)):
            assert price([*chunks[:place], grown, *chunks[place + 1:]], contexts) >= before - slack


def test_the_parts_of_a_step_add_up() -> None:
    """A mixed step is one product over all tokens, plus each request's own part."""
    cost = StepCost(linear_ns=np.arange(200) * 10.0, fixed_ns=1000, chunk_ns=50, chunk_pair_ns=1,
                    chunk_kv_ns=3, query_tile=1, decode_ns=7, decode_kv_ns=2, host_ns=400, host_request_ns=5)
    chunk = max(20 * (100 + 10.5) * 1, 120 * 3)
    assert cost.step_ns(22, [(20, 100)], [30, 40]) == 1000 + 220 + 50 + chunk + 2 * 7 + 70 * 2
    assert cost.between_steps_ns(3) == 415


def test_a_chunk_takes_the_longer_of_computing_and_reading() -> None:
    """A short chunk far into a prompt is bound by its prefix, a long one by its pairs."""
    cost = StepCost(linear_ns=np.zeros(4), chunk_pair_ns=1, chunk_kv_ns=100, query_tile=1)
    assert cost.step_ns(1, [(1, 9_999)]) == 100 * 10_000
    assert cost.step_ns(1000, [(1000, 0)]) == 1000 * 500.5
    assert StepCost(linear_ns=np.zeros(4), chunk_pair_ns=1, query_tile=64).step_ns(1, [(1, 99)]) == 64 * 100


def test_larger_steps_than_the_table_follow_its_slope() -> None:
    """A staircase goes on at its average slope, in Python as in compiled code."""
    stairs = StepCost(linear_ns=np.ceil(np.arange(257) / 16) * 160.0)
    assert stairs.step_ns(300) == pytest.approx(3000, rel=0.02)
    assert compiled.cost_arrays(stairs, 1000).linear_ns[1000] == stairs.step_ns(1000)
    assert StepCost.linear(token_ns=3, most_tokens=10).step_ns(5000) == 15_000


def test_numbers_that_are_no_durations_are_refused() -> None:
    """Negative, infinite and missing numbers are found when the cost is made."""
    for table in ([1.0], [0.0, -1.0], [0.0, math.nan], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="linear_ns"):
            StepCost(linear_ns=np.array(table))
    for name, value in (("fixed_ns", -1), ("decode_ns", math.inf), ("query_tile", 0), ("query_tile", 1.5)):
        with pytest.raises(ValueError, match=name):
            StepCost(linear_ns=np.zeros(2), **{name: value})


@pytest.mark.parametrize(("values", "says"), [
    ({}, "linear_ns"), ({"linear_ns": [0, 1], "fixd_ns": 1}, "fixd_ns"),
    ({"linear_ns": "?"}, "cannot be used"),
    ({"linear_ns": [0, 1], "chunk_ns": None}, "chunk_ns"), ([], "linear_ns"),
])
def test_a_file_that_holds_no_cost_says_what_is_wrong(values: dict[str, object], says: str) -> None:
    """One line for the user, whatever the JSON was."""
    with pytest.raises(UsageError, match=says):
        StepCost.from_dict(values)
