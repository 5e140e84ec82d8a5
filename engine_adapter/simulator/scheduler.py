"""A simulated scheduler that is driven one step at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from engine_adapter.errors import NeedsRestart
from engine_adapter.simulator import compiled
from engine_adapter.simulator import kernel_state as k
from engine_adapter.simulator.kernel_state import Int64
from engine_adapter.simulator.load import Bool
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.state_arrays import (
    check_supported,
    fill_rows,
    most_slots,
    new_state,
    other_rule,
    rejected,
    set_knobs,
)

_LIVE = ("token_budget", "input_budget", "max_seqs", "long_prefill_token_threshold", "adaptive_long_prefill",
         "chunked_prefill", "reserve_full_isl")

Column = TypeVar("Column", Int64, k.Int32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """What one step carries; arrays have an entry for each of its requests, in scheduling order."""

    number: int
    """Of the call of `schedule` that decided it, from 1."""
    rows: Int64
    tokens: Int64
    prefixes: Int64
    """Tokens of the request before those of this step, cached ones included."""
    drafts: Int64
    """Draft tokens among `tokens`."""
    is_prefill: Bool
    """Whether the step log counts it as a prefill chunk: more than one token, or a token of the prompt."""
    preempted: Int64
    """Rows that lost their blocks in this step, in that order."""
    num_running: int
    num_waiting: int
    kv_blocks_used: int
    """After scheduling; the null block counts."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        return int(self.tokens.sum())

    @cached_property
    def chunks(self) -> list[tuple[int, int]]:
        """(tokens, prefix) of what a StepCost prices as prefill chunks."""
        chosen = self.is_prefill & (self.drafts == 0)
        return list(zip(self.tokens[chosen].tolist(), self.prefixes[chosen].tolist(), strict=True))

    @cached_property
    def decode_contexts(self) -> list[int]:
        """Tokens of context of what a StepCost prices as decodes; those that verify drafts too."""
        chosen = ~self.is_prefill | (self.drafts > 0)
        contexts: list[int] = (self.prefixes[chosen] + self.tokens[chosen]).tolist()
        return contexts


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outputs:
    """What a step gave to its requests; those that got nothing are left out."""

    rows: Int64
    new_tokens: Int64
    finished: Bool


