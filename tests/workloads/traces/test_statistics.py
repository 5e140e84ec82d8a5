"""Figures of traces and plans: exact, whatever the pieces; null where there is nothing to measure."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import build_plan, load_workload
from workloads.plan import Plan
from workloads.prompt_parts import PromptBlocks
from workloads.traces.arrival_counts import ArrivalCounts
from workloads.traces.length_counts import LengthCounts
from workloads.traces.statistics import TraceStatistics, plan_statistics, trace_statistics
from workloads.traces.trace import Trace

SECOND = 1_000_000_000
gaps_ns = st.lists(st.integers(0, 5 * SECOND) | st.integers(0, 100 * SECOND), min_size=1, max_size=60)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Small traces that have everything: times, tenants, conversations, groups, blocks in some rows."""
    gaps = draw(gaps_ns)
    n = len(gaps)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    keys = column(st.lists(st.integers(-3, 3) | st.sampled_from([2**40, 2**62]), max_size=4))
    return Trace(
        arrival_ns=np.cumsum(gaps), input_len=column(st.integers(1, 40)),
        output_len=column(st.integers(1, 9)), tenant=column(st.integers(0, 1)), tenant_names=("a", "b"),
        session=column(st.integers(-1, 2)),
        think_ns=column(st.integers(0, 3)) if draw(st.booleans()) else [],
        prefix_group=column(st.integers(-1, 1)), prefix_lens=[10, 25],
        blocks=draw(st.sampled_from([None, blocks(keys)])))


def blocks(keys: list[list[int]], size: int = 8) -> PromptBlocks:
    return PromptBlocks(size, np.array([key for row in keys for key in row], dtype=np.int64),
                        np.cumsum([0, *map(len, keys)]))


def reused_tokens(trace: Trace) -> list[int]:
    """What stood before, row by row and token by token: every prompt is spelt out as in Plan.prompt_parts."""
    whole: dict[int, list[Any]] = {}
    cached: set[tuple[Any, ...]] = set()
    found = []
    for row in range(len(trace)):
        length, session, group = (int(of[row]) for of in (trace.input_len, trace.session, trace.prefix_group))
        keys = [] if trace.blocks is None else trace.blocks.of(row).tolist()
        before = whole.get(session) if session >= 0 else None
        if keys:
            # A cache of blocks: a key is found wherever it stood.
            assert trace.blocks is not None
            prompt = [("block", key, i) for key in keys for i in range(trace.blocks.size)][:length]
            hits = next((i for i, key in enumerate(keys) if ("key", key) not in cached), len(keys))
            found.append(min(hits * trace.blocks.size, length))
        else:
            if before is not None:
                prompt = before[:length - 1]
            elif group >= 0:
                prompt = [("group", group, i) for i in range(min(length, int(trace.prefix_lens[group])))]
            else:
                prompt = []
            hit = next((k for k in range(len(prompt), 0, -1) if tuple(prompt[:k]) in cached), 0)
            # Beginnings of blocks are found by their keys alone.
            found.append(len(prompt) if before is not None else hit)
        prompt = prompt + [("own", row, i) for i in range(length - len(prompt))]
        answer = [("answer", row, i) for i in range(int(trace.output_len[row]))]
        if session >= 0:
            whole[session] = prompt + answer
        cached |= {("key", key) for key in keys}
        cached |= {tuple(prompt[:k]) for k in range(1, length + 1)}
    return found


@settings(max_examples=60, deadline=None)
@given(traces(), st.data())
def test_pieces_do_not_matter(trace: Trace, data: st.DataObject) -> None:
    """A trace has the same figures in whatever pieces it comes."""
    statistics = TraceStatistics()
    at = 0
    while at < len(trace):
        size = data.draw(st.integers(1, len(trace)))
        statistics.add(trace.take(np.arange(at, min(at + size, len(trace)))))
        at += size
    assert statistics.as_dict() == trace_statistics(trace)


