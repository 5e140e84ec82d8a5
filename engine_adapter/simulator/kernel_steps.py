"""A step from its decision to its outputs, compiled: what surrounds `Scheduler.schedule` in vLLM 0.32
(`_update_after_schedule`, `update_from_output`, `AsyncScheduler`, `finish_requests`)."""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

import numpy as np
from numba import njit

from engine_adapter.simulator.kernel_blocks import cache_full_blocks, release
from engine_adapter.simulator.kernel_queue import enqueue, remove
from engine_adapter.simulator.kernel_rules import schedule_other
from engine_adapter.simulator.kernel_state import (
    ACCEPT_BELOW,
    ASYNC,
    CACHE_NEXT,
    CACHING,
    COMPUTED,
    DRAFTED,
    DRAFTS,
    ELIGIBLE,
    ENDED,
    FARTHEST,
    FINISHED,
    IN_FLIGHT,
    INPUT,
    KNOWN,
    MAX_MODEL_LEN,
    MOST_IN_FLIGHT,
    NEW_TOKENS,
    NUM_RUNNING,
    NUM_SPEC,
    OLDEST,
    OUTPUT,
    PADDED,
    PLACEHOLDERS,
    PREEMPTED,
    PREEMPTED_WAITING,
    PREFILLING,
    PROGRESS,
    REJECTED,
    ROW,
    RUNNING,
    SAMPLES,
    SCHEDULED,
    SEED,
    STAGES,
    STALE,
    STATUS,
    STEP,
    TOKENS,
    TOKENS_IN_FLIGHT,
    WAITING,
    Int64,
    State,
    inner,
)
from engine_adapter.simulator.kernel_v1 import schedule_v1


@inner
def add(state: State, row: int) -> None:
    """Put a new `row` at its place in the queue."""
    state.rows[row, STATUS] = WAITING
    enqueue(state, row, False)


@inner
def decide(state: State, other_rule: int | None) -> int:
    """Decide the next step and put it in flight, unless it is empty; the place of its entries, -1 if
    empty. Fewer than MOST_IN_FLIGHT steps may be in flight. None is the rule vllm-v1: the others are
    compiled only where they are used."""
    scalars = state.scalars
    scalars[STEP] += 1
    scalars[PREEMPTED] = 0
    place = (scalars[OLDEST] + scalars[IN_FLIGHT]) % scalars[MOST_IN_FLIGHT]
    entries = state.entries[place]
    if other_rule is None:  # noqa: SIM108 (numba drops the other branch of this form only)
        count = schedule_v1(state, entries)
    else:
        count = schedule_other(state, entries, other_rule)
    if count == 0:
        return -1
    state.entry_counts[place] = count
    scalars[IN_FLIGHT] += 1
    _advance(state, entries, count)
    return place


@inner
def _advance(state: State, entries: Int64, count: int) -> None:
    """Count the tokens of a decided step as computed, as if all its drafts were accepted."""
    scalars = state.scalars
    asynchronous, spec = scalars[ASYNC], scalars[NUM_SPEC]
    eligible = scalars[STEP] + scalars[STAGES]
    rows, step, scheduled = state.rows, scalars[STEP], 0
    for at in range(count):
        row, tokens = entries[at, ROW], entries[at, TOKENS]
        scheduled += tokens
        computed = rows[row, COMPUTED] + tokens
        rows[row, COMPUTED] = computed
        rows[row, TOKENS_IN_FLIGHT] += tokens
        if computed > rows[row, FARTHEST]:
            rows[row, FARTHEST] = computed
            scalars[PROGRESS] = step
        prefilling = computed < rows[row, KNOWN] + rows[row, PLACEHOLDERS]
        rows[row, PREFILLING] = prefilling
        entries[at, SAMPLES] = not prefilling
        if asynchronous and not prefilling:
            rows[row, PLACEHOLDERS] += 1 + entries[at, DRAFTED]
            rows[row, DRAFTS] = spec
            rows[row, ELIGIBLE] = eligible
    scalars[SCHEDULED] += scheduled


