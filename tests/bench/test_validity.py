from collections.abc import Callable

import pytest

from bench.run import ClientHealth, Outcome, Run
from bench.validity import achieved_rate
from engine_adapter.errors import Crashed
from engine_adapter.step_log import StepLog

RunOf = Callable[..., Run]
MS = 1_000_000
STEADY = [(100, 1), (120, 1)]


def test_a_punctual_client_is_valid(run_of: RunOf) -> None:
    """Lags of a millisecond are normal."""
    validity = run_of([STEADY] * 40, lag_ms=1).validity
    assert (validity.valid, validity.reasons, validity.notes) == (True, (), ())


def test_a_late_client_is_invalid_not_slow(run_of: RunOf) -> None:
    """Sends that are late by more than 5 ms and 5 % of the median TTFT are named with the limit."""
    run = run_of([STEADY] * 100, lag_ms=12)
    assert not run.validity.valid
    assert "schedule lag p99 12.0 ms (limit 5.0 ms)" in run.validity.reasons[0]
    assert run_of([[(1_000, 1)]] * 40, lag_ms=12).validity.valid


def test_a_lateness_small_beside_the_time_between_arrivals_changes_no_load(run_of: RunOf) -> None:
    """At a request a second, 12 ms late is as good as punctual: latency runs from the real send."""
    assert run_of([STEADY] * 100, lag_ms=12, every_ms=1000).validity.valid


@pytest.mark.parametrize(("late", "valid"), [(1, True), (2, False)])
def test_one_late_send_of_few_does_not_void_a_run(run_of: RunOf, late: int, valid: bool) -> None:
    """Below a hundred requests one send may be late, two may not."""
    assert run_of([STEADY] * 40, lag_ms=[50] * late + [0] * (40 - late)).validity.valid is valid


def test_late_reads_are_invalid(run_of: RunOf) -> None:
    """An event loop that lags cannot stamp tokens in time."""
    validity = run_of([STEADY] * 40, client=ClientHealth(MS, 30 * MS, 40 * MS)).validity
    assert "event-loop lag p99 30.0 ms" in validity.reasons[0]


def test_a_rate_that_was_not_reached_is_invalid(run_of: RunOf) -> None:
    """A client that falls further and further behind did not offer the planned load."""
    run = run_of([STEADY] * 40, lag_ms=[10.0 * i for i in range(40)])
    assert achieved_rate(run) == pytest.approx(3900 / (3900 + 390))
    assert any("90.9% of the planned rate" in reason for reason in run.validity.reasons)


def test_all_at_once_has_no_schedule_to_miss(run_of: RunOf) -> None:
    """At an infinite rate sends necessarily follow one another."""
    run = run_of([STEADY] * 40, every_ms=0, lag_ms=[i / 2 for i in range(40)], rate_rps=float("inf"))
    assert run.validity.valid
    assert achieved_rate(run) is None


def test_arrivals_not_sent_are_invalid_unless_the_engine_died(run_of: RunOf) -> None:
    """Requests the client dropped are its own fault; those after a crash are not counted against it."""
    outcomes = [Outcome.OK] * 39 + [Outcome.NOT_SENT]
    dropped = run_of([STEADY] * 40, outcomes=outcomes)
    assert "1 planned requests were never sent" in dropped.validity.reasons[0]
    assert run_of([STEADY] * 40, outcomes=outcomes, failure=Crashed("x")).validity.valid


def test_what_weakens_figures_without_voiding_them_is_a_note(run_of: RunOf) -> None:
    """Few requests, short answers and lost steps are noted; the run stays valid."""
    validity = run_of([STEADY] * 5, output_len=9, steps=StepLog(lost=2)).validity
    assert validity.valid
    few, short, lost = validity.notes
    assert "only 5 requests" in few
    assert "5 answers ended before their planned length" in short
    assert "2 engine steps were overwritten" in lost


def test_no_request_is_no_evidence(run_of: RunOf) -> None:
    """A run of warm-up only says nothing."""
    assert "no measured request" in run_of([STEADY], warmups=1).validity.reasons[0]


def test_a_cut_of_a_slow_process_says_its_own_rate(run_of: Callable[..., Run]) -> None:
    """Its requests came twice as often as the mean that the run is named by: that is noted, not held
    against it."""
    named = run_of([[(10, 2)]] * 100, every_ms=50, rate_rps=10.0)
    assert any("came at 20 a second: 10 is the mean" in note for note in named.validity.notes)
    true = run_of([[(10, 2)]] * 100, every_ms=100, rate_rps=10.0)
    assert not any("is the mean of their arrivals" in note for note in true.validity.notes)
