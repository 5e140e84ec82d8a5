"""A small memory-mapped file between us and the engine's scheduler: knobs in, steps out.

It lies in the engine's private directory, so it survives a kill of either side and is
removed with that directory. All words are int64. One side writes each field; x86 and Arm
both store an aligned word whole, and `_VERSION` is written after the knobs it announces.
"""

import mmap
from pathlib import Path
from typing import Self

import numpy as np

from engine_adapter.knobs import Knobs
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog

ENVIRONMENT_NAME = "STALLFREE_CONTROL_BLOCK"
"""The variable through which the scheduler plug-in finds the file."""

_WORDS = 64
_MAGIC, _VERSION, _APPLIED, _PID, _BROKEN = 0, 1, 2, 3, 4
_STEPS_WRITTEN, _CHUNKS_WRITTEN, _OVERHEAD_NS = 5, 6, 7
_PREFIX_COUNTED, _PREFIX_QUERIES, _PREFIX_HITS = 8, 9, 10
_ASKED, _EFFECTIVE = 16, 32
_MAGIC_VALUE = 0x57A11F4EE
_STEP_SLOTS = 1 << 15
_CHUNK_SLOTS = 1 << 16
_POLICIES = ("fcfs", "priority")
_SIZE = 8 * (_WORDS + _STEP_SLOTS * len(STEP_COLUMNS) + _CHUNK_SLOTS * len(CHUNK_COLUMNS))


def _to_words(knobs: Knobs) -> list[int]:
    return [knobs.token_budget, knobs.max_seqs, knobs.long_prefill_token_threshold,
            int(knobs.adaptive_long_prefill), _POLICIES.index(knobs.policy)]


def _to_knobs(words: list[int]) -> Knobs:
    budget, seqs, threshold, adaptive, policy = words
    return Knobs(budget, seqs, threshold, bool(adaptive), _POLICIES[policy])


class ControlBlock:
    """The mapped file. `create` makes it (our side), `attach` opens it (the scheduler's side)."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        words = np.frombuffer(self._map, dtype=np.int64)
        self._head = words[:_WORDS]
        steps_end = _WORDS + _STEP_SLOTS * len(STEP_COLUMNS)
        self._steps = words[_WORDS:steps_end].reshape(_STEP_SLOTS, len(STEP_COLUMNS))
        self._chunks = words[steps_end:].reshape(_CHUNK_SLOTS, len(CHUNK_COLUMNS))
        self._steps_read = self._chunks_read = self._overhead_read = 0

    @classmethod
    def create(cls, path: Path) -> Self:
        with path.open("wb") as file:
            file.truncate(_SIZE)
        block = cls(path)
        block._head[_MAGIC] = _MAGIC_VALUE
        return block

    @classmethod
    def attach(cls, path: Path) -> Self:
        block = cls(path)
        if block._head[_MAGIC] != _MAGIC_VALUE:
            raise ValueError(f"{path} is not a control block of this version")
        return block

    # Our side.

    def ask(self, knobs: Knobs) -> int:
        """Write knobs for the scheduler's next step; returns the version to wait for."""
        self._head[_ASKED:_ASKED + 5] = _to_words(knobs)
        version = int(self._head[_VERSION]) + 1
        self._head[_VERSION] = version
        return version

    @property
    def applied_version(self) -> int:
        return int(self._head[_APPLIED])

    @property
    def plugin_pid(self) -> int:
        """Process id of the scheduler, 0 while the plug-in has not been loaded."""
        return int(self._head[_PID])

    @property
    def plugin_broken(self) -> bool:
        """The plug-in met something that it does not know and stepped aside."""
        return bool(self._head[_BROKEN])

    def effective(self) -> Knobs:
        """The scheduler's settings as it reported them itself."""
        return _to_knobs(self._head[_EFFECTIVE:_EFFECTIVE + 5].tolist())

    def prefix_counts(self) -> tuple[int, int] | None:
        """Prompt tokens looked up in the prefix cache so far, and found there; None where nobody counts."""
        if not self._head[_PREFIX_COUNTED]:
            return None
        return int(self._head[_PREFIX_QUERIES]), int(self._head[_PREFIX_HITS])

    def read_steps(self) -> StepLog:
        """Steps finished since the last call."""
        steps_written = int(self._head[_STEPS_WRITTEN])
        chunks_written = int(self._head[_CHUNKS_WRITTEN])
        overhead = int(self._head[_OVERHEAD_NS])
        # The oldest slots may be overwritten while they are copied: keep a margin.
        first_step = max(self._steps_read, steps_written - _STEP_SLOTS + 64)
        first_chunk = max(self._chunks_read, chunks_written - _CHUNK_SLOTS + 256)
        lost = max(first_step - self._steps_read, first_chunk - self._chunks_read)
        steps = self._steps[np.arange(first_step, steps_written) % _STEP_SLOTS]
        chunks = self._chunks[np.arange(first_chunk, chunks_written) % _CHUNK_SLOTS]
        log = StepLog(
            steps={name: steps[:, i].copy() for i, name in enumerate(STEP_COLUMNS)},
            chunks={name: chunks[:, i].copy() for i, name in enumerate(CHUNK_COLUMNS)},
            lost=lost,
            overhead_ns=overhead - self._overhead_read,
        )
        self._steps_read, self._chunks_read, self._overhead_read = steps_written, chunks_written, overhead
        return log

    def close(self) -> None:
        # numpy views keep the map alive; drop them before it is closed.
        del self._head, self._steps, self._chunks
        self._map.close()

    # The scheduler's side.

    def announce(self, pid: int) -> None:
        self._head[_PID] = pid

    def step_aside(self) -> None:
        self._head[_BROKEN] = 1

    def asked_since(self, version: int) -> tuple[int, Knobs] | None:
        """The newest asked knobs when there are any after `version`."""
        newest = int(self._head[_VERSION])
        if newest == version:
            return None
        words = self._head[_ASKED:_ASKED + 5].tolist()
        if int(self._head[_VERSION]) != newest:
            return None
        return newest, _to_knobs(words)

    def report(self, knobs: Knobs, version: int) -> None:
        """Say what is in force now, and which asked version it answers."""
        self._head[_EFFECTIVE:_EFFECTIVE + 5] = _to_words(knobs)
        self._head[_APPLIED] = version

    def write_step(self, step: tuple[int, ...], chunks: list[tuple[int, ...]]) -> None:
        """Append one finished step and its prefill chunks."""
        written = int(self._head[_CHUNKS_WRITTEN])
        for chunk in chunks:
            self._chunks[written % _CHUNK_SLOTS] = chunk
            written += 1
        self._head[_CHUNKS_WRITTEN] = written
        count = int(self._head[_STEPS_WRITTEN])
        self._steps[count % _STEP_SLOTS] = step
        self._head[_STEPS_WRITTEN] = count + 1

    def count_prefixes(self, queries: int, hits: int) -> None:
        """Say how many prompt tokens were looked up in the prefix cache and found there since the start."""
        self._head[_PREFIX_QUERIES], self._head[_PREFIX_HITS] = queries, hits
        self._head[_PREFIX_COUNTED] = 1

    def add_overhead(self, nanoseconds: int) -> None:
        self._head[_OVERHEAD_NS] += nanoseconds
