"""The client's own error, from runs and truths that are known."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench import Outcome, Run
from bench.client_error import client_error
from engine_adapter.request_number import http_request_id

MS = 1_000_000
Answer = tuple[str, float, Sequence[float]]


def named(row: int) -> str:
    return http_request_id(row, 0)


def truth_of(run: Run, answers: Sequence[Answer]) -> dict[str, np.ndarray]:
    """`answers`: id, milliseconds from the row's sending to its arrival, and to each message."""
    sent = {named(row): int(run.sent_ns[row]) for row in range(len(run))}
    base = [sent.get(name, 0) for name, _, _ in answers]
    counts = [len(sends) for _, _, sends in answers]
    return {
        "x_request_id": np.array([name.encode() for name, _, _ in answers], dtype=np.bytes_),
        "arrived_ns": np.array([at + int(ms * MS) for at, (_, ms, _) in zip(base, answers, strict=True)]),
        "offset": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "send_ns": np.array([at + int(ms * MS) for at, (_, _, sends) in zip(base, answers, strict=True)
                             for ms in sends], dtype=np.int64),
    }


def test_errors_are_measured_less_true(run_of: Callable[..., Run]) -> None:
    """The server's TTFT counts from the request's arrival; answers are matched by their ids, in any order."""
    run = run_of([[(51, 1), (71, 1), (95, 1)], [(53, 1)]])
    error = client_error(run, truth_of(run, [(named(1), 1, [51]), (named(0), 0.5, [50.5, 70.5, 90.5])]))
    assert (error.requests, error.mismatched) == (2, 0)
    assert error.ttft.n == 2
    assert error.ttft.true == {"p50": 50 * MS, "p99": None, "max": 50 * MS}
    assert error.ttft.measured["p50"] == 52 * MS
    assert error.ttft.difference("p50") == 2 * MS
    assert error.ttft.error == {"p50": 2 * MS, "p99": None, "max": 3 * MS}
    assert error.tbt.n == 2
    assert error.tbt.true["max"] == 20 * MS
    assert error.tbt.measured["max"] == 24 * MS
    assert error.lateness["max"] == 4.5 * MS
    assert error.lateness["p50"] == pytest.approx(1.25 * MS)


def test_what_a_figure_can_resolve_is_never_finer_than_a_single_sample(run_of: Callable[..., Run]) -> None:
    """Errors that cancel out in a percentile are errors all the same; none is known of too few samples."""
    run = run_of([[(49, 1)], [(50, 1)], [(51, 1)]])
    error = client_error(run, truth_of(run, [(named(row), 0, [50]) for row in range(3)]))
    assert error.ttft.difference("p50") == 0
    assert error.ttft.resolution("p50") == 1 * MS
    assert error.ttft.resolution("p99") is None


def test_only_what_both_sides_know_alike_is_compared(run_of: Callable[..., Run]) -> None:
    """Failures are left out; successes of another length, or unknown to the server, are counted."""
    run = run_of([[(50, 1)], [(50, 1), (70, 1)], [(50, 1)], [(50, 1)]],
                 outcomes=[Outcome.OK, Outcome.OK, Outcome.OK, Outcome.TRUNCATED])
    error = client_error(run, truth_of(run, [
        (named(0), 0, [50]), (named(1), 0, [50]), ("other", 0, [50]), (named(3), 0, [50])]))
    assert (error.requests, error.mismatched) == (1, 2)


def test_nothing_to_compare(run_of: Callable[..., Run]) -> None:
    """None instead of figures, and no crash."""
    run = run_of([[]], outcomes=[Outcome.EMPTY])
    error = client_error(run, truth_of(run, []))
    assert error.ttft.n == error.tbt.n == error.requests == 0
    assert error.ttft.difference("max") is error.lateness["p50"] is None
    assert error.as_dict()["ttft"]["true_ms"] == {"p50": None, "p99": None, "max": None}
