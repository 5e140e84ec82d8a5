"""A run: one plan played against one engine setting, as columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from engine_adapter.errors import EngineError
from engine_adapter.step_log import StepLog

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int16 = npt.NDArray[np.int16]
Int8 = npt.NDArray[np.int8]
Bool = npt.NDArray[np.bool_]
Float64 = npt.NDArray[np.float64]

NEVER = -1
"""Stands in a column of times for what did not happen."""


class Outcome(IntEnum):
    """How one request ended. Only `OK` is a success: a finish reason of `length` or `stop`,
    at least one token and no error. An answer shorter than planned that ends with a finish
    reason is a success too; `Summary` reports its length beside the planned one."""

    OK = 0
    REJECTED = 1
    """The engine refused it."""
    CRASHED = 2
    """The engine died under it."""
    HUNG = 3
    """No token came within the request's time limit, or the engine stopped answering."""
    CUT_SHORT = 4
    """In flight when the run ended before its time."""
    TRUNCATED = 5
    """The stream ended without a finish reason."""
    NOT_SENT = 6
    """The run ended before it was sent."""
    ERROR = 7
    """The engine reported an error or aborted it."""
    EMPTY = 8
    """It finished without a single token."""
    # Of requests over HTTP; see engine_adapter.answer.FailureKind, whose names these are.
    CONNECT = 9
    TIMEOUT_CONNECT = 10
    TIMEOUT_READ = 11
    HTTP_STATUS = 12
    IN_STREAM_ERROR = 13
    PARSE = 14
    PREDECESSOR_FAILED = 15
    """Never sent, as the turn before it in its conversation failed."""


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """How the measuring process itself fared; None where it was not measured.

    Loop lag is how late a 5 ms timer of the event loop fired. The lateness of sends is in
    the run's own columns. Read delay is how long messages lay in their socket, by the kernel's
    stamps; it does not change their times, unless several were read at once.
    """

    loop_lag_p50_ns: int | None = None
    loop_lag_p99_ns: int | None = None
    loop_lag_max_ns: int | None = None
    read_delay_p50_ns: int | None = None
    read_delay_p99_ns: int | None = None
    read_delay_max_ns: int | None = None
    merged_share: float | None = None
    """Share of the messages that were read together with a later one of their request."""
    cpu_share: float | None = None
    """Processor time of the measuring process over the time that passed: 1 is a core at its limit."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Whether a run supports statements about the engine. `reasons` make it invalid; `notes` do not."""

    valid: bool = True
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Columns have one row per planned request, in the plan's order; times are absolute
    nanoseconds on the run's clock, NEVER (-1) where something did not happen.

    ValueError when the columns contradict one another.
    """

    index: Int32
    """Row of the plan; the request's number in the step log."""
    component: Int16
    input_len: Int32
    output_len: Int32
    """Planned output tokens."""
    warmup: Bool
    """Left out of every figure."""
    intended_ns: Int64
    sent_ns: Int64
    end_ns: Int64
    """End of the stream, whatever its outcome."""
    outcome: Int8
    """Codes of Outcome."""
    num_tokens: Int32
    """Output tokens that were read."""
    reads_offset: Int64
    """Shape (rows + 1,): the reads of row i are `read_ns[reads_offset[i]:reads_offset[i + 1]]`."""
    read_ns: Int64
    """Reads that carried tokens, in time order within a request."""
    read_tokens: Int32
    """Tokens of each read, at least 1."""
    start_ns: int = 0
    """Start of the schedule: intended times are the plan's offsets from it."""
    steps: StepLog = field(default_factory=StepLog)
    client: ClientHealth = field(default_factory=ClientHealth)
    meta: dict[str, Any] = field(default_factory=dict)
    """JSON-able: knobs, engine, plan_digest, seed, rate_rps (a number or "inf"), burstiness, salt,
    workload {name, digest}, component_names, token_count_source, versions, date, label."""
    validity: Validity = field(default_factory=Validity)
    engine_failure: EngineError | None = None
    """Why the engine stopped serving, where it did."""
    due_ns: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """When the client could send: the intended time, or the moment its place under a concurrency cap
    became free, if that was later. Left out: the intended time."""
    stage: Int16 = field(default_factory=lambda: np.zeros(0, dtype=np.int16))
    """Index into the stages of the load; left out: 0."""
    prompt_tokens: Int32 = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Prompt length as the server counted it; -1, and left out, where it did not."""
    status: Int16 = field(default_factory=lambda: np.zeros(0, dtype=np.int16))
    """The HTTP status of a request that failed by it, else 0."""
    session: Int32 = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Conversation that the request belongs to; -1, and left out, for none."""
    turn: Int32 = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Number of the turn in it, from 0; left out: 0."""
    error: Mapping[int, str] = field(default_factory=dict)
    """What went wrong with a failed row, in one line, where anybody said."""

    def __post_init__(self) -> None:
        defaults = {"due_ns": self.intended_ns, "stage": 0, "prompt_tokens": -1, "status": 0, "session": -1,
                    "turn": 0}
        for name, default in defaults.items():
            column = getattr(self, name)
            if not len(column) and len(self):
                object.__setattr__(self, name, np.full(len(self), default, dtype=column.dtype))
        rows = (self.component, self.input_len, self.output_len, self.warmup, self.intended_ns, self.sent_ns,
                self.end_ns, self.outcome, self.num_tokens, self.due_ns, self.stage, self.prompt_tokens,
                self.status, self.session, self.turn)
        if any(len(column) != len(self) for column in rows) or len(self.reads_offset) != len(self) + 1:
            raise ValueError("the columns of a run have one row a request")
        if not self.reads_offset[-1] == len(self.read_ns) == len(self.read_tokens):
            raise ValueError("the reads of a run do not fit its reads_offset")
        succeeded = self.outcome == Outcome.OK
        if ((self.sent_ns == NEVER) | (np.diff(self.reads_offset) == 0))[succeeded].any():
            raise ValueError("a successful request was sent and has at least one read")

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return run_line(self)

    @property
    def measured(self) -> Bool:
        """Rows that count: not warm-up."""
        return ~self.warmup

    @property
    def ok(self) -> Bool:
        """Measured rows that succeeded."""
        succeeded: Bool = self.measured & (self.outcome == Outcome.OK)
        return succeeded

    @property
    def attempted(self) -> Bool:
        """Measured rows whose fate is the engine's: sent and not cut off by the client itself.

        After an engine failure every measured row counts: a living engine would have had them all.
        """
        if self.engine_failure is not None:
            return self.measured
        given_up = (self.outcome == Outcome.NOT_SENT) | (self.outcome == Outcome.CUT_SHORT)
        faced: Bool = self.measured & ~given_up
        return faced

    @property
    def rate_rps(self) -> float | None:
        """Planned requests per second, inf for all at once; None where the run does not say."""
        rate = self.meta.get("rate_rps")
        return None if rate is None else float(rate)

    def first_token_ns(self) -> Int64:
        """Time of each row's first token, shape (rows,); NEVER where there is none."""
        return self._read_at(self.reads_offset[:-1])

    def last_token_ns(self) -> Int64:
        """Time of each row's last token, shape (rows,); NEVER where there is none."""
        return self._read_at(self.reads_offset[1:] - 1)

    def _read_at(self, positions: Int64) -> Int64:
        times = np.full(len(self), NEVER, dtype=np.int64)
        has_reads = np.diff(self.reads_offset) > 0
        times[has_reads] = self.read_ns[positions[has_reads]]
        return times

    def outcome_counts(self) -> Mapping[str, int]:
        """How many measured rows ended in each way, by the outcome's lower-case name; zeros left out."""
        counts = np.bincount(self.outcome[self.measured], minlength=len(Outcome))
        return {code.name.lower(): int(counts[code]) for code in Outcome if counts[code]}

    def peak_in_flight(self) -> int:
        """Most requests that were sent and not yet ended at one time; 0 for an empty run."""
        sent = self.sent_ns != NEVER
        if not sent.any():
            return 0
        ends = np.where(self.end_ns[sent] == NEVER, np.iinfo(np.int64).max, self.end_ns[sent])
        times = np.concatenate([self.sent_ns[sent], ends])
        change = np.concatenate([np.ones(len(ends), dtype=np.int64), -np.ones(len(ends), dtype=np.int64)])
        # At equal times an end comes before a start.
        order = np.lexsort((change, times))
        return int(np.cumsum(change[order]).max())


def run_line(run: Run) -> str:
    """One line for the reader of a failed assert: load, outcomes, TTFT, client lag, validity."""
    workload = run.meta.get("workload") or {}
    rate = "? rps" if run.rate_rps is None else f"{run.rate_rps:g} rps"
    counts = run.outcome_counts()
    failed = sum(counts.values()) - counts.get("ok", 0)
    ttft = (run.first_token_ns() - run.sent_ns)[run.ok]
    sent = run.measured & (run.sent_ns != NEVER)
    lag = (run.sent_ns - run.intended_ns)[sent]
    return (
        f"<Run {workload.get('name', 'unnamed')} @ {rate} | {counts.get('ok', 0)} ok {failed} failed "
        f"{int(run.warmup.sum())} warm-up | ttft p50 {_ms(ttft, 50)} max {_ms(ttft, 100)} ms | "
        f"lag max {_ms(lag, 100)} ms | {'valid' if run.validity.valid else 'invalid'}>"
    )


def _ms(times_ns: Int64, percentile: float) -> str:
    return f"{np.percentile(times_ns, percentile) / 1e6:.4g}" if len(times_ns) else "-"
