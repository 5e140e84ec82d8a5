"""Prompts that repeat earlier ones as a fitted description says."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads import Workload, build_plan, load_workload
from workloads.reuse import PromptReuse, reused_blocks
from workloads.traces.prefix_reuse import PrefixReuse
from workloads.traces.trace import Trace

_SEEDS = st.integers(0, 2**32)
_LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=80)


def _streams(seed: int) -> Callable[[str], np.random.Generator]:
    return lambda name: np.random.default_rng([seed, zlib.crc32(name.encode())])


def _reuse(**changes: Any) -> PromptReuse:
    return PromptReuse.model_validate({
        "block_size": 16, "common_blocks": 1, "common_share": 1.0, "back": {"at": [0, 1], "tokens": [1, 20]},
        "classes": [{"continuing": 0.6, "copied": {"at": [0, 1], "shares": [0.2, 1]}}], **changes})


def _reused(lengths: np.ndarray, reuse: PromptReuse, seed: int) -> np.ndarray:
    trace = Trace(arrival_ns=np.zeros(0), input_len=lengths, output_len=np.ones(len(lengths)),
                  blocks=reused_blocks(reuse, lengths, _streams(seed)))
    return PrefixReuse().add(trace)


@given(_LENGTHS, _LENGTHS, _SEEDS)
def test_fewer_prompts_are_a_prefix_of_more(lengths: list[int], more: list[int], seed: int) -> None:
    """Blocks cover their prompts, and those of the first rows do not depend on the rows behind."""
    short, long = (reused_blocks(_reuse(), np.array(rows), _streams(seed))
                   for rows in (lengths, lengths + more))
    np.testing.assert_array_equal(np.diff(long.offset), -(-np.array(lengths + more) // 16))
    shared = long.take(np.arange(len(lengths)))
    # New keys are numbered through, so equal ones and not their names are compared.
    np.testing.assert_array_equal(shared.keys, short.keys)


@settings(max_examples=20)
@given(_SEEDS, st.floats(0, 1), st.floats(0.1, 1))
def test_prompts_repeat_as_much_as_asked(seed: int, continuing: float, copied: float) -> None:
    """The share of prompt tokens that came before is that of continuing prompts times what they copy."""
    lengths = np.full(3000, 1600)
    reuse = _reuse(common_blocks=0, classes=[
        {"continuing": continuing, "copied": {"at": [0, 1], "shares": [copied, copied]}}])
    reused = _reused(lengths, reuse, seed)
    assert reused.sum() / lengths.sum() == pytest.approx(continuing * copied, abs=0.01)


def test_what_all_begin_with_is_found_again() -> None:
    """With nothing continued, every prompt but the first repeats the common blocks, as far as it is long."""
    lengths = np.array([100, 100, 20, 7])
    nothing = [{"continuing": 0, "copied": {"at": [0, 1], "shares": [0, 0]}}]
    assert _reused(lengths, _reuse(common_blocks=3, classes=nothing), 1).tolist() == [0, 48, 20, 7]
    assert _reused(lengths, _reuse(common_blocks=3, common_share=0, classes=nothing), 1).tolist() == [0] * 4


def test_classes_go_by_prompt_length() -> None:
    """Short prompts repeat everything here and long ones nothing."""
    classes = [{"up_to": 100, "continuing": 1, "copied": {"at": [0, 1], "shares": [1, 1]}},
               {"continuing": 0, "copied": {"at": [0, 1], "shares": [0, 0]}}]
    lengths = np.tile([64, 640], 50)
    reused = _reused(lengths, _reuse(common_blocks=0, classes=classes), 0)
    assert reused[2::2].tolist() == [64] * 49
    assert not reused[1::2].any()


def test_a_prompt_continues_one_as_far_back_as_asked() -> None:
    """The copied block came last in the row that `back` names, where that one is long enough."""
    lengths = np.full(200, 320)
    reuse = _reuse(common_blocks=0, back={"at": [0, 1], "tokens": [7, 7]}, classes=[
        {"continuing": 1, "copied": {"at": [0, 1], "shares": [0.5, 0.5]}}])
    blocks = reused_blocks(reuse, lengths, _streams(3))
    for row in range(20, 200):
        assert np.array_equal(blocks.of(row)[:10], blocks.of(row - 7)[:10])


def test_a_plan_of_reuse_keeps_its_lengths_and_its_seed() -> None:
    """Lengths are drawn as without reuse; the same seed gives the same bytes."""
    chat = load_workload("chat")
    sharing = Workload.model_validate(chat.model_dump() | {"reuse": _reuse().model_dump()})
    plain, plan, again = (build_plan(asked, rate_rps=2, num_prompts=200, seed=5)
                          for asked in (chat, sharing, sharing))
    np.testing.assert_array_equal(plain.input_len, plan.input_len)
    assert plan.to_bytes() == again.to_bytes() != plain.to_bytes()
    ids = [plan.prompt_token_ids(row, vocab_size=1000, salt="") for row in range(200)]
    assert [len(prompt) for prompt in ids] == plan.input_len.tolist()
    assert len({tuple(prompt[:16]) for prompt in ids if len(prompt) >= 16}) < 10
    assert sharing.digest() != chat.digest()


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"classes": []}, "at least 1"),
    ({"classes": [{"up_to": 5, "continuing": 0, "copied": {"at": [0, 1], "shares": [0, 0]}}]},
     "but the last"),
    ({"classes": [{"continuing": 2, "copied": {"at": [0, 1], "shares": [0, 0]}}]}, "less than or equal to 1"),
    ({"classes": [{"continuing": 0, "copied": {"at": [0, 1], "shares": [1, 0]}}]}, "never decrease"),
    ({"classes": [{"continuing": 0, "copied": {"at": [0, 1], "shares": [1]}}]}, "one each"),
    ({"block_size": 0}, "greater than or equal to 1")])
def test_what_no_reuse_is_is_refused(changes: dict[str, Any], complaint: str) -> None:
    """With what is wrong in it."""
    with pytest.raises(ValidationError, match=complaint):
        _reuse(**changes)


def test_reuse_beside_prefixes_is_refused() -> None:
    """Two descriptions of what prompts share."""
    chat = load_workload("chat").model_dump()
    chat["components"][0]["prefix"] = {"tokens": {"kind": "fixed", "tokens": 9}}
    with pytest.raises(ValidationError, match="reuse says what all prompts share"):
        Workload.model_validate(chat | {"reuse": _reuse().model_dump()})
