"""Which prompts share which tokens: blocks, prefixes, conversations, and nothing else."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import Plan
from workloads.prompt_parts import Part, PromptBlocks


def _plan(**changes: Any) -> Plan:
    rows = len(changes["input_len"])
    values: dict[str, Any] = {
        "intended_ns": range(rows), "output_len": [5] * rows, "component": [0] * rows,
        "prefix_group": [-1] * rows, "session": [-1] * rows, "turn": [0] * rows,
        "num_warmups": 0, "seed": 3, "rate_rps": 2, "component_names": ("a",),
    }
    return Plan(**(values | changes))


def _ids(plan: Plan, i: int, **more: Any) -> list[int]:
    return plan.prompt_token_ids(i, vocab_size=50_000, salt="s", **more)


def _common(a: list[int], b: list[int]) -> int:
    differs = [x != y for x, y in zip(a, b, strict=False)]
    return differs.index(True) if True in differs else len(differs)


def test_blocks_of_equal_keys_are_equal_tokens_and_all_others_differ() -> None:
    """Two prompts agree exactly as far as their leading blocks do, cut last blocks included."""
    keys = [7, 8, 9, 7, 8, 10, 7 + 2**32]
    plan = _plan(input_len=[40, 45, 16], blocks=PromptBlocks(16, np.array(keys), np.array([0, 3, 6, 7])))
    first, second, third = (_ids(plan, i) for i in range(3))
    assert [len(first), len(second), len(third)] == [40, 45, 16]
    assert _common(first, second) == 32
    assert _common(first, third) == 0


def test_tokens_beyond_the_blocks_are_the_requests_own() -> None:
    """A prompt that is longer than its blocks goes on with tokens that no other prompt has."""
    plan = _plan(input_len=[40, 40], blocks=PromptBlocks(16, np.array([1, 1]), np.array([0, 1, 2])))
    assert _common(_ids(plan, 0), _ids(plan, 1)) == 16


def test_a_group_shares_its_prefix_and_nothing_more() -> None:
    """Prompts of one group agree in the prefix of the group; another group's prefix is another one."""
    plan = _plan(input_len=[30, 50, 30, 8], prefix_group=[0, 0, 1, 0], prefix_lens=[20, 20])
    prompts = [_ids(plan, i) for i in range(4)]
    assert _common(prompts[0], prompts[1]) == 20
    assert _common(prompts[0], prompts[2]) == 0
    assert prompts[3] == prompts[0][:8]


def test_a_later_turn_repeats_prompt_and_answer_of_the_turn_before() -> None:
    """The history is prompt, answer, prompt, answer; real answers take the place of those made up."""
    plan = _plan(input_len=[10, 30, 60], session=[4, 4, 4], turn=[0, 1, 2])
    first, second, third = (_ids(plan, i) for i in range(3))
    assert second[:10] == first
    assert third[:30] == second
    real = _ids(plan, 1, answers={0: [1, 2, 3]})
    assert real[:13] == [*first, 1, 2, 3]
    assert real[13:] == second[13:]


def test_a_turn_that_is_shorter_than_its_history_keeps_the_beginning_of_it() -> None:
    """A prompt always ends with a token of its own."""
    plan = _plan(input_len=[20, 12], session=[0, 0], turn=[0, 1])
    assert _common(_ids(plan, 0), _ids(plan, 1)) == 11
    assert plan.prompt_parts(1).kind.tolist() == [Part.OWN, Part.OWN]


def test_turns_that_go_backwards_are_refused() -> None:
    """A session's turns rise with the rows."""
    with pytest.raises(ValueError, match="turns of a session"):
        _plan(input_len=[5, 5], session=[1, 1], turn=[1, 0])


def test_what_is_shared_survives_the_way_to_bytes_and_back() -> None:
    """Blocks, prefixes, thinking times and tenants are part of a plan and of its digest."""
    plan = _plan(input_len=[40, 45], session=[0, 0], turn=[0, 1], think_ns=[0, 7], prefix_lens=[3],
                 prefix_group=[0, -1], component_tenants=("chat",),
                 blocks=PromptBlocks(16, np.array([2**60, -1, 5]), np.array([0, 3, 3])))
    again = Plan.from_bytes(plan.to_bytes())
    assert again.digest() == plan.digest()
    assert again.blocks is not None
    assert again.blocks.keys.tolist() == [2**60, -1, 5]
    assert (again.think_ns.tolist(), again.prefix_lens.tolist(), again.component_tenants) == (
        [0, 7], [3], ("chat",))
    assert again.predecessor.tolist() == [-1, 0]


@given(st.data())
def test_parts_add_up_to_the_prompt_and_decide_what_is_shared(data: st.DataObject) -> None:
    """The lengths of the parts add up to input_len, and equal parts give equal tokens."""
    rows = data.draw(st.integers(1, 8))
    ints = st.lists(st.integers(1, 60), min_size=rows, max_size=rows)
    few = st.lists(st.integers(-1, 2), min_size=rows, max_size=rows)
    plan = _plan(input_len=data.draw(ints), output_len=data.draw(ints), session=data.draw(few),
                 turn=range(rows), prefix_group=data.draw(few), prefix_lens=[4, 30])
    prompts = [_ids(plan, i) for i in range(rows)]
    parts = [plan.prompt_parts(i) for i in range(rows)]
    for prompt, part in zip(prompts, parts, strict=True):
        assert len(prompt) == part.length.sum()
        assert part.length.min() >= 1
    for a in range(rows):
        for b in range(a):
            shared = 0
            for x, y in zip(zip(*map(np.ndarray.tolist, parts[a]), strict=True),
                            zip(*map(np.ndarray.tolist, parts[b]), strict=True), strict=False):
                shared += min(x[2], y[2]) if x[:2] == y[:2] else 0
                if x != y:
                    break
            assert _common(prompts[a], prompts[b]) >= shared
