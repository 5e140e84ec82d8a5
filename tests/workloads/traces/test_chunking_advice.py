"""Whether a load is a fit for chunked prefill: each verdict on a load made for it."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.traces.chunking_advice import BUDGETS, Advice, Load, chunking_advice
from workloads.traces.length_counts import LengthCounts
from workloads.traces.statistics import TraceStatistics
from workloads.traces.trace import Trace


def counts(*values: int) -> LengthCounts:
    made = LengthCounts()
    made.add(np.array(values, dtype=np.int64))
    return made


def load(
    prompts: LengthCounts, answers: LengthCounts, *, rate: float | None = 5.0,
    dispersion: float | None = 1.0, reuse: float | None = None, whole: LengthCounts | None = None,
) -> Load:
    return Load(prompts=prompts, whole_prompts=whole or prompts, answers=answers, rate_rps=rate,
                dispersion_10s=dispersion, prefix_reuse=reuse)


def advice(prompts: LengthCounts, answers: LengthCounts, *, rate: float | None = 5.0,
           dispersion: float | None = 1.0) -> Advice:
    return chunking_advice(load(prompts, answers, rate=rate, dispersion=dispersion))


LONG, SHORT, ANSWERS = counts(100, 8000, 20000), counts(100, 500, 1900), counts(200, 300)


def test_long_prompts_among_running_answers_are_a_good_fit() -> None:
    """They come while answers run, and a usual budget cuts them."""
    given = advice(LONG, ANSWERS)
    assert given.verdict == "good_fit"
    assert given.answers_running == pytest.approx(5 * 250 * 0.05)


def test_short_prompts_hardly_matter() -> None:
    """Where no prompt is above a usual budget, chunking changes next to nothing."""
    given = advice(SHORT, ANSWERS)
    assert given.verdict == "hardly_matters"
    assert "No prompt has more than 2048 tokens" in given.reasons[0]


def test_few_long_prompts_matter_by_their_tokens() -> None:
    """One prompt in a hundred is enough if it holds most of the tokens."""
    assert advice(counts(*[200] * 199, 100_000), ANSWERS).verdict == "good_fit"
    assert advice(counts(*[1000] * 199, 2500), ANSWERS).verdict == "hardly_matters"


def test_short_answers_to_long_prompts_wait_for_the_first_token() -> None:
    """There is little stream to stall: a large budget is where to start."""
    given = advice(counts(6000, 7000), counts(13, 20))
    assert given.verdict == "first_token_bound"
    assert "large budget" in given.headline
    assert advice(counts(6000, 7000), counts(13, 400, 500)).verdict == "good_fit"


def test_a_slow_rate_has_nobody_to_protect() -> None:
    """When a long prompt comes, no answer runs."""
    given = advice(LONG, ANSWERS, rate=0.001)
    assert given.verdict == "few_streams"
    assert given.chance_of_meeting == pytest.approx(0.0124, rel=0.01)


def test_without_times_it_depends_on_the_rate() -> None:
    """The rate is named from which on an answer runs on average."""
    given = advice(LONG, ANSWERS, rate=None, dispersion=None)
    assert given.verdict == "depends_on_rate"
    assert any("0.08 requests/s" in reason for reason in given.reasons)
    assert (given.answers_running, given.chance_of_meeting) == (None, None)


def test_nothing_is_judged_without_requests() -> None:
    """An empty trace has no verdict and no table."""
    given = chunking_advice(Load.of(TraceStatistics()))
    assert (given.verdict, given.budgets, given.reasons, given.decode_share) == ("nothing", (), (), None)


def test_prefix_hits_shorten_what_is_judged() -> None:
    """The tokens that must be computed decide, and the reason says so."""
    hits = load(counts(100, 300, 400), ANSWERS, reuse=0.97, whole=LONG)
    given = chunking_advice(hits)
    assert given.verdict == "hardly_matters"
    assert any("97 % of the prompt tokens" in reason and "8 000 to 300" in reason for reason in given.reasons)


def test_bursts_are_named() -> None:
    """Arrivals twice as uneven as Poisson's are said to queue."""
    assert any("bursts" in reason for reason in advice(SHORT, ANSWERS, dispersion=7.0).reasons)
    assert not any("bursts" in reason for reason in advice(SHORT, ANSWERS, dispersion=1.2).reasons)


def test_a_trace_is_judged_by_what_it_must_compute() -> None:
    """The second turn of a conversation computes what it adds, not its history."""
    statistics = TraceStatistics()
    statistics.add(Trace(arrival_ns=[0, 10**9], input_len=[3000, 3300], output_len=[200, 10],
                         session=[0, 0], turn=[0, 1]))
    assert Load.of(statistics).prompts.values.tolist() == [100, 3000]


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=40), st.lists(st.integers(1, 900), min_size=1),
       st.floats(0, 50) | st.none())
def test_the_table_counts_prompts_and_chunks(prompts: list[int], answers: list[int],
                                             rate: float | None) -> None:
    """Each budget cuts the prompts above it; larger ones cut fewer; no figure is a latency."""
    given = advice(counts(*prompts), counts(*answers), rate=rate or None)
    lengths = np.array(prompts)
    assert [row.token_budget for row in given.budgets] == list(BUDGETS)
    for row in given.budgets:
        assert row.prompts_cut == (lengths > row.token_budget).sum()
        assert row.mean_chunks == pytest.approx(np.maximum(np.ceil(lengths / row.token_budget), 1).mean())
        assert row.share_of_tokens == pytest.approx(
            lengths[lengths > row.token_budget].sum() / max(1, lengths.sum()))
    assert sorted((row.mean_chunks for row in given.budgets), reverse=True) == [
        row.mean_chunks for row in given.budgets]
    said = " ".join((given.headline, *given.reasons))
    assert not re.search(r"\b(nan|inf|None)\b", said)
    assert set(re.findall(r"[\d.]+ ms", said)) <= {"50 ms"}
