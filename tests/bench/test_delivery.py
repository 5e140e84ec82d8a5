"""The error of every token time, measured: from the end of its engine step to the client."""

from collections.abc import Callable

import numpy as np

from bench.delivery import delivery_delays_ns
from bench.run import ClientHealth, Run
from engine_adapter.step_log import STEP_COLUMNS, StepLog

RunOf = Callable[..., Run]
MS = 1_000_000
SENT_MS = 1_100  # of the first request in make_run


def steps_ending_at(*ends_ms: float) -> StepLog:
    columns = {name: np.zeros(len(ends_ms), dtype=np.int64) for name in STEP_COLUMNS}
    columns["step"] = np.arange(len(ends_ms), dtype=np.int64)
    columns["end_ns"] = (np.array(ends_ms) * MS).astype(np.int64)
    columns["start_ns"] = columns["end_ns"] - 10 * MS
    return StepLog(steps=columns)


def test_the_delay_runs_from_the_newest_finished_step(run_of: RunOf) -> None:
    """Each read is compared with the last step that had ended by then."""
    run = run_of([[(50, 1), (73, 1), (95, 1)]],
                 steps=steps_ending_at(SENT_MS + 49, SENT_MS + 71, SENT_MS + 95))
    delays = delivery_delays_ns(run)
    assert delays is not None
    assert delays.tolist() == [1 * MS, 2 * MS, 0]


def test_without_a_whole_step_log_nothing_is_claimed(run_of: RunOf) -> None:
    """A remote server's steps are unknown, and an overrun log may miss the very step."""
    assert delivery_delays_ns(run_of([[(50, 1)]])) is None
    lost = StepLog(steps=steps_ending_at(SENT_MS).steps, lost=3)
    assert delivery_delays_ns(run_of([[(50, 1)]], steps=lost)) is None


def test_tokens_that_reach_the_client_late_void_the_run(run_of: RunOf) -> None:
    """With a step log the tokens' own delay decides, whatever the event loop did."""
    requests = [[(50, 1), (80, 1)]] * 40
    sent = [SENT_MS + 100 * i for i in range(40)]
    prompt = run_of(requests, steps=steps_ending_at(*[s + at for s in sent for at in (49, 79)]),
                    client=ClientHealth(MS, 30 * MS, 40 * MS))
    assert prompt.validity.valid, prompt.validity.reasons
    late = run_of(requests, steps=steps_ending_at(*[s + at for s in sent for at in (25, 55)]))
    assert "tokens came p99 25.0 ms after their engine step" in late.validity.reasons[0]
