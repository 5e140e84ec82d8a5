"""Who is sent when, compiled: turns of conversations wait for the turn before, and all for a place under
the concurrency cap. Whoever is due goes first, of equals the first row.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.kernel_state import INPUT, NEVER, REFUSED, STATUS, State, inner
from engine_adapter.simulator.kernel_timeline import (
    ARRIVAL_DELAY,
    ARRIVAL_TOKEN,
    CAP,
    FIRST_FREE,
    NEXT_ARRIVAL,
    NOW,
    NUM_DUE,
    NUM_FREE,
    NUM_ORDERED,
    Timeline,
    rounded,
)


@inner
def next_seen_ns(timeline: Timeline) -> int:
    """When the scheduler sees the next of those that were sent; NEVER without one."""
    clock = timeline.clock
    if clock[NEXT_ARRIVAL] == clock[NUM_ORDERED]:
        return NEVER
    return timeline.visible_ns[timeline.order[clock[NEXT_ARRIVAL]]]


@inner
def next_sent_ns(timeline: Timeline) -> int:
    """When the next request is sent, as far as is known now; NEVER without one."""
    clock = timeline.clock
    if clock[NUM_DUE] == 0:
        return NEVER
    due = timeline.due_ns[timeline.due[0]]
    if clock[CAP] == 0:
        return due
    return max(due, timeline.free_ns[clock[FIRST_FREE]]) if clock[NUM_FREE] > 0 else NEVER


@inner
def next_coming_ns(timeline: Timeline) -> int:
    """When the next request is sent or seen."""
    return min(next_seen_ns(timeline), next_sent_ns(timeline))


@inner
def send_due(state: State, timeline: Timeline) -> None:
    """Send whoever is due by now and has a place; those that are refused take none."""
    clock, order, visible = timeline.clock, timeline.order, timeline.visible_ns
    while True:
        sent = next_sent_ns(timeline)
        if sent > clock[NOW]:
            return
        row = _take_due(timeline)
        timeline.sent_ns[row] = sent
        if state.rows[row, STATUS] == REFUSED:
            continue
        if clock[CAP] > 0:
            clock[FIRST_FREE] = (clock[FIRST_FREE] + 1) % clock[CAP]
            clock[NUM_FREE] -= 1
        visible[row] = sent + rounded(timeline.delays[ARRIVAL_DELAY]
                                      + timeline.delays[ARRIVAL_TOKEN] * state.rows[row, INPUT])
        at = clock[NUM_ORDERED]
        while at > clock[NEXT_ARRIVAL] and visible[order[at - 1]] > visible[row]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
        clock[NUM_ORDERED] += 1


@inner
def note_end(timeline: Timeline, row: int, read: int) -> None:
    """`row` has its last token: its place is free, and the turn after it will be due."""
    timeline.end_ns[row] = read
    clock = timeline.clock
    if clock[CAP] > 0:
        timeline.free_ns[(clock[FIRST_FREE] + clock[NUM_FREE]) % clock[CAP]] = read
        clock[NUM_FREE] += 1
    follower = timeline.next_turn[row]
    if follower >= 0:
        timeline.due_ns[follower] = max(timeline.arrival_ns[follower], read + timeline.think_ns[follower])
        _add_due(timeline, follower)


@inner
def _before(timeline: Timeline, one: int, other: int) -> bool:
    due = timeline.due_ns
    return due[one] < due[other] or (due[one] == due[other] and one < other)


@inner
def _add_due(timeline: Timeline, row: int) -> None:
    """Put `row` into the heap of those that will be sent."""
    heap, at = timeline.due, timeline.clock[NUM_DUE]
    timeline.clock[NUM_DUE] += 1
    while at > 0 and _before(timeline, row, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = row


@inner
def _take_due(timeline: Timeline) -> int:
    """Take the first row out of the heap, which must not be empty."""
    heap = timeline.due
    timeline.clock[NUM_DUE] -= 1
    size, first = timeline.clock[NUM_DUE], heap[0]
    row, at = heap[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(timeline, heap[child + 1], heap[child]):
            child += 1
        if not _before(timeline, heap[child], row):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = row
    return first
