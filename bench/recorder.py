"""What happens during a run, kept as it happens, so that a run cut short is not lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.run import NEVER, ClientHealth, Outcome, Run
from bench.validity import judge_validity
from engine_adapter.errors import EngineError
from engine_adapter.step_log import StepLog
from workloads import Plan


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts so far, warm-up included."""

    planned: int
    sent: int
    finished: int
    """Ended, failed ones included."""
    failed: int
    tokens: int
    elapsed_ns: int
    """Since the start of the schedule."""

    @property
    def in_flight(self) -> int:
        return self.sent - self.finished


class RunRecorder:
    """Collects one run of `plan`, from `start_ns` on. `meta` goes into the run as it is."""

    def __init__(self, plan: Plan, *, start_ns: int = 0, meta: Mapping[str, Any] | None = None) -> None:
        self.plan = plan
        self.start_ns = start_ns
        self.meta = dict(meta or {})
        self.client = ClientHealth()
        self.engine_failure: EngineError | None = None
        self.last_sign_ns: dict[int, int] = {}
        """Of each request in flight: when it was sent or last brought a token."""
        self._step_logs: list[StepLog] = []
        self._sent_ns = [NEVER] * len(plan)
        self._end_ns = [NEVER] * len(plan)
        self._outcome = [int(Outcome.NOT_SENT)] * len(plan)
        self._read_ns: list[list[int]] = [[] for _ in range(len(plan))]
        self._read_tokens: list[list[int]] = [[] for _ in range(len(plan))]
        self._sent = self._finished = self._failed = self._tokens = 0
        self.last_read_ns = NEVER
        """When any request last brought a token; NEVER before the first."""

    def sent(self, row: int, at_ns: int) -> None:
        """Request `row` has been handed to the engine; until it ends it counts as cut short."""
        self._sent_ns[row] = at_ns
        self._outcome[row] = Outcome.CUT_SHORT
        self.last_sign_ns[row] = at_ns
        self._sent += 1

    def read(self, row: int, at_ns: int, num_tokens: int) -> None:
        """`num_tokens` (at least 1) tokens of request `row` were read at once."""
        self._read_ns[row].append(at_ns)
        self._read_tokens[row].append(num_tokens)
        self.last_sign_ns[row] = self.last_read_ns = at_ns
        self._tokens += num_tokens

    def ended(self, row: int, at_ns: int, outcome: Outcome) -> None:
        """The stream of request `row` is over. A finish without a token counts as EMPTY."""
        if outcome is Outcome.OK and not self._read_ns[row]:
            outcome = Outcome.EMPTY
        self._end_ns[row] = at_ns
        self._outcome[row] = outcome
        self.last_sign_ns.pop(row, None)
        self._finished += 1
        self._failed += outcome is not Outcome.OK

    def add_steps(self, steps: StepLog) -> None:
        """Engine steps that follow those added before."""
        if len(steps) or steps.lost:
            self._step_logs.append(steps)

    def progress(self, now_ns: int) -> Progress:
        """Counts so far."""
        return Progress(len(self.plan), self._sent, self._finished, self._failed, self._tokens,
                        now_ns - self.start_ns)

    def run(self, *, cut_short: str = "") -> Run:
        """The run as far as it went; `cut_short` says why it ended early, and makes it invalid."""
        plan, rows = self.plan, len(self.plan)
        counts = [len(reads) for reads in self._read_ns]
        tokens = np.array([sum(reads) for reads in self._read_tokens], dtype=np.int32)
        run = Run(
            index=np.arange(rows, dtype=np.int32), component=plan.component.astype(np.int16),
            input_len=plan.input_len.astype(np.int32), output_len=plan.output_len.astype(np.int32),
            warmup=np.arange(rows) < plan.num_warmups,
            intended_ns=plan.intended_ns.astype(np.int64) + self.start_ns,
            sent_ns=np.array(self._sent_ns, dtype=np.int64), end_ns=np.array(self._end_ns, dtype=np.int64),
            outcome=np.array(self._outcome, dtype=np.int8), num_tokens=tokens,
            reads_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            read_ns=_flat(self._read_ns, np.int64), read_tokens=_flat(self._read_tokens, np.int32),
            start_ns=self.start_ns, steps=_joined(self._step_logs), client=self.client,
            meta=dict(self.meta), engine_failure=self.engine_failure,
        )
        return replace(run, validity=judge_validity(run, cut_short=cut_short))


def _flat(rows: Sequence[Sequence[int]], dtype: type) -> Any:
    total = sum(map(len, rows))
    return np.fromiter((value for row in rows for value in row), dtype=dtype, count=total)


def _joined(logs: Sequence[StepLog]) -> StepLog:
    # In pairs, not one by one: that would copy the first log as often as there are logs.
    if len(logs) <= 1:
        return logs[0] if logs else StepLog()
    half = len(logs) // 2
    return _joined(logs[:half]).joined(_joined(logs[half:]))
