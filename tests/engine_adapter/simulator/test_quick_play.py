"""Leaving out the books of the prefix cache changes nothing that anybody could see."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.simulator import quick_play as module
from engine_adapter.simulator.load import Played, SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.quick_play import quick_play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost

COST = StepCost.linear(token_ns=20_000, fixed_ns=3_000_000, decode_ns=5_000, host_ns=200_000)
SETTINGS = SchedulerSettings(token_budget=128, max_seqs=8, max_model_len=1024, num_kv_blocks=60,
                             prefix_caching=True)


def load_of(lengths: list[tuple[int, int]], keys: list[int] | None = None) -> SimulatedLoad:
    n = len(lengths)
    shared = {} if keys is None else {
        "prefix_keys": np.array(keys * n), "prefix_offset": np.arange(n + 1) * len(keys)}
    return SimulatedLoad(arrival_ns=np.arange(n) * 2_000_000, input_len=np.array([i for i, _ in lengths]),
                         output_len=np.array([o for _, o in lengths]), **shared)


def assert_equal(one: Played, other: Played) -> None:
    for field in fields(Played):
        if field.name == "steps":
            for part in ("steps", "chunks"):
                for name, column in getattr(one.steps, part).items():
                    np.testing.assert_array_equal(column, getattr(other.steps, part)[name], err_msg=name)
        else:
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name),
                                          err_msg=field.name)


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 120)), min_size=1, max_size=12),
       st.sampled_from([40, 60, 400]), st.booleans(), st.sampled_from([0, 2]))
@settings(max_examples=60, deadline=None)
def test_it_is_the_same_with_and_without_preemption(
    lengths: list[tuple[int, int]], blocks: int, ahead: bool, drafts: int
) -> None:
    """Times, steps, blocks in use, cached tokens: in lock step, ahead, and with drafts."""
    chosen = replace(SETTINGS, num_kv_blocks=blocks, async_scheduling=ahead, num_spec_tokens=drafts)
    load = replace(load_of(lengths), draft_acceptance=0.7)
    assert_equal(quick_play(load, chosen, COST), play(load, chosen, COST))


def test_prompts_that_share_blocks_are_played_with_the_cache() -> None:
    """They find them."""
    load = load_of([(100, 5)] * 3, keys=[4, 5, 6])
    assert quick_play(load, SETTINGS, COST).cached_tokens.tolist()[2] == 48
    assert_equal(quick_play(load, SETTINGS, COST), play(load, SETTINGS, COST))


def test_the_cache_is_left_out_only_where_nothing_was_preempted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One play without it where there is room, a second one with it where there is not."""
    with_cache: list[bool] = []

    def noted(load: SimulatedLoad, chosen: SchedulerSettings, *others: object, **options: object) -> Played:
        with_cache.append(chosen.prefix_caching)
        return play(load, chosen, COST)

    monkeypatch.setattr(module, "play", noted)
    quick_play(load_of([(100, 5)]), SETTINGS, COST)
    assert with_cache == [False]
    quick_play(load_of([(300, 200)] * 3), SETTINGS, COST)
    assert with_cache == [False, False, True]
