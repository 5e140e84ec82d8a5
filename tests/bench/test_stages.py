import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.goodput import GoodputRules
from bench.prefill_curve import Deadlines, PrefillCurve
from bench.run import Outcome, Run
from bench.stages import after_ramp_up, of_stage, stage_figures
from bench.summary import summarise
from workloads import Stage, parse_stages

RunOf = Callable[..., Run]
MS = 1_000_000


def _staged(run: Run, stages: Sequence[Stage], stage: Sequence[int]) -> Run:
    return replace(run, stage=np.array(stage, dtype=np.int16),
                   meta=run.meta | {"stages": [s.as_dict() for s in stages]})


def _two(run_of: RunOf, **more: Any) -> Run:
    """40 requests a 100 ms apart: the first half answered in 20 ms, the second in 60 ms."""
    run = run_of([[(20, 1), (30, 1)]] * 20 + [[(60, 1), (90, 1)]] * 20, **more)
    return _staged(run, parse_stages("2s@10,2s@10..20").stages, [0] * 20 + [1] * 20)


def test_each_stage_has_the_figures_of_its_own_requests(run_of: RunOf) -> None:
    """Latencies, counts and rates are the stage's; what its samples cannot say is null with a reason."""
    first, second = stage_figures(_two(run_of, warmups=5))
    assert (first["name"], first["kind"], second["kind"]) == ("2s@10", "steady", "ramp")
    assert (first["num_requests"], first["completed"], first["failed"]) == (15, 15, 0)
    assert (first["p50_ttft_ms"], second["p50_ttft_ms"]) == (20, 60)
    assert (first["max_tbt_ms"], second["max_tbt_ms"]) == (10, 30)
    assert (first["offered_rps"], first["achieved_rps"]) == (7.5, 7.5)
    assert first["p99_ttft_ms"] is None
    assert "needs at least 100 samples" in first["missing"]["p99_ttft_ms"]
    assert first["n"] == {"ttft": 15, "tbt": 15}
    json.dumps([first, second], allow_nan=False)


def test_fluidity_and_goodput_are_there_where_they_can_be_judged(run_of: RunOf) -> None:
    """With deadlines and rules each stage is judged by them; without, they are null."""
    deadlines = Deadlines(PrefillCurve((1, 100), (1, 1)), 40 * MS, 15 * MS)
    first, second = stage_figures(_two(run_of), deadlines, GoodputRules.parse("ttft:50"))
    assert (first["fluidity_index_service"], first["goodput_attainment"]) == (1, 1)
    assert second["fluidity_index_service"] < 0.5
    assert second["goodput_attainment"] == 0
    bare = stage_figures(_two(run_of))[0]
    assert bare["fluidity_index_mean"] is bare["goodput_attainment"] is None


def test_failures_and_requests_not_sent_are_counted_to_their_stage(run_of: RunOf) -> None:
    """A stage says how many of its requests failed and how many were never sent."""
    outcomes = [Outcome.OK] * 3 + [Outcome.ERROR] + [Outcome.OK] * 2 + [Outcome.NOT_SENT] * 2
    run = _staged(run_of([[(5, 1)]] * 8, outcomes=outcomes), parse_stages("1s@4,1s@4").stages,
                  [0] * 4 + [1] * 4)
    first, second = stage_figures(run)
    assert (first["failed"], first["error_rate"], first["arrivals_not_sent"]) == (1, 0.25, 0)
    assert (second["failed"], second["completed"], second["arrivals_not_sent"]) == (0, 2, 2)


def test_a_stage_is_judged_with_what_earlier_stages_left_in_flight(run_of: RunOf) -> None:
    """An overloaded stage is not sustainable, the quiet one before it is, whatever follows."""
    quiet = [[(20, 1)]] * 60
    growing = [[(20 + 100 * k, 1)] for k in range(60)]
    run = _staged(run_of(quiet + growing), parse_stages("6s@10,6s@10").stages, [0] * 60 + [1] * 60)
    first, second = stage_figures(run)
    assert (first["sustainable"], second["sustainable"]) == (True, False)
    assert "backlog grew" in second["sustainable_reasons"][-1]
    assert of_stage(run, 1).peak_in_flight() == run.peak_in_flight()


def test_ramps_and_pauses_are_not_called_sustainable_or_not(run_of: RunOf) -> None:
    """A ramp has no one load, a pause no request; its figures are null."""
    run = _staged(run_of([[(5, 1)]] * 2), parse_stages("1s@1..3,1s@0,1s@1").stages, [0, 2])
    ramp, pause, steady = stage_figures(run)
    assert [s["sustainable"] for s in (ramp, pause, steady)] == [None, None, True]
    assert (pause["num_requests"], pause["offered_rps"], pause["p50_ttft_ms"]) == (0, 0, None)


def test_a_run_without_stages_has_none(run_of: RunOf) -> None:
    """One rate throughout is not split, and nothing is left out of it."""
    run = run_of([[(5, 1)]])
    assert stage_figures(run) == []
    assert after_ramp_up(run) is run


def test_a_ramp_up_can_be_left_out_of_every_figure(run_of: RunOf) -> None:
    """What comes before the first steady stage is warm-up then; a run that is all ramp stays whole."""
    run = run_of([[(60, 1)]] * 20 + [[(20, 1)]] * 20)
    ramped = _staged(run, parse_stages("2s@1..20,2s@10,1s@10..5").stages, [0] * 20 + [1] * 15 + [2] * 5)
    summary = summarise(after_ramp_up(ramped))
    assert summary.figure("ttft", "max").value == 20 * MS
    assert summary.figure("ttft", "max").n == 20
    assert summary.duration_s == pytest.approx(2.02)
    assert len(summary.run) == len(run)
    only_ramps = _staged(run, parse_stages("4s@1..20").stages, [0] * 40)
    assert after_ramp_up(only_ramps) is only_ramps


@pytest.mark.parametrize("number", [0, 1])
def test_a_late_client_shows_in_the_stage_in_which_it_was_late(run_of: RunOf, number: int) -> None:
    """The achieved rate falls below the offered one only where sends lagged."""
    lags = np.zeros(40)
    lags[20 * number:20 * number + 20] = np.arange(20) * 100
    stages = stage_figures(_staged(run_of([[(5, 1)]] * 40, lag_ms=lags), parse_stages("2s@10,2s@10").stages,
                                   [0] * 20 + [1] * 20))
    assert stages[number]["achieved_rps"] == pytest.approx(5, rel=0.1)
    assert stages[1 - number]["achieved_rps"] == 10
