"""What happens during a run, kept as it happens, so that a run cut short is not lost."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.read_delay import ReadDelays
from bench.run import NEVER, ClientHealth, Outcome, Run
from bench.validity import judge_validity
from engine_adapter.answer import DecodedAnswer, Failure, FailureKind
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
    dropped: int = 0
    """Of the finished ones those that were never sent, as the turn before them failed."""

    @property
    def in_flight(self) -> int:
        return self.sent - (self.finished - self.dropped)


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
        rows = len(plan)
        self._intended_ns = plan.intended_ns.astype(np.int64)
        self._due_ns: dict[int, int] = {}
        self._sent_ns = array("q", [NEVER]) * rows
        self._end_ns = array("q", [NEVER]) * rows
        self._outcome = array("b", [Outcome.NOT_SENT]) * rows
        self._prompt_tokens = array("i", [-1]) * rows
        self._status = array("h", [0]) * rows
        self._error: dict[int, str] = {}
        # Arrays, not lists: a hundred thousand answers of hundreds of tokens must fit.
        self._read_ns: list[array[int] | None] = [None] * rows
        self._read_tokens: list[array[int] | None] = [None] * rows
        self._delays = ReadDelays()
        self._awaited: set[int] = set()
        self._sources: Counter[str] = Counter()
        self._sent = self._finished = self._tokens = self._dropped = 0
        self.failed = 0
        """Requests that ended without success, so far."""
        self.refused_in_a_row = 0
        """Requests that found no server, since the last that did."""
        self.busy_since_ns = NEVER
        """When a request was sent while no other was in flight, and all before it had gone well."""
        self._idle = True
        self.last_read_ns = NEVER
        """When any request last brought a token; NEVER before the first."""

    def due(self, row: int, intended_ns: int, at_ns: int) -> None:
        """Request `row` may go at `at_ns`, and was meant to go at `intended_ns`."""
        self._intended_ns[row] = intended_ns - self.start_ns
        self._due_ns[row] = at_ns

    def dropped(self, row: int) -> None:
        """Request `row` will never be sent, as the turn before it failed."""
        self._outcome[row] = Outcome.PREDECESSOR_FAILED
        self._finished += 1
        self._dropped += 1
        self.failed += 1

    def sent(self, row: int, at_ns: int) -> None:
        """Request `row` has been handed to the engine; until it ends it counts as cut short."""
        if self._idle:
            self.busy_since_ns, self._idle = at_ns, False
        self._sent_ns[row] = at_ns
        self._outcome[row] = Outcome.CUT_SHORT
        self.last_sign_ns[row] = at_ns
        self._sent += 1

    def read(self, row: int, at_ns: int, num_tokens: int) -> None:
        """`num_tokens` (at least 1) tokens of request `row` were read at once."""
        times, tokens = self._reads_of(row)
        times.append(at_ns)
        tokens.append(num_tokens)
        self.last_sign_ns[row] = self.last_read_ns = at_ns
        self._tokens += num_tokens

    def over(self, row: int) -> None:
        """The stream of request `row` is over; what it held follows with `answered`."""
        self._awaited.add(row)
        self._finished += 1

    def answered(self, row: int, end_ns: int, answer: DecodedAnswer, *, cut_short: bool = False) -> None:
        """The whole of request `row`, which is over; `cut_short` when this client ended it."""
        times, tokens = self._reads_of(row)
        times.extend(answer.read_ns)
        tokens.extend(answer.read_tokens)
        self._tokens += sum(answer.read_tokens)
        self._delays.add(answer.late_ns, answer.merged)
        if answer.read_ns:
            if answer.failure is None:  # a broken answer lacks the count at its end
                self._sources[answer.token_count_source] += 1
            self.last_read_ns = max(self.last_read_ns, answer.read_ns[-1])
        if answer.prompt_tokens is not None:
            self._prompt_tokens[row] = answer.prompt_tokens
        outcome = Outcome.OK
        if answer.failure is None or answer.failure.kind is not FailureKind.CONNECT:
            self.refused_in_a_row = 0
        if answer.failure is not None:
            outcome = Outcome.CUT_SHORT if cut_short else self._note(row, answer.failure)
        self.ended(row, end_ns, outcome)

    def _note(self, row: int, failure: Failure) -> Outcome:
        self._error[row] = failure.text
        if failure.kind is FailureKind.CONNECT:
            self.refused_in_a_row += 1
        self._status[row] = failure.status or 0
        return Outcome[failure.kind.name]

    def _reads_of(self, row: int) -> "tuple[array[int], array[int]]":
        times, tokens = self._read_ns[row], self._read_tokens[row]
        if times is None or tokens is None:
            times, tokens = self._read_ns[row], self._read_tokens[row] = array("q"), array("i")
        return times, tokens

    def ended(self, row: int, at_ns: int, outcome: Outcome) -> None:
        """The stream of request `row` is over. A finish without a token counts as EMPTY."""
        if outcome is Outcome.OK and not self._read_ns[row]:
            outcome = Outcome.EMPTY
        self._end_ns[row] = at_ns
        self._outcome[row] = outcome
        self.last_sign_ns.pop(row, None)
        if row in self._awaited:
            self._awaited.remove(row)
        else:
            self._finished += 1
        self.failed += outcome is not Outcome.OK
        self._idle = not self.last_sign_ns and outcome is Outcome.OK

    def outcome(self, row: int) -> Outcome:
        """How request `row` ended, as far as is known."""
        return Outcome(self._outcome[row])

    def add_steps(self, steps: StepLog) -> None:
        """Engine steps that follow those added before."""
        if len(steps) or steps.lost:
            self._step_logs.append(steps)

    def progress(self, now_ns: int) -> Progress:
        """Counts so far."""
        return Progress(len(self.plan), self._sent, self._finished, self.failed, self._tokens,
                        now_ns - self.start_ns, self._dropped)

    def run(self, *, cut_short: str = "") -> Run:
        """The run as far as it went; `cut_short` says why it ended early, and makes it invalid."""
        plan, rows = self.plan, len(self.plan)
        counts = [len(reads or ()) for reads in self._read_ns]
        tokens = np.array([sum(reads or ()) for reads in self._read_tokens], dtype=np.int32)
        intended_ns = self._intended_ns + self.start_ns
        due_ns = intended_ns.copy()
        due_ns[list(self._due_ns)] = list(self._due_ns.values())
        run = Run(
            index=np.arange(rows, dtype=np.int32), component=plan.component.astype(np.int16),
            input_len=plan.input_len.astype(np.int32), output_len=plan.output_len.astype(np.int32),
            warmup=np.arange(rows) < plan.num_warmups,
            intended_ns=intended_ns, due_ns=due_ns, stage=plan.stage.astype(np.int16),
            sent_ns=np.array(self._sent_ns, dtype=np.int64), end_ns=np.array(self._end_ns, dtype=np.int64),
            outcome=np.array(self._outcome, dtype=np.int8), num_tokens=tokens,
            reads_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            read_ns=_flat(self._read_ns, np.int64), read_tokens=_flat(self._read_tokens, np.int32),
            start_ns=self.start_ns, steps=_joined(self._step_logs), client=self._delays.health(self.client),
            meta=self._meta(), engine_failure=self.engine_failure, error=dict(self._error),
            session=plan.session.astype(np.int32), turn=plan.turn.astype(np.int32),
            prompt_tokens=np.array(self._prompt_tokens, dtype=np.int32),
            status=np.array(self._status, dtype=np.int16),
        )
        return replace(run, validity=judge_validity(run, cut_short=cut_short))

    def _meta(self) -> dict[str, Any]:
        """What is known of the run, with the weakest way in which any of its answers was counted."""
        if not self._sources:
            return dict(self.meta)
        weakest = max(self._sources, key=COUNT_SOURCES.index)
        also = {"token_count_sources": dict(self._sources)} if len(self._sources) > 1 else {}
        return self.meta | {"token_count_source": weakest} | also


COUNT_SOURCES = ("engine", "token_ids", "usage", "tokenizer", "events")
"""The most exact first."""


def _flat(rows: "Sequence[array[int] | None]", dtype: type) -> Any:
    filled = [np.frombuffer(row, dtype=row.typecode) for row in rows if row]
    return np.concatenate(filled).astype(dtype, copy=False) if filled else np.zeros(0, dtype=dtype)


def _joined(logs: Sequence[StepLog]) -> StepLog:
    # In pairs, not one by one: that would copy the first log as often as there are logs.
    if len(logs) <= 1:
        return logs[0] if logs else StepLog()
    half = len(logs) // 2
    return _joined(logs[:half]).joined(_joined(logs[half:]))
