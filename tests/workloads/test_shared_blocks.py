"""What the prompts of a plan share, block by block, without spelling them out."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.simulator.prefix_keys import PrefixKeys
from workloads.plan import Plan
from workloads.prompt_parts import Part, PromptBlocks, part_tokens
from workloads.shared_blocks import found_again, shared_blocks

VOCABULARY = 1 << 40
"""So large that no two tokens are equal by chance."""


def plan_of(lengths: list[tuple[int, int]], *, session: list[int] | None = None,
            group: list[int] | None = None, prefix_lens: tuple[int, ...] = (),
            keys: list[list[int]] | None = None, size: int = 8) -> Plan:
    n = len(lengths)
    turns = [0] * n
    if session is not None:
        turns = [session[:i].count(session[i]) if session[i] >= 0 else 0 for i in range(n)]
    blocks = None
    if keys is not None:
        offset = np.concatenate([[0], np.cumsum([len(one) for one in keys])])
        blocks = PromptBlocks(size, np.array([key for one in keys for key in one], dtype=np.int64), offset)
    return Plan(
        intended_ns=np.zeros(n), input_len=np.array([i for i, _ in lengths]),
        output_len=np.array([o for _, o in lengths]), component=np.zeros(n),
        prefix_group=np.array(group or [-1] * n), session=np.array(session or [-1] * n),
        turn=np.array(turns), num_warmups=0, seed=5, rate_rps=1.0, component_names=("a",),
        prefix_lens=np.array(prefix_lens, dtype=np.int32), blocks=blocks)


@st.composite
def plans(draw: Any) -> Plan:
    """Prompts that share blocks, prefixes and what was said before; some too short for what they repeat."""
    n = draw(st.integers(1, 12))
    lengths = [(draw(st.integers(1, 60)), draw(st.integers(1, 20))) for _ in range(n)]
    if draw(st.booleans()):   # later turns that hold all that was said
        session = [draw(st.sampled_from([-1, 0, 1])) for _ in range(n)]
        last: dict[int, int] = {}
        for row, number in enumerate(session):
            if number >= 0 and number in last and draw(st.integers(0, 3)):
                before = lengths[last[number]]
                lengths[row] = (before[0] + before[1] + lengths[row][0], lengths[row][1])
            last[number] = row
    else:
        session = [-1] * n
    keys = None
    if draw(st.booleans()):
        keys = [draw(st.lists(st.sampled_from([7, -8, 9]), max_size=6)) for _ in range(n)]
    group = [draw(st.sampled_from([-1, 0, 1, 2, 5])) for _ in range(n)]
    return plan_of(lengths, session=session, group=group, keys=keys, size=draw(st.sampled_from([3, 8, 16])),
                   prefix_lens=draw(st.sampled_from([(), (10, 25, 0)])))


def spelt_out(plan: Plan, row: int, *, answer: bool) -> list[int]:
    parts = plan.prompt_parts(row)
    if answer:
        parts = parts.then(Part.ANSWER, row, int(plan.output_len[row]))
    ids: list[int] = part_tokens(parts, seed=plan.seed, salt="s", vocab_size=VOCABULARY).tolist()
    return ids


@settings(max_examples=300, deadline=None)
@given(plans(), st.sampled_from([1, 2, 4, 8, 16]))
def test_blocks_are_equal_where_their_tokens_and_all_before_are(plan: Plan, size: int) -> None:
    """Keys of prompts and repeated answers agree with the hashed tokens; what has no key is one row's own."""
    blocks, tokens = shared_blocks(plan, size), PrefixKeys(size)
    pairs: set[tuple[int, int]] = set()
    left_out: list[int] = []
    for row in range(len(plan)):
        repeated = row in plan.predecessor.tolist()
        exact = tokens.of(spelt_out(plan, row, answer=repeated))
        mine = blocks.of(row).tolist()
        assert len(mine) <= len(exact)
        pairs |= set(zip(mine, exact, strict=False))
        left_out += exact[len(mine):]
    assert len({one for one, _ in pairs}) == len({other for _, other in pairs}) == len(pairs)
    assert min((one for one, _ in pairs), default=0) >= 0
    assert len(set(left_out)) == len(left_out)
    assert not set(left_out) & {other for _, other in pairs}


@settings(max_examples=200, deadline=None)
@given(plans(), st.sampled_from([1, 4, 16]))
def test_what_is_found_again_is_what_a_cache_of_all_tokens_would_find(plan: Plan, size: int) -> None:
    """Leading whole blocks of an earlier prompt or answer, but its last token; never the whole prompt."""
    seen: set[tuple[int, ...]] = set()
    for row, found in enumerate(found_again(plan, size).tolist()):
        prompt = spelt_out(plan, row, answer=False)
        most = (len(prompt) - 1) // size
        expected = 0
        while expected < most and tuple(prompt[:(expected + 1) * size]) in seen:
            expected += 1
        assert found == expected * size
        computed = spelt_out(plan, row, answer=True)[:-1]
        seen |= {tuple(computed[:end]) for end in range(size, len(computed) + 1, size)}


def test_prompts_that_share_nothing_have_no_keys() -> None:
    """However long they are: nothing is held in memory for them."""
    assert len(shared_blocks(plan_of([(5000, 10)] * 3), 16).keys) == 0
    assert found_again(plan_of([(5000, 10)] * 3), 16).tolist() == [0, 0, 0]


def test_a_conversation_finds_its_prompt_and_answer_again() -> None:
    """Each turn finds the full blocks of all before it, less the last token of the answer, which was never
    computed."""
    plan = plan_of([(32, 16), (64, 16), (112, 16)], session=[0, 0, 0])
    assert found_again(plan, 16).tolist() == [0, 32, 64]
    assert found_again(plan, 4).tolist() == [0, 44, 76]
    assert [len(shared_blocks(plan, 16).of(row)) for row in range(3)] == [3, 5, 5]


def test_a_large_plan_is_cut_in_pieces_that_fit_together() -> None:
    """More blocks than are worked on at once make the same keys as one row alone."""
    keys = list(range(3000))
    plan = plan_of([(48_000, 1)] * 400, keys=[keys] * 400, size=16)
    blocks = shared_blocks(plan, 16)
    assert len(blocks.keys) == 400 * 3000
    assert all(np.array_equal(blocks.of(one), blocks.of(other)) for one, other in pairwise(range(400)))
    assert len(set(blocks.of(0).tolist())) == 3000