@inner
def finish_oldest(state: State) -> int:
    """Process the outputs of the oldest step in flight, and note in its entries how many tokens each
    request got and whether it ended; the place of these entries."""
    scalars, rows = state.scalars, state.rows
    place, limit, spec = scalars[OLDEST], scalars[MAX_MODEL_LEN], scalars[NUM_SPEC]
    asynchronous, caching = scalars[ASYNC], scalars[CACHING]
    entries = state.entries[place]
    left = False
    for at in range(state.entry_counts[place]):
        row, tokens = entries[at, ROW], entries[at, TOKENS]
        rows[row, TOKENS_IN_FLIGHT] -= tokens
        entries[at, NEW_TOKENS] = entries[at, ENDED] = 0
        stale = rows[row, STALE] > 0
        if stale:
            rows[row, STALE] -= tokens
        if rows[row, STATUS] == FINISHED or not entries[at, SAMPLES]:
            continue
        new = _sampled(state, entries, at, stale) if entries[at, DRAFTED] > 0 else 1
        entries[at, NEW_TOKENS] = new
        known = rows[row, KNOWN] + new
        rows[row, KNOWN] = known
        if asynchronous:
            if not stale:
                rows[row, PLACEHOLDERS] -= new
            if caching and rows[row, STATUS] == RUNNING:
                settled = rows[row, COMPUTED] - rows[row, PLACEHOLDERS]
                if settled >= rows[row, CACHE_NEXT]:
                    cache_full_blocks(state, row, settled)
        elif spec > 0 and not rows[row, PREFILLING]:
            rows[row, DRAFTS] = spec
        if known >= limit or known - rows[row, INPUT] >= rows[row, OUTPUT]:
            entries[at, ENDED] = 1
            left |= rows[row, STATUS] == RUNNING
            _end(state, row)
    if left:
        _drop_ended(state)
    scalars[OLDEST] = (place + 1) % scalars[MOST_IN_FLIGHT]
    scalars[IN_FLIGHT] -= 1
    return place


@inner
def _sampled(state: State, entries: Int64, at: int, stale: bool) -> int:
    """Tokens that come out for an entry with drafts, after those that were rejected were taken back."""
    scalars, row, drafted = state.scalars, entries[at, ROW], entries[at, DRAFTED]
    fields = state.rows[row]
    output = fields[KNOWN] - fields[INPUT]
    taken = 0
    if not entries[at, PADDED]:
        taken = accepted_drafts(scalars[SEED], row, output, drafted, scalars[ACCEPT_BELOW])
    if not stale:
        if fields[COMPUTED] > 0:
            fields[COMPUTED] -= drafted - taken
            scalars[REJECTED] += drafted - taken
        if fields[PLACEHOLDERS] > 0:
            fields[PLACEHOLDERS] -= drafted - taken
    return min(1 + taken, fields[OUTPUT] - output, scalars[MAX_MODEL_LEN] - fields[KNOWN])


@njit
def accepted_drafts(seed: int, row: int, output: int, drafted: int, below: int) -> int:
    """How many of `drafted` tokens are accepted after `output` tokens: each with a chance of
    `below` / 2**53 if those before it were, the same in every process (splitmix64)."""
    mixed = np.uint64(seed)
    for number in (row, output):
        mixed = _mix(mixed ^ _mix(np.uint64(number) + np.uint64(1)))
    for at in range(drafted):
        if _mix(mixed + np.uint64(at + 1)) >> np.uint64(11) >= np.uint64(below):
            return at
    return drafted


@inner
def _mix(value: np.uint64) -> np.uint64:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inner
def end_early(state: State, row: int) -> None:
    """End `row`, running or waiting, as if it were aborted; what is in flight of it is dropped."""
    status = state.rows[row, STATUS]
    if status in (WAITING, PREEMPTED_WAITING, RUNNING):
        _end(state, row)
        if status == RUNNING:
            _drop_ended(state)


@inner
def _end(state: State, row: int) -> None:
    fields = state.rows[row]
    if fields[STATUS] != RUNNING:
        remove(state, row)
    fields[STATUS] = FINISHED
    release(state, row)


@inner
def _drop_ended(state: State) -> None:
    """Close the gaps that ended requests left in RUNNING."""
    running, kept = state.running, 0
    for at in range(state.scalars[NUM_RUNNING]):
        row = running[at]
        if state.rows[row, STATUS] == RUNNING:
            running[kept] = row
            kept += 1
    state.scalars[NUM_RUNNING] = kept
