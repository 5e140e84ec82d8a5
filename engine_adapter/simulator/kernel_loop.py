"""The engine's loop in simulated time, compiled: `EngineCore.step_with_batch_queue` of vLLM 0.32.

Steps are decided and started until as many are in flight as the engine allows, then the outputs of the
oldest are awaited; with one in flight that is plain lock step. An empty step takes a place in the queue
too, as it does in vLLM. Requests become visible at their arrival plus what the way to the queue costs.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from engine_adapter.simulator.cost_arrays import CostArrays, chunk_attention_ns, step_ns
from engine_adapter.simulator.kernel_state import (
    DRAFTED,
    ENDED,
    FIRST_NS,
    FREE_BLOCKS,
    IN_FLIGHT,
    INPUT,
    MOST_IN_FLIGHT,
    NEW_TOKENS,
    NUM_BLOCKS,
    NUM_RUNNING,
    NUM_WAITING,
    PREEMPTED,
    PREFIX,
    PROGRESS,
    READ_AT,
    READS,
    REFUSED,
    ROW,
    STATUS,
    STEP,
    TOKENS,
    Int32,
    Int64,
    State,
    inner,
)
from engine_adapter.simulator.kernel_steps import add, decide, finish_oldest

MORE, DONE, STUCK = range(3)
"""How a slice of the loop ends."""

(NOW, NEXT_ARRIVAL,     # nanoseconds; place of the next arrival in `order`
 NUM_ORDERED, NEXT_SEND,  # arrivals known so far; the next row to be sent
 QUEUED, FIRST_QUEUED,  # steps in the queue, empty ones included, and the place of the oldest
 NUM_STEPS, NUM_LOGGED, NUM_CHUNKS,  # finished steps; rows in `steps` and `chunks`
 PREEMPTED_SINCE,       # preempted since the last step that was not empty
 PATIENCE,              # decisions without progress after which the loop gives up
 KEEP_STEPS) = range(12)
NUM_CLOCK_FIELDS = 12

HOST, HOST_REQUEST, TRANSFER, ARRIVAL_DELAY, ARRIVAL_TOKEN, DELIVERY = range(6)
NUM_DELAYS = 6


class Timeline(NamedTuple):
    """What the loop knows and notes beside the scheduler's state; times in nanoseconds."""

    clock: Int64
    delays: npt.NDArray[np.float64]
    order: Int64
    """Rows in the order in which the scheduler sees them, at their `visible_ns`."""
    visible_ns: Int64
    arrival_ns: Int64
    sent_ns: Int64
    end_ns: Int64
    stage_free_ns: Int64
    """When each pipeline stage is free."""
    queue: Int64
    """Places of the steps in flight, -1 for an empty one; a ring."""
    pending: Int64
    """Shape (steps in flight, len(STEP_COLUMNS)): their rows of the step log."""
    read_ns: Int64
    read_tokens: Int32
    """Empty without drafts: then each read is one token."""
    steps: Int64
    chunks: Int64


@inner
def play_slice(state: State, timeline: Timeline, cost: CostArrays, other_rule: int | None,
               turns: int) -> int:
    """Go on for at most `turns` turns, or until the logs are full; MORE, DONE or STUCK."""
    clock = timeline.clock
    for _ in range(turns):
        if (clock[NUM_LOGGED] + 1 > timeline.steps.shape[0]
                or clock[NUM_CHUNKS] + state.entries.shape[1] > timeline.chunks.shape[0]):
            return MORE
        outcome = _turn(state, timeline, cost, other_rule)
        if outcome != MORE:
            return outcome
    return MORE


@inner
def _turn(state: State, timeline: Timeline, cost: CostArrays, other_rule: int | None) -> int:
    """Decide a step, or await the oldest, or wait for an arrival."""
    scalars, clock = state.scalars, timeline.clock
    _take_arrivals(state, timeline)
    if scalars[NUM_RUNNING] + scalars[NUM_WAITING] > 0:
        place = decide(state, other_rule)
        clock[PREEMPTED_SINCE] += scalars[PREEMPTED]
        if scalars[STEP] - scalars[PROGRESS] > clock[PATIENCE]:
            return STUCK
        if place >= 0:
            _launch(state, timeline, cost, place)
        elif scalars[IN_FLIGHT] == 0:
            clock[QUEUED] = 0
            if scalars[PREEMPTED] == 0:
                return _wait(state, timeline)
            clock[NOW] += _rounded(timeline.delays[HOST])
            return MORE
        most = scalars[MOST_IN_FLIGHT]
        timeline.queue[(clock[FIRST_QUEUED] + clock[QUEUED]) % most] = place
        clock[QUEUED] += 1
        if clock[QUEUED] < most:
            return MORE
    elif clock[QUEUED] == 0:
        return _wait(state, timeline)
    place = timeline.queue[clock[FIRST_QUEUED]]
    clock[FIRST_QUEUED] = (clock[FIRST_QUEUED] + 1) % scalars[MOST_IN_FLIGHT]
    clock[QUEUED] -= 1
    if place >= 0:
        _await_oldest(state, timeline)
    return MORE


@inner
def _take_arrivals(state: State, timeline: Timeline) -> None:
    clock = timeline.clock
    while clock[NEXT_ARRIVAL] < clock[NUM_ORDERED]:
        row = timeline.order[clock[NEXT_ARRIVAL]]
        if timeline.visible_ns[row] > clock[NOW]:
            return
        add(state, row)
        clock[NEXT_ARRIVAL] += 1


