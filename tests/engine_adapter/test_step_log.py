"""What is read out of a step log."""

import numpy as np
import pytest

from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog


def log_of(steps: list[tuple[int, int]], chunks: list[tuple[int, int]]) -> StepLog:
    """Of steps (number, start) and chunks (step, request)."""
    of_steps = {name: np.zeros(len(steps), dtype=np.int64) for name in STEP_COLUMNS}
    of_steps["step"], of_steps["start_ns"] = np.array(steps, dtype=np.int64).reshape(-1, 2).T
    of_chunks = {name: np.zeros(len(chunks), dtype=np.int64) for name in CHUNK_COLUMNS}
    of_chunks["step"], of_chunks["request"] = np.array(chunks, dtype=np.int64).reshape(-1, 2).T
    return StepLog(of_steps, of_chunks)


@pytest.mark.parametrize(("steps", "chunks", "first"), [
    ([(5, 100), (6, 200), (9, 300)], [(5, 7), (6, 7), (6, 3), (9, 3)], {3: 200, 7: 100}),
    ([(6, 200), (9, 300)], [(5, 7), (6, 3), (9, 7)], {3: 200, 7: 300}),
    ([(1, 10)], [], {}),
    ([], [(1, 2)], {}),
])
def test_a_request_is_first_scheduled_in_the_first_step_with_a_chunk_of_it(
    steps: list[tuple[int, int]], chunks: list[tuple[int, int]], first: dict[int, int]
) -> None:
    """Requests come ascending; a chunk of a step that is not in the log does not count."""
    requests, start_ns = log_of(steps, chunks).first_scheduled()
    assert list(zip(requests.tolist(), start_ns.tolist(), strict=True)) == sorted(first.items())
