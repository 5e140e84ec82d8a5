"""Simulated time, compiled: what the loop notes beside the scheduler's state, how a step starts and ends."""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.cost_arrays import CostArrays, step_ns
from engine_adapter.simulator.kernel_state import (
    FREE_BLOCKS,
    NUM_BLOCKS,
    NUM_RUNNING,
    NUM_WAITING,
    STEP,
    Int32,
    Int64,
    State,
    inner,
)

(NOW, NEXT_ARRIVAL,     # nanoseconds; place of the next arrival in `order`
 NUM_ORDERED,           # arrivals known so far
 CAP,                   # how many may be in flight at once, 0 for any number
 NUM_DUE,               # rows in the heap `due`
 NUM_FREE, FIRST_FREE,  # free places under the cap, and where in `free_ns` the first is
 QUEUED, FIRST_QUEUED,  # steps in the queue, empty ones included, and the place of the oldest
 NUM_STEPS, NUM_LOGGED, NUM_CHUNKS,  # finished steps; rows in `steps` and `chunks`
 PREEMPTED_SINCE,       # preempted since the last step that was not empty
 PATIENCE,              # decisions without progress after which the loop gives up
 KEEP_STEPS,
 STEP_BY_STEP,          # take no shortcut
 ) = range(16)
NUM_CLOCK_FIELDS = 16

HOST, HOST_REQUEST, TRANSFER, ARRIVAL_DELAY, ARRIVAL_TOKEN, DELIVERY = range(6)
NUM_DELAYS = 6


class Timeline(NamedTuple):
    """What the loop knows and notes beside the scheduler's state; times in nanoseconds."""

    clock: Int64
    delays: npt.NDArray[np.float64]
    order: Int64
    """Rows that were sent, in the order in which the scheduler sees them, at their `visible_ns`."""
    visible_ns: Int64
    arrival_ns: Int64
    sent_ns: Int64
    end_ns: Int64
    next_turn: Int64
    """The row that waits for the end of each, -1 for none."""
    think_ns: Int64
    due_ns: Int64
    """When each is to be sent, as far as is known."""
    due: Int64
    """kernel_sending: a heap of the rows that are to be sent; empty where all are sent from the start."""
    free_ns: Int64
    """Since when the free places under the cap are free, in that order; a ring."""
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
    stretch_ns: Int64
    """kernel_cruise: reads of the steps of a stretch."""
    events: Int64
    """kernel_cruise: shape (NUM_EVENTS, requests that may run)."""


@inner
def start_step(state: State, timeline: Timeline, cost: CostArrays, place: int, requests: int, tokens: int,
               prefill_tokens: int, chunks: int, attention: float, decodes: int, context: int,
               work_twice: int) -> None:
    """Start the step at `place`: note when it will end, and its row of the step log.

    `chunks` of its requests cost `attention`, `decodes` read a context of so many tokens; a request that
    is no chunk for the cost may be one for the log, so `prefill_tokens` counts by the log's rule.
    """
    scalars, clock, start = state.scalars, timeline.clock, timeline.clock[NOW]
    device = step_ns(cost.linear_ns, cost.terms, tokens, chunks, attention, decodes, context)
    clock[NOW] += rounded(timeline.delays[HOST] + timeline.delays[HOST_REQUEST] * requests)
    row = timeline.pending[place]
    row[0], row[1], row[2] = scalars[STEP], start, _through_stages(timeline, clock[NOW], device)
    row[3], row[4], row[5], row[6] = tokens, prefill_tokens, decodes, work_twice // 2
    row[7] = scalars[NUM_BLOCKS] - scalars[FREE_BLOCKS]
    row[8], row[9], row[10] = scalars[NUM_RUNNING], scalars[NUM_WAITING], clock[PREEMPTED_SINCE]
    clock[PREEMPTED_SINCE] = 0


@inner
def _through_stages(timeline: Timeline, start: int, device: float) -> int:
    """When a step that is handed over at `start` leaves the last pipeline stage."""
    free = timeline.stage_free_ns
    stages = len(free)
    at = start
    for stage in range(stages):
        if stage > 0:
            at += rounded(timeline.delays[TRANSFER])
        at = max(at, free[stage]) + rounded(device / stages)
        free[stage] = at
    return at


@inner
def end_step(timeline: Timeline, place: int) -> int:
    """Let the step at `place` end, and log it; when its tokens are read."""
    clock, ended = timeline.clock, timeline.pending[place]
    clock[NOW] = max(clock[NOW], ended[2])
    ended[2] = clock[NOW]
    clock[NUM_STEPS] += 1
    if clock[KEEP_STEPS]:
        for column in range(len(ended)):
            timeline.steps[clock[NUM_LOGGED], column] = ended[column]
        clock[NUM_LOGGED] += 1
    return clock[NOW] + rounded(timeline.delays[DELIVERY])


@inner
def rounded(nanoseconds: float) -> int:
    """To whole nanoseconds, half of one up."""
    return int(nanoseconds + 0.5)
