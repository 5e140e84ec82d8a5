"""The step log: what each engine step carried, as columns."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

STEP_COLUMNS = (
    "step",                 # number of the step since the engine started
    "start_ns",             # entry into the scheduler for this step
    "end_ns",               # its outputs were processed
    "num_tokens",           # all tokens of the step
    "num_prefill_tokens",   # of these, prompt tokens (recomputed ones included)
    "num_decodes",          # requests that got their next token
    "attention_work",       # sum over requests of new_tokens * (prefix + new_tokens / 2), in token pairs
    "kv_blocks_used",       # KV-cache blocks in use after scheduling
    "num_running",          # requests in RUNNING after scheduling
    "num_waiting",          # requests still waiting after scheduling
    "num_preempted",        # requests preempted in this step
)
CHUNK_COLUMNS = (
    "step",                 # the step that carried the chunk
    "request",              # the request's number in its run
    "tokens",               # prompt tokens of the chunk
    "prefix",               # tokens of that request computed before it
)


def _empty() -> Int64:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class StepLog:
    """Columns of int64; times on CLOCK_MONOTONIC in nanoseconds.

    `steps[name]` has one entry per finished step in order, `chunks[name]` one per prefill
    chunk; names are STEP_COLUMNS and CHUNK_COLUMNS. A step lasts from `max(start, end of
    the step before)` to its end: with async scheduling the next step is planned while the
    current one runs. `lost` counts steps that were overwritten before they were read.
    `overhead_ns` is what writing the log itself cost, summed over the steps.
    """

    steps: dict[str, Int64] = field(default_factory=lambda: {name: _empty() for name in STEP_COLUMNS})
    chunks: dict[str, Int64] = field(default_factory=lambda: {name: _empty() for name in CHUNK_COLUMNS})
    lost: int = 0
    overhead_ns: int = 0

    def __len__(self) -> int:
        return len(self.steps["step"])

    def duration_ns(self) -> Int64:
        """Length of each step in nanoseconds, shape (len(self),); idle time before it left out."""
        start, end = self.steps["start_ns"], self.steps["end_ns"]
        if not len(end):
            return _empty()
        begin = start.copy()
        begin[1:] = np.maximum(start[1:], end[:-1])
        return end - begin

    def first_scheduled(self) -> tuple[Int64, Int64]:
        """Requests with a prefill chunk, ascending, and the start of the first step that contained each."""
        numbers, order = np.unique(self.steps["step"], return_index=True)
        if not len(numbers):
            return _empty(), _empty()
        place = np.minimum(np.searchsorted(numbers, self.chunks["step"]), len(numbers) - 1)
        known = np.flatnonzero(numbers[place] == self.chunks["step"])
        requests, first = np.unique(self.chunks["request"][known], return_index=True)
        return requests, self.steps["start_ns"][order[place[known[first]]]]

    def joined(self, later: Self) -> Self:
        """This log followed by `later`."""
        return type(self)(
            steps={n: np.concatenate([self.steps[n], later.steps[n]]) for n in STEP_COLUMNS},
            chunks={n: np.concatenate([self.chunks[n], later.chunks[n]]) for n in CHUNK_COLUMNS},
            lost=self.lost + later.lost,
            overhead_ns=self.overhead_ns + later.overhead_ns,
        )
