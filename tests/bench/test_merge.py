from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.merge import merge_runs, unplayed, worst_health
from bench.run import NEVER, ClientHealth, Outcome, Run
from bench.select import select_rows
from engine_adapter.errors import Crashed
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog
from workloads import Plan, Workload, build_plan

RunOf = Callable[..., Run]
_reads = st.lists(st.integers(0, 9000), max_size=5).map(lambda ts: [(t, 1 + t % 3) for t in sorted(ts)])
_requests = st.lists(st.tuples(_reads, st.sampled_from(Outcome), st.integers(0, 2)), min_size=1, max_size=8)
_no_fixture_check = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def _plan(n: int) -> Plan:
    return build_plan(Workload.from_lengths(4, 4), rate_rps=10, seed=0, num_prompts=n)


def _arrays(run: Run) -> dict[str, Any]:
    values = {field.name: getattr(run, field.name) for field in fields(run)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _columns(run: Run) -> dict[str, list[Any]]:
    return {name: [str(column.dtype), *column.tolist()] for name, column in _arrays(run).items()}


def _shares(run: Run, owner: list[int]) -> list[Run]:
    return [select_rows(run, np.array(owner) == worker) for worker in sorted(set(owner))]


@given(_requests, st.randoms())
@_no_fixture_check
def test_the_parts_of_a_run_make_the_run_again(run_of: RunOf, rows: list[Any], random: Any) -> None:
    """Whoever had which row, and in whatever order the parts come, every column is that of the whole."""
    run = run_of([reads for reads, _, _ in rows], outcomes=[outcome for _, outcome, _ in rows])
    parts = _shares(run, [worker for _, _, worker in rows])
    random.shuffle(parts)
    merged = merge_runs(_plan(len(run)), parts)
    assert _columns(merged) == _columns(run)
    assert merged.start_ns == run.start_ns


@given(_requests)
@_no_fixture_check
def test_selected_rows_keep_their_reads(run_of: RunOf, rows: list[Any]) -> None:
    """A selection has exactly the rows asked for, each with its own times, and a whole one is the run."""
    run = run_of([reads for reads, _, _ in rows], outcomes=[outcome for _, outcome, _ in rows])
    assert _columns(select_rows(run, np.full(len(run), True))) == _columns(run)
    mask = np.array([worker == 0 for _, _, worker in rows])
    some = select_rows(run, mask)
    assert some.index.tolist() == np.flatnonzero(mask).tolist()
    for position, row in enumerate(some.index):
        ours = some.read_ns[some.reads_offset[position]:some.reads_offset[position + 1]]
        theirs = run.read_ns[run.reads_offset[row]:run.reads_offset[row + 1]]
        assert ours.tolist() == theirs.tolist()


def test_a_row_that_is_lost_or_counted_twice_is_a_defect(run_of: RunOf) -> None:
    """Parts that are not the plan, each row once, are refused; so are parts of different schedules."""
    run = run_of([[(5, 1)]] * 4)
    first, second = _shares(run, [0, 0, 1, 1])
    for parts in ([], [first], [first, second, second]):
        with pytest.raises(ValueError, match="rows of the plan, each once"):
            merge_runs(_plan(4), parts)
    with pytest.raises(ValueError, match="did not start their schedule at one time"):
        merge_runs(_plan(4), [first, replace(second, start_ns=second.start_ns + 1)])


def test_the_worst_client_counts_and_the_whole_is_judged_anew(run_of: RunOf) -> None:
    """Each figure of client health is the worst of the workers'; verdicts of parts are not kept."""
    run = run_of([[(5, 1)]] * 60)
    lagging, quick = _shares(run, [row % 2 for row in range(60)])
    merged = merge_runs(_plan(60), [
        replace(lagging, client=ClientHealth(1, 900_000_000, 7)), replace(quick, client=ClientHealth(3, 2))])
    assert merged.client == ClientHealth(3, 900_000_000, 7)
    assert [reason for reason in merged.validity.reasons if "event-loop lag" in reason]
    assert not lagging.validity.reasons
    whole = merge_runs(_plan(60), [lagging, quick])
    assert whole.validity.valid
    assert whole.validity.notes == run.validity.notes
    assert worst_health([ClientHealth(), ClientHealth()]) == ClientHealth()


def test_peak_in_flight_is_that_of_all_workers_together(run_of: RunOf) -> None:
    """Requests of different workers that overlap add up."""
    run = run_of([[(950, 1)]] * 10, every_ms=100)
    parts = _shares(run, [row % 3 for row in range(10)])
    assert max(part.peak_in_flight() for part in parts) == 4
    assert merge_runs(_plan(10), parts).peak_in_flight() == run.peak_in_flight() == 10


def test_a_worker_that_handed_nothing_over_leaves_its_rows_not_sent(run_of: RunOf) -> None:
    """Its requests are in the run, as not sent; the run is invalid for the reason given."""
    run = run_of([[(5, 1)]] * 4)
    plan = _plan(4)
    alive = select_rows(run, np.array([True, False, True, False]))
    dead = unplayed(plan, np.array([1, 3]), run.start_ns)
    merged = merge_runs(plan, [alive, dead], cut_short="worker 2 of 2 died: Killed")
    assert merged.outcome.tolist() == [Outcome.OK, Outcome.NOT_SENT] * 2
    assert merged.sent_ns[1] == NEVER
    assert merged.intended_ns[1] == plan.intended_ns[1] + run.start_ns
    assert merged.validity.reasons[0] == "the run was cut short: worker 2 of 2 died: Killed"


def test_what_belongs_to_the_whole_run_is_given_or_gathered(run_of: RunOf) -> None:
    """Meta and steps are the caller's, failures and errors any part's, token counting the weakest."""
    run = run_of([[(5, 1)]] * 4, outcomes=[Outcome.OK, Outcome.CRASHED, Outcome.OK, Outcome.OK])
    first, second = _shares(run, [0, 1, 0, 1])
    first = replace(first, meta={"token_count_source": "token_ids", "of": "part"})
    second = replace(second, engine_failure=Crashed("it died"), error={1: "connection reset"},
                     meta={"token_count_source": "events", "token_count_sources": {"usage": 1, "events": 1}})
    steps = StepLog({n: np.arange(3) for n in STEP_COLUMNS}, {n: np.arange(2) for n in CHUNK_COLUMNS})
    merged = merge_runs(_plan(4), [first, second], meta={"seed": 5}, steps=steps)
    assert merged.meta == {"seed": 5, "token_count_source": "events",
                           "token_count_sources": {"token_ids": 2, "usage": 1, "events": 1}}
    assert len(merged.steps) == 3
    assert merged.error == {1: "connection reset"}
    assert select_rows(merged, np.arange(4) != 1).error == {}
    assert str(merged.engine_failure) == "it died"
    assert merged.validity.reasons[0] == "the run was cut short: it died"