@settings(max_examples=60, deadline=None)
@given(traces())
def test_figures_are_those_of_a_naive_reading(trace: Trace) -> None:
    """Percentiles, means, gaps and windows equal what numpy says of the whole columns."""
    found = trace_statistics(trace)
    for name in ("input_len", "output_len"):
        column = getattr(trace, name)
        for q in (50, 90, 95, 99):
            assert found[name][f"p{q}"] == np.percentile(column, q)
        assert found[name]["mean"] == pytest.approx(column.mean())
        assert (found[name]["min"], found[name]["max"]) == (column.min(), column.max())
    span = int(trace.arrival_ns[-1] - trace.arrival_ns[0])
    assert found["span_s"] == span / 1e9
    gaps = np.diff(trace.arrival_ns)
    assert found["same_time_share"] == ((gaps == 0).mean() if len(gaps) else None)
    if len(gaps) >= 2 and span:
        assert found["arrival_cv"] == pytest.approx(gaps.std() / gaps.mean())
        assert found["rate_rps"] == pytest.approx(len(trace) / (span / 1e9))
    else:
        assert found["arrival_cv"] is None
    for window in (1, 10, 60):
        counts = np.bincount((trace.arrival_ns - trace.arrival_ns[0]) // (window * SECOND))
        expected = counts.var() / counts.mean() if len(counts) > 1 else None
        assert found["index_of_dispersion"][f"{window}s"] == (
            None if expected is None else pytest.approx(expected))


@settings(max_examples=120, deadline=None)
@given(traces())
def test_reuse_is_that_of_the_spelt_out_prompts(trace: Trace) -> None:
    """Blocks are found by their keys from the beginning on, later turns find what they repeat, groups their
    prefix once it came."""
    reused = reused_tokens(trace)
    found = trace_statistics(trace)
    known = trace.blocks is not None or (trace.session >= 0).any() or (trace.prefix_group >= 0).any()
    if not known:
        assert found["prefix_reuse"] is None
        assert found["uncached_input_len"] is None
        return
    assert found["prefix_reuse"] == pytest.approx(sum(reused) / int(trace.input_len.sum()))
    uncached = trace.input_len - np.array(reused)
    assert found["uncached_input_len"]["p90"] == np.percentile(uncached, 90)


@settings(max_examples=40, deadline=None)
@given(traces())
def test_tenants_add_up(trace: Trace) -> None:
    """The rows and rates of the tenants add up to those of the trace."""
    found = trace_statistics(trace)
    parts = found.get("tenants", {}).values()
    if parts:
        assert sum(part["rows"] for part in parts) == found["rows"]
        assert sum(part["input_tokens"] for part in parts) == found["input_tokens"]
    if parts and found["rate_rps"] is not None:
        assert sum(part["rate_rps"] for part in parts) == pytest.approx(found["rate_rps"])


def test_a_tenant_that_comes_late_is_told_from_the_rows_before() -> None:
    """Pieces before the second tenant was named count as the first one's."""
    piece = Trace(arrival_ns=[0, SECOND], input_len=[3, 5], output_len=[1, 1], tenant_names=("chat",))
    later = replace(piece, arrival_ns=piece.arrival_ns + 2 * SECOND, tenant=np.array([1, 1]),
                    tenant_names=("chat", "batch"))
    statistics = TraceStatistics()
    statistics.add(piece)
    statistics.add(later)
    found = statistics.as_dict()["tenants"]
    assert {name: part["rows"] for name, part in found.items()} == {"chat": 2, "batch": 2}
    assert found["chat"]["input_len"]["max"] == 5


def test_nothing_is_said_of_nothing() -> None:
    """Without rows, times, a second row or a whole window there is null, never 0 or NaN."""
    empty = trace_statistics(Trace(arrival_ns=[], input_len=[], output_len=[]))
    assert empty["rows"] == 0
    assert [empty[name] for name in ("span_s", "rate_rps", "arrival_cv", "input_len", "prefix_reuse")] == (
        [None] * 5)
    untimed = trace_statistics(Trace(arrival_ns=[], input_len=[4, 6], output_len=[1, 3]))
    assert (untimed["span_s"], untimed["rate_rps"], untimed["input_len"]["p50"]) == (None, None, 5.0)
    at_once = trace_statistics(Trace(arrival_ns=[0, 0, 0], input_len=[1] * 3, output_len=[1] * 3))
    assert (at_once["span_s"], at_once["rate_rps"], at_once["arrival_cv"]) == (0, None, None)
    assert at_once["index_of_dispersion"] == {"1s": None, "10s": None, "60s": None}
    for found in (empty, untimed, at_once):
        json.dumps(found, allow_nan=False)


def test_rejected_rows_are_counted_by_reason() -> None:
    """`rejected` is their sum; rows that were cut are counted apart."""
    found = trace_statistics(Trace(arrival_ns=[0], input_len=[1], output_len=[1],
                                   rejected={"failed": 3, "too long": 4}, clipped=2))
    assert (found["rejected"], found["rejected_by_reason"], found["clipped"]) == (
        7, {"failed": 3, "too long": 4}, 2)


def test_gaps_of_days_do_not_overflow() -> None:
    """Squares of nanoseconds are exact beyond 64 bits."""
    arrivals = ArrivalCounts()
    day = 86_400 * SECOND
    arrivals.add(np.array([0, 1, 40 * day, 40 * day + 1, 200 * day]))
    gaps = np.diff(np.array([0, 1, 40 * day, 40 * day + 1, 200 * day], dtype=float))
    assert arrivals.gap_cv == pytest.approx(gaps.std() / gaps.mean())
    width_s, counts = arrivals.series()
    assert (width_s, int(counts.sum()), len(counts)) == (86_400, 5, 201)


@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=50))
def test_the_series_does_not_depend_on_the_pieces(seconds: list[int]) -> None:
    """Windows widen while time passes; every arrival stays in the one it belongs to."""
    times = np.cumsum(seconds) * SECOND
    whole, single = ArrivalCounts(), ArrivalCounts()
    whole.add(times)
    for at in times:
        single.add(np.array([at]))
    width_s, counts = whole.series()
    assert single.series()[0] == width_s
    assert single.series()[1].tolist() == counts.tolist() == np.bincount(
        (times - times[0]) // (width_s * SECOND)).tolist()


@given(st.lists(st.lists(st.integers(0, 2**31 - 1) | st.integers(1, 9), min_size=1, max_size=30), min_size=1,
                max_size=5), st.floats(0, 100))
def test_percentiles_of_counts_are_those_of_numpy(pieces: list[list[int]], q: float) -> None:
    """To the last bit, for any percentile and any pieces."""
    counts = LengthCounts()
    for piece in pieces:
        counts.add(np.array(piece))
    values = np.concatenate(pieces)
    assert counts.percentile(q) == np.percentile(values, q)
    assert counts.above(5) == (values > 5).sum()
    assert counts.mean == pytest.approx(values.mean())
    edges = np.array([0, 1, 5, 2**31])
    assert counts.histogram(edges).tolist() == np.histogram(values, edges)[0].tolist()


def test_a_plan_is_measured_without_its_warm_up() -> None:
    """Its rows only fill the prefix cache: a prompt that they brought is found later."""
    keys = [[1, 2], [1, 2], [1, 3]]
    plan = Plan(intended_ns=[0, SECOND, 2 * SECOND], input_len=[20, 20, 20], output_len=[1, 1, 1],
                component=[0, 0, 0], prefix_group=[-1] * 3, session=[-1] * 3, turn=[0] * 3, num_warmups=1,
                seed=0, rate_rps=1.0, component_names=("only",), blocks=blocks(keys, size=10))
    found = plan_statistics(plan)
    assert (found["rows"], found["span_s"]) == (2, 1.0)
    assert found["prefix_reuse"] == (20 + 10) / 40
    assert found["prefix_reuse_detail"]["share_of_blocks"] == 3 / 4


def test_sessions_of_the_warm_up_are_not_counted() -> None:
    """Only conversations that have a turn in the measured part count, with their turns there."""
    plan = Plan(intended_ns=[0, 1, 2, 3], input_len=[5, 5, 9, 5], output_len=[1] * 4, component=[0] * 4,
                prefix_group=[-1] * 4, session=[0, 1, 1, 2], turn=[0, 0, 1, 0], num_warmups=2, seed=0,
                rate_rps=1.0, component_names=("only",))
    assert plan_statistics(plan)["sessions"] == {"count": 2, "turns_mean": 1.0, "think_s": None}


def test_a_plan_without_shared_prompts_has_a_reuse_of_zero() -> None:
    """Of a plan everything is known, also that nothing is shared; components are told apart."""
    plan = build_plan(load_workload("mixed"), rate_rps=20, duration_s=30, seed=1)
    found = plan_statistics(plan)
    assert found["prefix_reuse"] == 0
    assert found["uncached_input_len"] == found["input_len"]
    assert sum(part["rows"] for part in found["components"].values()) == len(plan)
