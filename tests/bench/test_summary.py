import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.catalog import CATALOG
from bench.goodput import GoodputRules
from bench.prefill_curve import Deadlines, PrefillCurve
from bench.run import Outcome, Run
from bench.summary import Summary, summarise
from engine_adapter.errors import Crashed
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog

MS = 1_000_000
RunOf = Callable[..., Run]
STEADY = [(200, 1), (220, 1), (240, 1)]
DEADLINES = Deadlines(PrefillCurve((16,), (100 * MS,)), slack_ns=0, decode_ns=25 * MS)

reads_of_one = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 4)), max_size=8)


def at_times(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(gap, tokens) pairs as reads with running times."""
    times = np.cumsum([gap for gap, _ in steps], dtype=np.int64).tolist()
    return [(time, tokens) for time, (_, tokens) in zip(times, steps, strict=True)]


def ms(summary: Summary, metric: str, stat: str) -> float | None:
    value = summary.figure(metric, stat).value
    return None if value is None else value / MS


def test_first_token_is_in_no_gap(run_of: RunOf) -> None:
    """Three token times give a time to first token and exactly two gaps."""
    summary = summarise(run_of([STEADY]))
    assert ms(summary, "ttft", "max") == 200
    assert ms(summary, "itl", "mean") == ms(summary, "tbt", "mean") == ms(summary, "tpot", "mean") == 20
    assert summary.figure("tbt", "mean").n == summary.figure("itl", "mean").n == 2
    assert ms(summary, "e2e", "max") == 240


def test_tokens_of_one_read_count_as_gap_and_zeros(run_of: RunOf) -> None:
    """A 100 ms wait that brings four tokens is one gap of 100 and three of 0, never four of 25."""
    summary = summarise(run_of([[(50, 1), (150, 4)]]))
    assert ms(summary, "tbt", "max") == 100
    assert ms(summary, "tbt", "median") == 0
    assert summary.figure("tbt", "max").n == 4
    assert (ms(summary, "itl", "max"), summary.figure("itl", "max").n) == (100, 1)
    assert ms(summary, "tpot", "max") == 25


def test_rare_stalls_hide_from_p99_but_not_from_the_longest(run_of: RunOf) -> None:
    """200 requests with one 200 ms stall in 0.5 % of their gaps: p99 TBT is 20 ms, the maximum 200 ms."""
    gaps = [20] * 199
    gaps[100] = 200
    reads = [(time, 1) for time in np.cumsum([30, *gaps]).tolist()]
    summary = summarise(run_of([reads] * 200), deadlines=DEADLINES)
    assert ms(summary, "tbt", "p99") == 20
    assert ms(summary, "tbt", "max") == 200
    assert ms(summary, "stall", "max") == 0  # 100 gaps of 20 ms had saved up 500 ms of reading time


def test_one_token_has_no_gap_and_no_tpot(run_of: RunOf) -> None:
    """A one-token answer counts for its first token only."""
    summary = summarise(run_of([[(40, 1)]]))
    for metric in ("tbt", "itl", "tpot"):
        figure = summary.figure(metric, "mean")
        assert (figure.value, figure.n, figure.why_missing) == (None, 0, "no samples")


def test_warm_up_and_failures_are_not_in_the_latencies(run_of: RunOf) -> None:
    """Only measured successes make latencies; ten answers and ten empty ones have the answers' median."""
    requests = [[(9_000, 1)]] + [[(100, 1)]] * 10 + [[]] * 10
    run = run_of(requests, warmups=1, outcomes=[Outcome.OK] * 21)
    summary = summarise(run)
    assert ms(summary, "ttft", "max") == ms(summary, "ttft", "median") == 100
    assert summary.figure("ttft", "max").n == 10
    assert summary.figure("error_rate").value == 0.5
    assert run.outcome_counts() == {"ok": 10, "empty": 10}


def test_latency_from_the_planned_time_includes_a_late_client(run_of: RunOf) -> None:
    """Sending 30 ms late moves the intended-relative times by 30 ms and shows as schedule lag."""
    summary = summarise(run_of([STEADY], lag_ms=30))
    assert ms(summary, "ttft", "max") == 200
    assert ms(summary, "ttft_from_intended", "max") == 230
    assert ms(summary, "e2e_from_intended", "max") == 270
    assert ms(summary, "schedule_lag", "max") == 30


@pytest.mark.parametrize(
    ("stat", "needed"),
    [("p99", 100), ("p99.9", 1000), ("p90", 10), ("p75", 4), ("p10", 10), ("p1", 100), ("p50", 1)],
)
def test_a_percentile_needs_a_sample_beyond_it(run_of: RunOf, stat: str, needed: int) -> None:
    """With one sample fewer than can say it, a percentile is refused with the count; then it is given."""
    requests = [[(100 + i, 1)] for i in range(needed)]
    assert summarise(run_of(requests)).figure("ttft", stat).value is not None
    refused = summarise(run_of(requests[1:])).figure("ttft", stat)
    assert refused.value is None
    assert refused.n == needed - 1
    assert refused.why_missing == ("no samples" if needed == 1 else
                                   f"{stat} needs at least {needed} samples, there are {needed - 1}")


@given(st.lists(st.integers(0, 10_000), min_size=100, max_size=130))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_statistics_are_numpys(run_of: RunOf, ttfts: list[int]) -> None:
    """Percentiles are linear as numpy's, the deviation is the population's."""
    summary = summarise(run_of([[(t, 1)] for t in ttfts]))
    for stat, q in (("p1", 1), ("p50", 50), ("p97.5", 97.5), ("p99", 99)):
        assert ms(summary, "ttft", stat) == pytest.approx(np.percentile(ttfts, q))
    assert ms(summary, "ttft", "std") == pytest.approx(np.std(ttfts), abs=1e-6)
    assert ms(summary, "ttft", "mean") == pytest.approx(np.mean(ttfts))


@given(st.lists(reads_of_one, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_gaps_add_up(run_of: RunOf, requests: list[list[tuple[int, int]]]) -> None:
    """The gaps sum to last minus first token, with the time to first token to the end-to-end time;
    tokens are gaps plus first tokens."""
    run = run_of([at_times(reads) for reads in requests])
    summary = summarise(run)
    total = {name: (f.value or 0) * f.n for name in ("tbt", "itl", "ttft", "e2e")
             for f in [summary.figure(name, "mean")]}
    assert total["tbt"] == pytest.approx(total["itl"])
    assert total["ttft"] + total["tbt"] == pytest.approx(total["e2e"])
    assert summary.figure("tbt", "max").n + int(run.ok.sum()) == int(run.num_tokens.sum())


def test_fluidity_and_stalls_of_a_run(run_of: RunOf) -> None:
    """A 50 ms stall right after the first token costs two deadlines and is 40 ms late."""
    run = run_of([[(100, 1), (165, 1), (185, 1)], [(100, 1), (125, 1)]])
    summary = summarise(run, deadlines=DEADLINES)
    assert summary.figure("fluidity", "min").value == pytest.approx(1 - 2 / 4)
    assert summary.figure("fluidity", "pooled").value == pytest.approx(1 - 2 / 6)
    assert summary.figure("stall", "count").value == 1
    assert ms(summary, "stall", "total") == ms(summary, "stall", "max") == 40
    assert summary.figure("stalled_requests").value == 0.5


def test_without_deadlines_fluidity_is_missing_and_says_so(run_of: RunOf) -> None:
    """No curve, no fluidity: None with the reason, not 1."""
    figure = summarise(run_of([STEADY])).figure("fluidity", "p10")
    assert figure.value is None
    assert "no prefill-deadline curve" in figure.why_missing


def test_throughput_is_of_the_measured_window(run_of: RunOf) -> None:
    """The window runs from the last warm-up arrival to the last end, drain included."""
    summary = summarise(run_of([STEADY] * 5, warmups=1))
    assert summary.duration_s == pytest.approx(0.4 + 0.24)
    assert summary.figure("request_throughput").value == pytest.approx(4 / 0.64)
    assert summary.figure("output_throughput").value == pytest.approx(12 / 0.64)
    assert summary.figure("total_token_throughput").value == pytest.approx((12 + 64) / 0.64)
    assert summary.figure("achieved_rate").value == 1


def test_scheduling_delay_comes_from_the_step_log(run_of: RunOf) -> None:
    """Sending to the first step with the request; refused when steps were lost."""
    sent = [1_100, 1_200]
    starts = [t * MS for t in (1_107, 1_203)]
    steps = {name: np.zeros(2, dtype=np.int64) for name in STEP_COLUMNS} | {
        "step": np.array([7, 8]), "start_ns": np.array(starts)}
    chunks = {name: np.zeros(2, dtype=np.int64) for name in CHUNK_COLUMNS} | {
        "step": np.array([7, 8]), "request": np.array([0, 1])}
    run = run_of([STEADY] * 2, steps=StepLog(steps, chunks))
    assert run.sent_ns.tolist() == [t * MS for t in sent]
    assert ms(summarise(run), "scheduling_delay", "max") == 7
    lossy = run_of([STEADY] * 2, steps=StepLog(steps, chunks, lost=3))
    assert "3 engine steps were overwritten" in summarise(lossy).figure("scheduling_delay", "max").why_missing


def test_goodput_counts_failures_and_shows_the_undetermined(run_of: RunOf) -> None:
    """Failed requests are not good; a one-token answer that breaks nothing is left open."""
    requests = [STEADY, [(200, 1), (300, 1)], [], [(200, 1)], [(900, 1)]]
    run = run_of(requests, outcomes=[Outcome.OK] * 2 + [Outcome.REJECTED] + [Outcome.OK] * 2)
    summary = summarise(run, goodput=GoodputRules.parse("ttft:200 tbt:50"))
    attainment = summary.figure("goodput", "attainment")
    assert summary.undetermined == 1
    assert (attainment.value, attainment.n) == (1 / 4, 4)
    assert summary.duration_s is not None
    assert summary.figure("goodput", "rate").value == pytest.approx(1 / summary.duration_s)
    assert summary.figure("goodput", "token_rate").value == pytest.approx(3 / summary.duration_s)


def test_after_a_crash_every_planned_request_counts(run_of: RunOf) -> None:
    """A dead engine is charged with the requests it could not be sent; an interrupted client is not."""
    outcomes = [Outcome.OK, Outcome.CRASHED, Outcome.CUT_SHORT, Outcome.NOT_SENT]
    crashed = run_of([STEADY, [], [], []], outcomes=outcomes, failure=Crashed("died"))
    assert summarise(crashed).figure("error_rate").value == 0.75
    interrupted = run_of([STEADY, [], [], []], outcomes=outcomes)
    assert summarise(interrupted).figure("error_rate").value == 0.5


@pytest.mark.parametrize("requests", [[], [[(10, 1)]], [[]], [[], []]])
def test_hardly_any_data_is_still_json(run_of: RunOf, requests: list[list[tuple[int, int]]]) -> None:
    """Zero, one or only failed requests: valid JSON without NaN or infinity, nulls where nothing is known."""
    run = run_of(requests, rate_rps=10)
    summary = summarise(run, deadlines=DEADLINES, goodput=GoodputRules.parse("tpot:5 fluidity:0.9 stall:1"))
    written = summary.as_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written["p99_tbt_ms"] is None
    assert written["missing"]["p99_tbt_ms"]


def test_every_figure_of_the_catalog_can_be_asked_for(run_of: RunOf) -> None:
    """Each metric with each of its statistics gives a finite value or None with a reason."""
    run = run_of([STEADY] * 120)
    summary = summarise(run, deadlines=DEADLINES, goodput=GoodputRules.parse("ttft:200"))
    for metric in CATALOG.values():
        for stat in [s.replace("pNN", "p99") for s in metric.statistics] or [None]:
            figure = summary.figure(metric.name, stat)
            assert math.isfinite(figure.value) if figure.value is not None else figure.why_missing


def test_the_keys_of_vllm_bench_serve_are_there(run_of: RunOf) -> None:
    """Scripts that read vLLM's result files find their keys, in milliseconds, beside ours."""
    written = summarise(run_of([STEADY] * 100), deadlines=DEADLINES).as_dict()
    for name in ("ttft", "tpot", "itl", "e2el"):
        for stat in ("mean", "median", "std", "p99"):
            assert isinstance(written[f"{stat}_{name}_ms"], float)
    expected = {"date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts",
                "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed",
                "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput",
                "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
                "max_concurrent_requests"}
    assert expected <= set(written)
    assert written["median_ttft_ms"] == 200
    assert written["n"]["tbt"] == 200
    assert written["fluidity_index_service"] is not None


def test_repr_tells_the_reader_of_a_failed_assert_what_ran(run_of: RunOf) -> None:
    """One line with load, outcomes, TTFT, lag and validity."""
    line = repr(run_of([STEADY] * 3, warmups=1, meta={"workload": {"name": "cpu"}}))
    assert line.startswith("<Run cpu @ 10 rps | 2 ok 0 failed 1 warm-up | ttft p50 200")
    assert "valid" in line


def test_figures_outlive_what_they_were_made_of(run_of: RunOf) -> None:
    """After letting go the JSON is the same, and single figures can still be asked for."""
    summary = summarise(run_of([[(100, 1), (120, 2), (150, 1)]] * 40))
    told, gap = summary.as_dict(), summary.figure("tbt", "max")
    summary.let_go()
    assert summary.as_dict() == told
    assert summary.figure("tbt", "max") == gap


def test_a_run_begins_no_later_than_its_first_measured_request(run_of: Callable[..., Run]) -> None:
    """A turn of the warm-up that is due late does not shorten the time that rates are counted over."""
    run = run_of([[(10, 2)]] * 4, warmups=2)
    late = replace(run, intended_ns=run.intended_ns + np.array([0, 10**9, 0, 0]))
    plain, moved = summarise(run).duration_s, summarise(late).duration_s
    assert plain is not None
    assert moved is not None
    assert moved >= plain - 0.2
    assert moved == pytest.approx(0.11)
