"""The prompts of a run, built ahead and continued."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import prompts as prompts_module
from bench.prompts import Prompts
from workloads import Plan
from workloads.prompt_parts import PromptBlocks


def plan_of(sessions: list[int], added: list[int], output_len: list[int], *, prefix: int = 0,
            blocks: PromptBlocks | None = None) -> Plan:
    """Prompts of the given session numbers; each adds so much to its conversation."""
    lengths, context, turns = [], dict.fromkeys(sessions, 0), []
    number = dict.fromkeys(sessions, 0)
    for session, new, answer in zip(sessions, added, output_len, strict=True):
        before = context[session] if session >= 0 else 0
        lengths.append(max(1, before + new))
        context[session] = lengths[-1] + answer
        turns.append(number[session] if session >= 0 else 0)
        number[session] += 1
    n = len(sessions)
    return Plan(
        intended_ns=np.arange(n), session=sessions, turn=turns, input_len=lengths, output_len=output_len,
        component=np.zeros(n), prefix_group=np.zeros(n) if prefix else np.full(n, -1),
        prefix_lens=[prefix] if prefix else [], num_warmups=0, seed=5, rate_rps=1.0, component_names=("c",),
        blocks=blocks)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_prompts_are_those_of_the_plan_with_the_answers_in_them(data: st.DataObject) -> None:
    """Continued from turn to turn or built anew, a prompt is `plan.prompt_token_ids` with the answers that
    were told; a turn may also shorten its conversation, and an answer be shorter than planned."""
    n = data.draw(st.integers(1, 8))
    sessions = data.draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
    added = data.draw(st.lists(st.integers(-12, 20), min_size=n, max_size=n))
    output_len = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    plan = plan_of(sessions, added, output_len, prefix=data.draw(st.sampled_from([0, 8])))
    made = Prompts(plan, list(range(n)), vocab_size=300, salt="x")
    answers: dict[int, list[int]] = {}
    for row in range(n):
        expected = plan.prompt_token_ids(row, vocab_size=300, salt="x", answers=answers)
        assert made.take(row) == expected
        told = data.draw(st.lists(st.integers(0, 299), max_size=output_len[row]))
        if made.is_repeated(row) and told:
            answers[row] = told
        made.answered(row, told)


def test_a_prompt_of_blocks_does_not_wait_for_an_answer() -> None:
    """What a trace says of a later prompt is what it is made of: nothing is repeated."""
    blocks = PromptBlocks(4, np.array([7, 8, 7, 8, 9]), np.array([0, 2, 5]))
    plan = plan_of([0, 0], [8, 2], [2, 2], blocks=blocks)
    made = Prompts(plan, [0, 1], vocab_size=300, salt="x")
    assert not made.is_repeated(0)
    made.answered(0, [1, 2])
    first, second = made.take(0), made.take(1)
    assert second[:8] == first
    assert made.history is None


@pytest.mark.parametrize(("told", "history"), [
    ([[1], [2]], "answers"), ([[1], []], "mixed"), ([[], []], "made-up")])
def test_history_says_what_was_repeated(told: list[list[int]], history: str) -> None:
    """`answers` only where every answer was told."""
    made = Prompts(plan_of([0, 0, 0], [4, 4, 4], [1, 1, 1]), [0, 1, 2], vocab_size=300, salt="x")
    for row, answer in enumerate(told):
        made.take(row)
        made.answered(row, answer)
    assert made.history == history


def test_beyond_the_memory_meant_for_it_prompts_are_built_when_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same prompts."""
    monkeypatch.setattr(prompts_module, "TOKENS_AHEAD", 10)
    plan = plan_of([-1] * 4 + [0, 0], [6] * 6, [1] * 6)
    made = Prompts(plan, list(range(6)), vocab_size=300, salt="x")
    for row in range(6):
        assert made.take(row) == plan.prompt_token_ids(row, vocab_size=300, salt="x")
        made.answered(row, ())


def test_a_forgotten_conversation_keeps_nothing() -> None:
    """After `forget` the prompt that waited for its answer is gone, and an answer changes nothing."""
    made = Prompts(plan_of([0, 0], [4, 4], [1, 1]), [0, 1], vocab_size=300, salt="x")
    made.take(0)
    made.forget(0)
    made.answered(0, [1])
    assert made.history is None
    assert len(made.take(1)) == 9


def test_a_long_history_is_copied_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a turn adds to a conversation costs the making of its answer and its own tokens only."""
    made_tokens: list[int] = []
    part_tokens = prompts_module.part_tokens
    monkeypatch.setattr(prompts_module, "part_tokens", lambda parts, **how: (
        made_tokens.append(int(parts.length.sum())), part_tokens(parts, **how))[1])
    turns = 50
    made = Prompts(plan_of([0] * turns, [40] * turns, [10] * turns), list(range(turns)), vocab_size=300,
                   salt="x")
    for row in range(turns - 1):
        made.take(row)
        made.answered(row, ())
    assert len(made.take(turns - 1)) == 50 * turns - 10
    assert made_tokens == [10, 40] * (turns - 1)
