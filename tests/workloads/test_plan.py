import contextlib
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Plan, UsageError, Workload, build_plan, load_workload

_COLUMNS = ("intended_ns", "input_len", "output_len", "component", "prefix_group", "session", "turn")


def _plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "intended_ns": [0, 5, 5], "input_len": [4, 40, 400], "output_len": [1, 2, 3], "component": [0, 1, 0],
        "prefix_group": [-1, 7, 7], "session": [-1, 0, 0], "turn": [0, 0, 1],
        "num_warmups": 1, "seed": 3, "rate_rps": 2, "component_names": ("a", "b"),
    }
    return Plan(**(values | changes))


@given(rate=st.one_of(st.floats(0.1, 1e4), st.just(math.inf)), seed=st.integers(0, 2**80),
       n=st.integers(1, 40), warmups=st.integers(0, 9))
def test_a_plan_survives_the_way_to_bytes_and_back(rate: float, seed: int, n: int, warmups: int) -> None:
    """`from_bytes` undoes `to_bytes`: every column, every field, and the digest."""
    plan = build_plan(load_workload("cpu"), rate_rps=rate, seed=seed, num_prompts=n, num_warmups=warmups)
    again = Plan.from_bytes(plan.to_bytes())
    assert again.digest() == plan.digest()
    for field in dataclasses.fields(Plan):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(plan, field.name))


def test_sessions_and_prefixes_are_kept_and_an_empty_plan_is_one() -> None:
    """Columns that traces use round-trip, and so does a plan without rows."""
    assert Plan.from_bytes(_plan().to_bytes()).turn.tolist() == [0, 0, 1]
    empty = _plan(**{name: [] for name in _COLUMNS}, num_warmups=0)
    assert len(Plan.from_bytes(empty.to_bytes())) == 0
    assert "empty" in repr(empty)


@settings(max_examples=200)
@given(st.data())
def test_damaged_bytes_are_refused_and_never_crash(data: st.DataObject) -> None:
    """Cut or altered bytes give UsageError or, where a value changed, another valid plan."""
    whole = bytearray(_plan().to_bytes())
    position = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(UsageError, match="not a plan"):
        Plan.from_bytes(bytes(whole[:position]))
    whole[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(UsageError):
        Plan.from_bytes(bytes(whole))


def test_columns_are_copies_that_nobody_can_write_to() -> None:
    """Neither the plan's arrays nor the ones it was made of change it afterwards."""
    source = np.array([4, 40, 400], dtype=np.int32)
    plan = _plan(input_len=source)
    source[0] = 9
    assert plan.input_len[0] == 4
    for name in _COLUMNS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(plan, name)[0] = 1


@pytest.mark.parametrize("changes", [
    {"input_len": [4, 40]}, {"input_len": [4, 0, 4]}, {"output_len": [1, 1, -1]}, {"intended_ns": [0, 6, 5]},
    {"intended_ns": [-1, 5, 5]}, {"component": [0, 2, 0]}, {"component": [0, -1, 0]}, {"num_warmups": 4},
    {"num_warmups": -1},
])
def test_columns_that_are_no_plan_are_refused(changes: dict[str, Any]) -> None:
    """Unequal columns, times that go back, empty prompts and unknown components are refused."""
    with pytest.raises(ValueError, match=r"must|shape"):
        _plan(**changes)


def test_an_equal_rate_makes_equal_bytes() -> None:
    """4 and 4.0 requests per second are one plan."""
    assert _plan(rate_rps=4).digest() == _plan(rate_rps=4.0).digest() != _plan(rate_rps=5).digest()


def test_the_repr_tells_a_failed_assert_what_it_was() -> None:
    """Rows, warm-up, rate, tokens and seed are on one line."""
    assert repr(_plan()) == "<Plan 3 requests (1 warm-up) over 5e-09 s @ 2 rps, 444 tokens in, 6 out, seed 3>"


@given(vocab_size=st.integers(1, 50_000), salt=st.text(max_size=5), row=st.integers(0, 2))
def test_prompts_have_their_length_and_avoid_special_ids(vocab_size: int, salt: str, row: int) -> None:
    """Ids are within the vocabulary, and above the ten lowest where it has twenty."""
    ids = _plan().prompt_token_ids(row, vocab_size=vocab_size, salt=salt)
    assert len(ids) == (4, 40, 400)[row]
    assert all(type(i) is int and 0 <= i < vocab_size for i in ids)
    if vocab_size >= 20:
        assert min(ids) >= 10


def test_a_prompt_depends_on_salt_seed_and_row_alone() -> None:
    """The same salt repeats a prompt exactly, in text or bytes; salt, seed and row each change it."""
    rows = {"input_len": [50, 50, 50]}
    plan, other_seed = _plan(**rows), _plan(**rows, seed=4)
    faster = _plan(**rows, rate_rps=9, intended_ns=[0, 1, 2])

    def prompt(of: Plan, row: int, salt: bytes | str) -> tuple[int, ...]:
        return tuple(of.prompt_token_ids(row, vocab_size=49_152, salt=salt))

    assert prompt(plan, 0, "run") == prompt(plan, 0, b"run") == prompt(faster, 0, "run")
    different = {prompt(plan, 0, "run"), prompt(plan, 1, "run"), prompt(plan, 0, "run2"),
                 prompt(other_seed, 0, "run"), prompt(plan, 0, "")}
    assert len(different) == 5


def test_no_prompt_repeats_within_a_run_or_between_runs() -> None:
    """Warm-up and measured rows of two runs share no prompt, not even its first eight tokens."""
    plan = build_plan(Workload.from_lengths(32, 4), rate_rps=5, seed=0, num_prompts=150, num_warmups=50)
    heads = {tuple(plan.prompt_token_ids(i, vocab_size=49_152, salt=salt)[:8])
             for salt in ("first", "second") for i in range(len(plan))}
    assert len(heads) == 400


def test_asking_for_a_row_or_a_vocabulary_that_is_not_there_is_refused() -> None:
    """Rows outside the plan are an IndexError, also negative ones; no vocabulary is a usage error."""
    for row in (-1, 3):
        with pytest.raises(IndexError, match="of a plan of 3 rows"):
            _plan().prompt_token_ids(row, vocab_size=100, salt="")
    with pytest.raises(UsageError, match="at least 1 token"):
        _plan().prompt_token_ids(0, vocab_size=0, salt="")


def test_a_plan_that_does_not_fit_the_model_says_which_row_and_how_many() -> None:
    """Prompt plus answer may equal the model's length and not exceed it."""
    _plan().check_fits(403)
    with pytest.raises(UsageError, match=r"request 1 asks for 40 prompt \+ 2 answer tokens, more than the "
                                         r"model's 41 \(2 of 3 requests do not fit\)"):
        _plan().check_fits(41)
