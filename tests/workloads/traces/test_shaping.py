"""Shaping a trace: no request is lost, copied or overtaken, and what makes the traffic hard stays."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import UsageError
from workloads.prompt_parts import PromptBlocks
from workloads.traces import shaping
from workloads.traces.trace import Trace

SECOND = 1_000_000_000


@st.composite
def traces(draw: Any, most_rows: int = 30) -> Trace:
    """Each request has an output length of its own, by which it is known again; its blocks are made of it."""
    n = draw(st.integers(1, most_rows))
    at_ns = np.cumsum(draw(st.lists(st.integers(0, 5 * SECOND), min_size=n, max_size=n)))
    session = np.array(draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)))
    blocks = PromptBlocks(8, np.arange(n).repeat(2) * 3, np.arange(n + 1) * 2)
    return Trace(
        arrival_ns=at_ns - at_ns[0], output_len=np.arange(1, n + 1),
        input_len=np.array(draw(st.lists(st.integers(1, 500), min_size=n, max_size=n))),
        session=session, turn=[int((session[:i] == session[i]).sum()) for i in range(n)],
        think_ns=np.arange(n) * 1000, prefix_group=np.arange(n) % 3 - 1, prefix_lens=np.array([5, 9]),
        tenant=np.arange(n) % 2, tenant_names=("a", "b"), name="t",
        blocks=draw(st.sampled_from([None, blocks])))


def identity(trace: Trace) -> list[int]:
    return trace.output_len.tolist()


def check_rows(shaped: Trace, trace: Trace) -> None:
    """Every request has kept what it is; times start at 0 and are sorted, turns too (by Trace itself)."""
    assert len(set(identity(shaped))) == len(shaped)
    rows = shaped.output_len - 1
    for column in ("input_len", "session", "turn", "prefix_group", "tenant"):
        assert getattr(shaped, column).tolist() == getattr(trace, column)[rows].tolist()
    assert (shaped.blocks is None) == (trace.blocks is None)
    if shaped.blocks is not None:
        assert [shaped.blocks.of(i).tolist() for i in range(len(shaped))] == [
            [row * 3] * 2 for row in rows.tolist()]
    assert shaped.arrival_ns[0] == 0
    for number in set(shaped.session.tolist()) - {-1}:
        assert np.all(np.diff(shaped.turn[shaped.session == number]) > 0)


def from_first_turn(trace: Trace) -> dict[int, int]:
    """By request, how long after the first request of its conversation it comes."""
    first = shaping.first_of_session(trace.session)
    return dict(zip(identity(trace), (trace.arrival_ns - trace.arrival_ns[first]).tolist(), strict=True))


@given(traces(), st.floats(0, 60), st.floats(0.1, 60))
def test_a_window_holds_the_requests_of_its_time(trace: Trace, begin: float, length: float) -> None:
    """From its beginning on, up to but without its end; the first request of it comes at 0."""
    inside = [row for row, at_ns in zip(identity(trace), trace.arrival_ns.tolist(), strict=True)
              if begin * SECOND <= at_ns < (begin + length) * SECOND]
    if not inside:
        with pytest.raises(UsageError, match="no request of t comes between"):
            shaping.window(trace, begin, begin + length)
        return
    cut = shaping.window(trace, begin, begin + length)
    assert identity(cut) == inside
    check_rows(cut, trace)


@given(traces(), st.floats(0.01, 100))
def test_time_is_stretched_as_a_whole(trace: Trace, factor: float) -> None:
    """Arrivals and thinking times alike, to the nanosecond; nothing else changes."""
    stretched = shaping.scale_time(trace, factor)
    assert identity(stretched) == identity(trace)
    check_rows(stretched, trace)
    assert stretched.arrival_ns.tolist() == [round(at_ns * factor) for at_ns in trace.arrival_ns.tolist()]
    assert stretched.think_ns.tolist() == [round(ns * factor) for ns in trace.think_ns.tolist()]


@given(traces(), st.integers(1, 9))
def test_an_overlay_folds_time_and_copies_nothing(trace: Trace, times: int) -> None:
    """All requests come in a `times`-th of the time, conversations at the pace that they had."""
    folded = shaping.overlay(trace, times)
    assert sorted(identity(folded)) == identity(trace)
    check_rows(folded, trace)
    assert from_first_turn(folded) == from_first_turn(trace)
    begins = folded.arrival_ns[shaping.first_of_session(folded.session)]
    assert begins.max() < math.ceil((trace.arrival_ns[-1] + 1) / times)


@given(st.lists(st.integers(200, 20_000), min_size=100, max_size=300), st.floats(0.05, 3))
def test_the_mean_length_is_scaled(lengths: list[int], factor: float) -> None:
    """To half a percent, each length to a token; so the mix stays."""
    trace = Trace(arrival_ns=np.arange(len(lengths)), input_len=lengths, output_len=lengths)
    scaled = shaping.scale_lengths(trace, factor)
    for column in (scaled.input_len, scaled.output_len):
        assert column.mean() == pytest.approx(np.mean(lengths) * factor, rel=0.005)
        assert np.abs(column - np.array(lengths) * factor).max() <= 1


@given(st.data())
def test_scaled_blocks_keep_what_prompts_share(data: st.DataObject) -> None:
    """A prompt keeps its number of blocks and their keys, so that the same share of it repeats."""
    lengths = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=20))
    counts = [-(-length // 512) for length in lengths]
    trace = Trace(arrival_ns=np.arange(len(lengths)), input_len=lengths, output_len=lengths,
                  blocks=PromptBlocks(512, np.arange(sum(counts)), np.cumsum([0, *counts])))
    size = data.draw(st.integers(1, 1000))
    scaled = shaping.scale_lengths(trace, size / 512)
    assert scaled.blocks is not None
    assert scaled.blocks.size == size
    assert scaled.blocks.keys.tolist() == list(range(sum(counts)))
    assert (-(-scaled.input_len.astype(np.int64) // size)).tolist() == counts
    assert np.all(np.abs(scaled.input_len - trace.input_len * (size / 512)) < 1)


def test_blocks_stay_whole_tokens() -> None:
    """A factor that would cut tokens is refused, with those next to it."""
    trace = Trace(arrival_ns=[0], input_len=[600], output_len=[1],
                  blocks=PromptBlocks(512, np.array([1, 2]), np.array([0, 2])))
    with pytest.raises(UsageError, match=r"such as 51/512 = 0\.0996094 or 52/512"):
        shaping.scale_lengths(trace, 0.1)


@given(st.lists(st.tuples(st.integers(1, 50_000), st.integers(1, 5000)), min_size=1, max_size=30),
       st.integers(2, 8192), st.booleans())
def test_the_largest_scale_that_fits_fits(lengths: list[tuple[int, int]], longest: int, blocks: bool) -> None:
    """Scaled by it, no request is longer than the model, whatever rounding does."""
    trace = Trace(arrival_ns=np.arange(len(lengths)), input_len=[i for i, _ in lengths],
                  output_len=[o for _, o in lengths])
    if blocks:
        counts = [-(-length // 16) for length, _ in lengths]
        trace = replace(trace, blocks=PromptBlocks(16, np.arange(sum(counts)), np.cumsum([0, *counts])))
    try:
        factor = shaping.scale_to_fit(trace, longest)
    except UsageError:
        return
    assert 0 < factor <= 1
    scaled = shaping.scale_lengths(trace, factor)
    assert (scaled.input_len + scaled.output_len).max() <= longest


@settings(max_examples=150)
@given(traces(most_rows=60), st.floats(0.01, 1), st.integers(0, 5))
def test_a_subsample_holds_whole_conversations(trace: Trace, keep: float, seed: int) -> None:
    """Nothing is copied; a conversation is taken as a whole, at its own pace, or not at all."""
    taken = shaping.subsample(trace, keep, np.random.default_rng(seed))
    check_rows(taken, trace)
    for number in set(taken.session.tolist()) - {-1}:
        assert (taken.session == number).sum() == (trace.session == number).sum()
    before = from_first_turn(trace)
    assert all(before[request] == after for request, after in from_first_turn(taken).items())


@given(traces(), st.integers(0, 5))
def test_ticks_are_spread_up_to_the_next(trace: Trace, seed: int) -> None:
    """Requests keep their order, and none leaves its tick."""
    spread = shaping.spread_ticks(trace, np.random.default_rng(seed))
    assert identity(spread) == identity(trace)
    ticks = np.unique(trace.arrival_ns)
    after = np.append(ticks[1:], np.iinfo(np.int64).max)[np.searchsorted(ticks, trace.arrival_ns)]
    assert np.all(spread.arrival_ns >= trace.arrival_ns)
    assert np.all((spread.arrival_ns < after) | (after == trace.arrival_ns))


@given(traces(), st.integers(2, 600))
def test_long_requests_are_left_out_and_counted(trace: Trace, longest: int) -> None:
    """Those that fit stay as they are; where none does, that is said."""
    fitting = [row + 1 for row in range(len(trace)) if trace.input_len[row] + row + 1 <= longest]
    if not fitting:
        with pytest.raises(UsageError, match="is longer than"):
            shaping.fit_lengths(trace, longest, "reject")
        return
    kept = shaping.fit_lengths(trace, longest, "reject")
    assert identity(kept) == fitting
    check_rows(kept, trace)
    assert kept.rejected.get("too long", 0) == len(trace) - len(fitting)


@given(traces(), st.integers(2, 600))
def test_clipped_requests_fit_and_are_counted(trace: Trace, longest: int) -> None:
    """The prompt is cut first, down to a token, then the answer; requests that fit stay as they are."""
    clipped = shaping.fit_lengths(trace, longest, "clip")
    total = trace.input_len + trace.output_len
    assert clipped.clipped == (total > longest).sum()
    assert np.all((clipped.input_len + clipped.output_len) == np.minimum(total, longest))
    assert np.all((clipped.output_len == trace.output_len) | (clipped.input_len == 1))


@given(st.lists(traces(), min_size=1, max_size=3), st.booleans())
def test_merged_traces_share_nothing(parts: list[Trace], blocks_of_12: bool) -> None:
    """Every request is there once, at its time and under its tenant; conversations, groups and blocks of
    two traces are never the same."""
    if blocks_of_12 and parts[0].blocks is not None:
        parts[0] = replace(parts[0], blocks=PromptBlocks(12, parts[0].blocks.keys, parts[0].blocks.offset))
    parts = [replace(part, output_len=part.output_len + 1000 * number, rejected={"failed": number})
             for number, part in enumerate(parts)]
    merged = shaping.merge(parts)
    assert Counter(identity(merged)) == Counter(row for part in parts for row in identity(part))
    assert merged.rejected == {"failed": sum(range(len(parts)))}
    where = {row: place for place, row in enumerate(identity(merged))}
    seen: dict[str, set[int]] = {"session": set(), "group": set(), "key": set()}
    for part in parts:
        rows = np.array([where[row] for row in identity(part)])
        assert np.all(np.diff(rows) > 0)
        assert merged.arrival_ns[rows].tolist() == part.arrival_ns.tolist()
        assert [merged.tenant_names[k] for k in merged.tenant[rows]] == [
            part.tenant_names[k] for k in part.tenant]
        groups = merged.prefix_group[rows]
        assert merged.prefix_lens[groups[groups >= 0]].tolist() == part.prefix_lens[
            part.prefix_group[groups >= 0]].tolist()
        names = {"session": merged.session[rows], "group": groups}
        if merged.blocks is not None:
            names["key"] = merged.blocks.take(rows).keys
            if part.blocks is not None:
                pieces = part.blocks.size // merged.blocks.size
                assert len(names["key"]) == pieces * len(part.blocks.keys)
                assert len(set(names["key"].tolist())) == pieces * len(set(part.blocks.keys.tolist()))
        for name, numbers in names.items():
            own = set(numbers.tolist()) - ({-1} if name != "key" else set())
            assert not own & seen[name]
            seen[name] |= own


def test_what_needs_times_says_so() -> None:
    """A trace that does not say when its requests came cannot be cut, stretched, thinned or merged."""
    trace = Trace(arrival_ns=[], input_len=[1, 2], output_len=[3, 4], name="texts.json")
    rng = np.random.default_rng(0)
    for attempt in (lambda: shaping.window(trace, 0, 1), lambda: shaping.scale_time(trace, 2),
                    lambda: shaping.overlay(trace, 2), lambda: shaping.subsample(trace, 0.5, rng),
                    lambda: shaping.spread_ticks(trace, rng), lambda: shaping.merge([trace, trace])):
        with pytest.raises(UsageError, match=r"texts\.json does not say when its requests came"):
            attempt()
    assert shaping.scale_lengths(trace, 2).input_len.tolist() == [2, 4]


@pytest.mark.parametrize("factor", [1e300, 5e7])
def test_lengths_beyond_any_model_are_refused(factor: float) -> None:
    """In place of numbers that wrapped around."""
    trace = Trace(arrival_ns=[0, 5], input_len=[100, 7], output_len=[3, 4])
    with pytest.raises(UsageError, match="scale by less"):
        shaping.scale_lengths(trace, factor)
    with pytest.raises(UsageError, match="within a century"):
        shaping.scale_time(trace, 1e300)
