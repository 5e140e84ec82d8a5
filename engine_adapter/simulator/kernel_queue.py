"""The waiting queue, compiled: a binary heap ordered by (QUEUE_FIRST, QUEUE_SECOND, row).

Under the priority policy these are the priority and the arrival, as vLLM's `Request.__lt__` compares.
First come, first served, the second is a number that grows at the back of the queue and falls at its
front, where preempted requests go.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.kernel_state import (
    ARRIVAL,
    NUM_WAITING,
    PRIORITY,
    QUEUE_BACK,
    QUEUE_FIRST,
    QUEUE_FRONT,
    QUEUE_SECOND,
    URGENCY,
    Int64,
    State,
    inner,
)


@inner
def enqueue(state: State, row: int, in_front: bool) -> None:
    """Put `row` into the queue: by its priority, or else in front of all or behind all."""
    scalars, fields = state.scalars, state.rows[row]
    if scalars[PRIORITY]:
        fields[QUEUE_FIRST] = fields[URGENCY]
        fields[QUEUE_SECOND] = fields[ARRIVAL]
    elif in_front:
        fields[QUEUE_SECOND] = scalars[QUEUE_FRONT]
        scalars[QUEUE_FRONT] -= 1
    else:
        fields[QUEUE_SECOND] = scalars[QUEUE_BACK]
        scalars[QUEUE_BACK] += 1
    put_back(state, row)


@inner
def put_back(state: State, row: int) -> None:
    """Put `row` into the queue at the place it had."""
    heap, at = state.waiting, state.scalars[NUM_WAITING]
    state.scalars[NUM_WAITING] += 1
    heap[at] = row
    _rise(state, at)


@inner
def dequeue(state: State) -> int:
    """Take the first row out of the queue, which must not be empty."""
    row = state.waiting[0]
    _remove_at(state, 0)
    return row


@inner
def remove(state: State, row: int) -> None:
    """Take `row` out of the queue, wherever it is."""
    for at in range(state.scalars[NUM_WAITING]):
        if state.waiting[at] == row:
            _remove_at(state, at)
            return


@inner
def _remove_at(state: State, at: int) -> None:
    heap = state.waiting
    state.scalars[NUM_WAITING] -= 1
    last = state.scalars[NUM_WAITING]
    if at != last:
        heap[at] = heap[last]
        _sink(state, at)
        _rise(state, at)


@inner
def _before(rows: Int64, one: int, other: int) -> bool:
    if rows[one, QUEUE_FIRST] != rows[other, QUEUE_FIRST]:
        return rows[one, QUEUE_FIRST] < rows[other, QUEUE_FIRST]
    if rows[one, QUEUE_SECOND] != rows[other, QUEUE_SECOND]:
        return rows[one, QUEUE_SECOND] < rows[other, QUEUE_SECOND]
    return one < other


@inner
def _rise(state: State, at: int) -> None:
    heap = state.waiting
    while at > 0:
        parent = (at - 1) // 2
        if not _before(state.rows, heap[at], heap[parent]):
            return
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


@inner
def _sink(state: State, at: int) -> None:
    heap, size = state.waiting, state.scalars[NUM_WAITING]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(state.rows, heap[child + 1], heap[child]):
            child += 1
        if not _before(state.rows, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child
