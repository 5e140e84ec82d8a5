from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bench.recorder import RunRecorder
from bench.run import ClientHealth, Outcome, Run
from engine_adapter.errors import EngineError
from engine_adapter.step_log import StepLog
from workloads import Plan

MS = 1_000_000
Reads = Sequence[tuple[float, int]]


def make_run(
    requests: Sequence[Reads], *, outcomes: Sequence[Outcome] | None = None, warmups: int = 0,
    every_ms: float = 100, lag_ms: float | Sequence[float] = 0, input_len: int = 16,
    output_len: int | None = None, steps: StepLog | None = None,
    failure: EngineError | None = None, rate_rps: float = 10.0, meta: dict[str, Any] | None = None,
    client: ClientHealth | None = None,
) -> Run:
    """A run of `requests`, each a list of (milliseconds since it was sent, tokens of that read)."""
    n = len(requests)
    lengths = [max(1, sum(k for _, k in reads)) if output_len is None else output_len for reads in requests]
    none = np.full(n, -1)
    plan = Plan(
        intended_ns=(np.arange(1, n + 1) * every_ms * MS).astype(np.int64), input_len=np.full(n, input_len),
        output_len=np.array(lengths), component=np.zeros(n),
        prefix_group=none, session=none, turn=np.zeros(n), num_warmups=warmups, seed=1,
        rate_rps=rate_rps, component_names=("chat",),
    )
    recorder = RunRecorder(plan, start_ns=1_000 * MS, meta={"rate_rps": rate_rps, **(meta or {})})
    lags = np.broadcast_to(np.asarray(lag_ms), (n,))
    for row, reads in enumerate(requests):
        outcome = Outcome.OK if outcomes is None else outcomes[row]
        if outcome is Outcome.NOT_SENT:
            continue
        sent_ns = int(plan.intended_ns[row]) + recorder.start_ns + int(lags[row] * MS)
        recorder.sent(row, sent_ns)
        for at_ms, tokens in reads:
            recorder.read(row, sent_ns + int(at_ms * MS), tokens)
        last_ms = reads[-1][0] if reads else 0
        if outcome is not Outcome.CUT_SHORT:
            recorder.ended(row, sent_ns + int(last_ms * MS), outcome)
    if steps is not None:
        recorder.add_steps(steps)
    recorder.engine_failure = failure
    recorder.client = client or recorder.client
    return recorder.run()


@pytest.fixture
def run_of() -> Callable[..., Run]:
    return make_run