class Scheduler:
    """Decides steps under `settings`, and learns that they ended.

    Requests are known by their row: 0, 1, 2 … in order of `add`. UsageError for settings that are not
    simulated, see `check_supported`.
    """

    def __init__(self, settings: SchedulerSettings, *, draft_acceptance: float = 0.0, seed: int = 0) -> None:
        check_supported(settings)
        self.settings = settings
        self._state = new_state(settings, draft_acceptance=draft_acceptance, seed=seed)
        compiled.reset_blocks(self._state)
        self._num_rows = 0
        self._num_contents = 0
        self._num_tables = self._num_content_places = 0
        self._content_of_key: dict[int, int] = {}
        self._in_flight: list[int] = []

    def add(self, input_len: int, output_len: int, *, arrival_ns: int = 0, priority: int = 0,
            prefix_keys: Sequence[int] = ()) -> int:
        """Queue a request; its row. `prefix_keys` as in SimulatedLoad. Rejected, and nothing changed,
        where it could never run."""
        if reason := rejected(self.settings, input_len, output_len):
            raise reason
        row = self._num_rows
        self._num_rows += 1
        columns = (np.array([value]) for value in (input_len, output_len, arrival_ns, priority))
        self._make_room()
        fields = self._state.rows[row:row + 1]
        fill_rows(fields, *columns)
        if self.settings.prefix_caching:
            self._add_contents(fields[0], prefix_keys)
        compiled.add(self._state, row)
        return row

    def abort(self, row: int) -> None:
        """End a request before its time; nothing happens if it has ended already."""
        compiled.end_early(self._state, row)

    def schedule(self) -> Step:
        """The next step, empty when there is nothing to do now. RuntimeError when as many steps are in
        flight as the engine allows."""
        state, scalars = self._state, self._state.scalars
        if len(self._in_flight) == scalars[k.MOST_IN_FLIGHT]:
            raise RuntimeError(f"{len(self._in_flight)} steps are in flight already; update the oldest first")
        place = compiled.decide(state, other_rule(self.settings))
        count = state.entry_counts[place] if place >= 0 else 0
        entries = state.entries[max(place, 0), :count].copy()
        if count:
            self._in_flight.append(int(scalars[k.STEP]))
        tokens, prefixes = entries[:, k.TOKENS], entries[:, k.PREFIX]
        return Step(
            number=int(scalars[k.STEP]), rows=entries[:, k.ROW], tokens=tokens, prefixes=prefixes,
            drafts=entries[:, k.DRAFTED],
            is_prefill=(tokens > 1) | (prefixes < state.rows[entries[:, k.ROW], k.INPUT]),
            preempted=state.spare[:scalars[k.PREEMPTED]].copy(),
            num_running=int(scalars[k.NUM_RUNNING]), num_waiting=int(scalars[k.NUM_WAITING]),
            kv_blocks_used=self.settings.num_kv_blocks - self.num_free_blocks,
        )

    def update(self, step: Step) -> Outputs:
        """Process the outputs of `step`, the oldest one whose outputs were not processed; ValueError for
        another one. An empty step has none."""
        if not len(step):
            return Outputs(rows=step.rows, new_tokens=step.tokens, finished=step.is_prefill)
        if not self._in_flight or self._in_flight[0] != step.number:
            raise ValueError(f"step {step.number} is not the oldest in flight; these are {self._in_flight}")
        self._in_flight.pop(0)
        place = compiled.finish_oldest(self._state)
        entries = self._state.entries[place, :len(step)]
        entries = entries[entries[:, k.NEW_TOKENS] > 0]
        return Outputs(rows=entries[:, k.ROW].copy(), new_tokens=entries[:, k.NEW_TOKENS].copy(),
                       finished=entries[:, k.ENDED] == 1)

    def apply(self, settings: SchedulerSettings) -> None:
        """Change what a running engine can change; NeedsRestart for the rest."""
        fixed = [name for name in SchedulerSettings.__dataclass_fields__ if name not in _LIVE
                 and getattr(settings, name) != getattr(self.settings, name)]
        if fixed:
            raise NeedsRestart(f"{', '.join(fixed)} cannot change while the engine runs")
        check_supported(settings)
        self.settings = settings
        set_knobs(self._state.scalars, settings)

    @property
    def has_work(self) -> bool:
        """Whether a request runs or waits."""
        return bool(self._state.scalars[k.NUM_RUNNING] + self._state.scalars[k.NUM_WAITING])

    def reset_prefix_cache(self) -> bool:
        """Forget what is cached; False, and nothing done, while a request holds blocks, as in vLLM."""
        if self.num_free_blocks != self.settings.num_kv_blocks - 1:
            return False
        self._state.cached[:] = -1
        self._state.blocks[:, k.HOLDS] = -1
        return True

    @property
    def num_free_blocks(self) -> int:
        return int(self._state.scalars[k.FREE_BLOCKS])

    @property
    def running(self) -> list[int]:
        """Rows in order of admission."""
        rows: list[int] = self._state.running[:self._state.scalars[k.NUM_RUNNING]].tolist()
        return rows

    @property
    def waiting(self) -> list[int]:
        """Rows in the order of the queue."""
        rows = self._state.waiting[:self._state.scalars[k.NUM_WAITING]].tolist()
        order = self._state.rows[:, [k.QUEUE_FIRST, k.QUEUE_SECOND]]
        return sorted(rows, key=lambda row: (*order[row].tolist(), row))

    def _add_contents(self, fields: Int64, prefix_keys: Sequence[int]) -> None:
        """Give a new row its places for blocks and for the numbers of their contents."""
        size = self.settings.block_size
        full = int(fields[k.INPUT] + fields[k.OUTPUT]) // size
        numbers = []
        for key in list(prefix_keys)[:full] + [-1] * (full - len(prefix_keys)):
            fresh = self._num_contents
            number = fresh if key < 0 else self._content_of_key.setdefault(int(key), fresh)
            self._num_contents += number == fresh
            numbers.append(number)
        fields[k.CONTENT], fields[k.TABLE] = self._num_content_places, self._num_tables
        slots = most_slots(self.settings, fields[k.INPUT:k.INPUT + 1], fields[k.OUTPUT:k.OUTPUT + 1])
        self._num_tables += -(-int(slots[0]) // size)
        self._num_content_places += full
        self._state = self._state._replace(
            tables=_grown(self._state.tables, self._num_tables),
            contents=_grown(self._state.contents, self._num_content_places),
            cached=_grown(self._state.cached, self._num_contents, fill=-1))
        self._state.contents[fields[k.CONTENT]:self._num_content_places] = numbers

    def _make_room(self) -> None:
        """Room for all rows; a step can carry all that run."""
        state, need = self._state, self._num_rows
        if need <= len(state.rows):
            return
        entries = np.zeros((state.entries.shape[0], max(64, 2 * need), k.NUM_ENTRY_FIELDS), dtype=np.int64)
        entries[:, :state.entries.shape[1]] = state.entries
        self._state = state._replace(
            rows=_grown(state.rows, need), running=_grown(state.running, need),
            waiting=_grown(state.waiting, need), spare=_grown(state.spare, need), entries=entries)


def _grown(column: Column, need: int, fill: int = 0) -> Column:
    """`column` itself, or a copy with room for at least `need`."""
    if need <= len(column):
        return column
    grown = np.full((max(64, 2 * need), *column.shape[1:]), fill, dtype=column.dtype)
    grown[:len(column)] = column
    return grown