@inner
def _wait(state: State, timeline: Timeline) -> int:
    """Let time pass until the next arrival, if there is one."""
    clock = timeline.clock
    if clock[NEXT_ARRIVAL] == clock[NUM_ORDERED]:
        return STUCK if state.scalars[NUM_WAITING] + state.scalars[NUM_RUNNING] > 0 else DONE
    clock[NOW] = max(clock[NOW], timeline.visible_ns[timeline.order[clock[NEXT_ARRIVAL]]])
    return MORE


@inner
def _launch(state: State, timeline: Timeline, cost: CostArrays, place: int) -> None:
    """Start the step at `place`: note when it will end, and its row of the step log."""
    scalars, clock, entries = state.scalars, timeline.clock, state.entries[place]
    count, start = state.entry_counts[place], clock[NOW]
    tokens = prefill_tokens = work_twice = logged_chunks = chunks = decodes = context = 0
    attention = 0.0
    for at in range(count):
        owner, new, prefix = entries[at, ROW], entries[at, TOKENS], entries[at, PREFIX]
        tokens += new
        work_twice += new * (2 * prefix + new)
        chunk = new > 1 or prefix < state.rows[owner, INPUT]
        if chunk:
            prefill_tokens += new
            logged_chunks += 1
            _log_chunk(state, timeline, owner, new, prefix)
        if chunk and entries[at, DRAFTED] == 0:
            chunks += 1
            attention += chunk_attention_ns(cost.terms, new, prefix)
        else:
            # A decode that verifies drafts reads its context once, as one without.
            decodes += 1
            context += prefix + new
    device = step_ns(cost.linear_ns, cost.terms, tokens, chunks, attention, decodes, context)
    clock[NOW] += _rounded(timeline.delays[HOST] + timeline.delays[HOST_REQUEST] * count)
    row = timeline.pending[place]
    row[0], row[1], row[2] = scalars[STEP], start, _through_stages(timeline, clock[NOW], device)
    row[3], row[4], row[5], row[6] = tokens, prefill_tokens, count - logged_chunks, work_twice // 2
    row[7] = scalars[NUM_BLOCKS] - scalars[FREE_BLOCKS]
    row[8], row[9], row[10] = scalars[NUM_RUNNING], scalars[NUM_WAITING], clock[PREEMPTED_SINCE]
    clock[PREEMPTED_SINCE] = 0


@inner
def _log_chunk(state: State, timeline: Timeline, owner: int, tokens: int, prefix: int) -> None:
    clock = timeline.clock
    if state.rows[owner, FIRST_NS] < 0:
        state.rows[owner, FIRST_NS] = clock[NOW]
    if clock[KEEP_STEPS]:
        chunk = timeline.chunks[clock[NUM_CHUNKS]]
        chunk[0], chunk[1], chunk[2], chunk[3] = state.scalars[STEP], owner, tokens, prefix
        clock[NUM_CHUNKS] += 1


@inner
def _through_stages(timeline: Timeline, start: int, device: float) -> int:
    """When a step that is handed over at `start` leaves the last pipeline stage."""
    free = timeline.stage_free_ns
    stages = len(free)
    at = start
    for stage in range(stages):
        if stage > 0:
            at += _rounded(timeline.delays[TRANSFER])
        at = max(at, free[stage]) + _rounded(device / stages)
        free[stage] = at
    return at


@inner
def _await_oldest(state: State, timeline: Timeline) -> None:
    """Let the oldest step end, and hand out its tokens."""
    clock = timeline.clock
    place = finish_oldest(state)
    ended = timeline.pending[place]
    clock[NOW] = max(clock[NOW], ended[2])
    ended[2] = clock[NOW]
    read = clock[NOW] + _rounded(timeline.delays[DELIVERY])
    entries, rows, drafts = state.entries[place], state.rows, len(timeline.read_tokens) > 0
    for at in range(state.entry_counts[place]):
        if entries[at, NEW_TOKENS] == 0:
            continue
        row = entries[at, ROW]
        to = rows[row, READ_AT] + rows[row, READS]
        rows[row, READS] += 1
        timeline.read_ns[to] = read
        if drafts:
            timeline.read_tokens[to] = entries[at, NEW_TOKENS]
        if entries[at, ENDED]:
            timeline.end_ns[row] = read
            send_next(state, timeline, read)
    clock[NUM_STEPS] += 1
    if clock[KEEP_STEPS]:
        for column in range(len(ended)):
            timeline.steps[clock[NUM_LOGGED], column] = ended[column]
        clock[NUM_LOGGED] += 1


@inner
def send_next(state: State, timeline: Timeline, free_ns: int) -> None:
    """Send the next request that waits for a place under the concurrency cap, which is free from
    `free_ns` on; those that are refused give it back at once."""
    clock, order, visible = timeline.clock, timeline.order, timeline.visible_ns
    while clock[NEXT_SEND] < len(order):
        row = clock[NEXT_SEND]
        clock[NEXT_SEND] += 1
        sent = max(timeline.arrival_ns[row], free_ns)
        timeline.sent_ns[row] = sent
        if state.rows[row, STATUS] == REFUSED:
            continue
        visible[row] = sent + _rounded(timeline.delays[ARRIVAL_DELAY]
                                       + timeline.delays[ARRIVAL_TOKEN] * state.rows[row, INPUT])
        at = clock[NUM_ORDERED]
        while at > clock[NEXT_ARRIVAL] and visible[order[at - 1]] > visible[row]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
        clock[NUM_ORDERED] += 1
        return


@inner
def _rounded(nanoseconds: float) -> int:
    return int(nanoseconds + 0.5)
