"""Trial records: typed outcomes, no contradictions, JSON."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.errors import Crashed, EngineError, Hung, OutOfMemory, StartFailed
from engine_adapter.knobs import Knobs
from tuner.trial import WORST_VALUE, Outcome, TrialRecord, TrialRun
from workloads.errors import EvidenceError

RUN = TrialRun(rate_rps=2.0, directory="run-001", holds=True, outcome="ok",
               judgement={"holds": True, "objectives": []},
               figures={"tbt_p99_ms": 40.0, "ttft_p99_ms": None}, seconds=12.5)


def record(**changes: Any) -> TrialRecord:
    values: dict[str, Any] = {
        "number": 3, "knobs": Knobs(128, 8, 32, True), "source": "sampler", "outcome": Outcome.OK,
        "capacity_rps": 2.0, "runs": (RUN,), "constraints": {"tbt:p99": -0.6}, "seconds": 30.0,
    }
    return TrialRecord(**(values | changes))


def test_records_survive_json() -> None:
    """A record read back from JSON equals the one written."""
    for one in (record(), record(outcome="crashed", capacity_rps=None, constraints={}, runs=(), note="gone")):
        assert TrialRecord.from_dict(json.loads(json.dumps(one.as_dict(), allow_nan=False))) == one


@pytest.mark.parametrize("error", [Crashed, Hung, OutOfMemory, StartFailed, EngineError])
def test_every_engine_error_names_an_outcome(error: type[EngineError]) -> None:
    """What the engine does wrong maps to a bad outcome by its own name."""
    assert Outcome(error.outcome).is_bad


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.is_bad])
def test_bad_outcomes_never_carry_a_value(outcome: Outcome) -> None:
    """Whatever a failed trial had measured before, it counts as the worst and cannot be recommended."""
    failed = record(outcome=outcome, capacity_rps=1e6)
    assert failed.objective_value() == WORST_VALUE
    assert not failed.feasible


def test_a_given_value_replaces_the_capacity() -> None:
    """At a fixed rate the caller says what is maximised."""
    assert record().objective_value() == 2.0
    assert record(value=7.25).objective_value() == 7.25
    assert record(capacity_rps=None, value=7.25).objective_value() == 7.25


@pytest.mark.parametrize("changes", [
    {"constraints": {}},
    {"constraints": {"tbt:p99": 0.1}},
    {"capacity_rps": None},
    {"capacity_rps": math.nan},
    {"capacity_rps": -1.0},
    {"value": math.inf},
    {"constraints": {"tbt:p99": math.nan}},
    {"outcome": Outcome.SLO_VIOLATED},
    {"outcome": Outcome.CRASHED, "constraints": {"tbt:p99": math.inf}},
    {"outcome": "fine"},
])
def test_records_cannot_contradict_themselves(changes: dict[str, Any]) -> None:
    """An ok trial holds everything and has a value, a violated one misses something, numbers are finite."""
    with pytest.raises(ValueError, match=r".+"):
        record(**changes)


@settings(deadline=None)
@given(st.text())
def test_notes_are_one_line(note: str) -> None:
    """Whatever an engine printed, the note is one line."""
    assert len(record(note=note).note.splitlines()) <= 1


@pytest.mark.parametrize("broken", [
    {},
    {"knobs": {}, "runs": []},
    record().as_dict() | {"outcome": "fine"},
    record().as_dict() | {"colour": "red"},
    record().as_dict() | {"runs": [{}]},
])
def test_broken_records_are_no_evidence(broken: dict[str, Any]) -> None:
    """JSON that is no record of this version is refused as evidence."""
    with pytest.raises(EvidenceError, match="no trial record"):
        TrialRecord.from_dict(broken)
