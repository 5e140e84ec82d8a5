"""A shortcut of the loop, compiled: steps in which every running request decodes and nothing else happens.

Between two arrivals most steps only add a token to every running request. They are decided here without
looking at each request: what a step carries follows from the step before, and the tokens are handed out
when such a stretch is over. Blocks are taken and cached, and requests end, in the same order as in
`kernel_v1` and `kernel_steps`, so that nothing differs but the time it takes.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.cost_arrays import CostArrays
from engine_adapter.simulator.kernel_blocks import cache_full_blocks, grow, release
from engine_adapter.simulator.kernel_sending import next_coming_ns, note_end
from engine_adapter.simulator.kernel_state import (
    ASYNC,
    BLOCK_SIZE,
    BUDGET,
    CACHE_NEXT,
    CACHING,
    COMPUTED,
    DRAFTED,
    ELIGIBLE,
    FARTHEST,
    FINISHED,
    FREE_BLOCKS,
    IN_FLIGHT,
    INPUT,
    INPUT_BUDGET,
    KNOWN,
    MAX_ACTIVE,
    MAX_MODEL_LEN,
    MOST_IN_FLIGHT,
    NUM_RUNNING,
    NUM_SPEC,
    NUM_WAITING,
    OLDEST,
    OUTPUT,
    PADDED,
    PLACEHOLDERS,
    PREEMPTED,
    PREFILLING,
    PREFIX,
    PROGRESS,
    READ_AT,
    READS,
    ROOM,
    ROW,
    SAMPLES,
    SCHEDULED,
    STAGES,
    STALE,
    STATUS,
    STEP,
    TOKENS,
    TOKENS_IN_FLIGHT,
    State,
    inner,
)
from engine_adapter.simulator.kernel_timeline import (
    FIRST_QUEUED,
    KEEP_STEPS,
    NOW,
    NUM_LOGGED,
    QUEUED,
    Timeline,
    end_step,
    start_step,
)

BLOCK_AT, CACHE_AT, END_AT = range(3)
"""Rows of Timeline.events: at which step of the stretch a request takes a block, caches one, ends."""
NUM_EVENTS = 3


@inner
def cruise(state: State, timeline: Timeline, cost: CostArrays) -> None:
    """Play as many such steps as there are from here on; none, if the next one is not of this kind."""
    if not _steady(state, timeline):
        return
    scalars, clock, events = state.scalars, timeline.clock, timeline.events
    lag = scalars[ASYNC]
    prefixes = _note_events(state, timeline, lag)
    coming_ns = next_coming_ns(timeline)
    step = 0
    # One row of the log is left for the turn of the loop that follows.
    most = min(len(timeline.stretch_ns), timeline.steps.shape[0] - clock[NUM_LOGGED] - 1)
    if not clock[KEEP_STEPS]:
        most = len(timeline.stretch_ns)
    while step < most:
        if coming_ns <= clock[NOW]:
            break
        count = scalars[NUM_RUNNING]
        ending = taking = caching = 0
        for at in range(count):
            ending += events[END_AT, at] == step
            taking += events[BLOCK_AT, at] == step
            caching += events[CACHE_AT, at] == step
        if taking > scalars[FREE_BLOCKS]:
            break
        if lag and ending > 0:
            # Those whose last token is in flight are in no further step.
            if ending == count:
                break
            count -= ending
            for at in range(scalars[NUM_RUNNING]):
                if events[END_AT, at] == step:
                    prefixes -= state.rows[state.running[at], COMPUTED] + step
        if taking + caching > 0:
            _change_blocks(state, timeline, step, lag)
        place = (scalars[OLDEST] + scalars[IN_FLIGHT]) % scalars[MOST_IN_FLIGHT]
        scalars[STEP] += 1
        scalars[SCHEDULED] += count
        start_step(state, timeline, cost, place, count, count, 0, 0, 0.0, count, prefixes + count,
                   2 * prefixes + count)
        prefixes += count
        oldest = scalars[OLDEST]
        scalars[OLDEST] = (oldest + lag) % scalars[MOST_IN_FLIGHT]
        clock[FIRST_QUEUED] = (clock[FIRST_QUEUED] + 1) % scalars[MOST_IN_FLIGHT]
        read = end_step(timeline, oldest)
        timeline.stretch_ns[step] = read
        step += 1
        if ending > 0:
            prefixes -= _end_requests(state, timeline, step, lag, read)
            coming_ns = next_coming_ns(timeline)
            if scalars[NUM_RUNNING] == 0 or scalars[NUM_WAITING] > 0:
                break
    if step > 0:
        _catch_up(state, timeline, step, lag)


@inner
def _steady(state: State, timeline: Timeline) -> bool:
    """Whether every running request decodes in the next step, and no other request can be in it."""
    scalars, rows, running, clock = state.scalars, state.rows, state.running, timeline.clock
    count, lag = scalars[NUM_RUNNING], scalars[ASYNC]
    if count == 0 or count > scalars[BUDGET] or count > scalars[INPUT_BUDGET]:
        return False
    if scalars[NUM_WAITING] > 0 and count < scalars[MAX_ACTIVE]:
        return False
    if scalars[NUM_SPEC] > 0 or scalars[STAGES] > 1 or clock[QUEUED] != lag or scalars[IN_FLIGHT] != lag:
        return False
    # The latest are the likeliest to be prefilling.
    for at in range(count - 1, -1, -1):
        row = running[at]
        if (rows[row, COMPUTED] != rows[row, KNOWN] - 1 + lag or rows[row, COMPUTED] < rows[row, INPUT]
                or rows[row, PLACEHOLDERS] != lag
                or rows[row, STALE] > 0 or rows[row, TOKENS_IN_FLIGHT] != lag):
            return False
    if lag:
        entries = state.entries[scalars[OLDEST]]
        if state.entry_counts[scalars[OLDEST]] != count:
            return False
        for at in range(count):
            if entries[at, ROW] != running[at] or entries[at, TOKENS] != 1:
                return False
    return True


@inner
def _note_events(state: State, timeline: Timeline, lag: int) -> int:
    """Foresee what happens to each running request; the sum of their tokens in the KV cache."""
    scalars, rows, events = state.scalars, state.rows, timeline.events
    prefixes = 0
    for at in range(scalars[NUM_RUNNING]):
        row = state.running[at]
        prefixes += rows[row, COMPUTED]
        last = min(rows[row, INPUT] + rows[row, OUTPUT], scalars[MAX_MODEL_LEN])
        events[END_AT, at] = last - rows[row, KNOWN] - 1
        _note_blocks(state, timeline, at, 0)
        if lag and events[BLOCK_AT, at] == events[END_AT, at]:
            events[BLOCK_AT, at] = -1
    return prefixes


@inner
def _note_blocks(state: State, timeline: Timeline, at: int, step: int) -> None:
    """When, counted from the start of the stretch, the request at this place of RUNNING, which `step` steps
    have brought to where it is, next needs a block and fills one."""
    rows, row, events = state.rows, state.running[at], timeline.events
    events[BLOCK_AT, at] = step + rows[row, ROOM] - rows[row, COMPUTED]
    events[CACHE_AT, at] = step + rows[row, CACHE_NEXT] - rows[row, KNOWN] if state.scalars[CACHING] else -1


@inner
def _change_blocks(state: State, timeline: Timeline, step: int, lag: int) -> None:
    """Take and cache the blocks of this step, in order of the requests."""
    scalars, rows, events = state.scalars, state.rows, timeline.events
    if not scalars[CACHING]:
        size = scalars[BLOCK_SIZE]
        for at in range(scalars[NUM_RUNNING]):
            if events[BLOCK_AT, at] == step:
                rows[state.running[at], ROOM] += size
                events[BLOCK_AT, at] += size
                scalars[FREE_BLOCKS] -= 1
                if lag and events[BLOCK_AT, at] == events[END_AT, at]:
                    events[BLOCK_AT, at] = -1
        return
    for at in range(scalars[NUM_RUNNING]):
        if events[BLOCK_AT, at] != step and events[CACHE_AT, at] != step:
            continue
        if lag and events[END_AT, at] == step:
            continue
        row = state.running[at]
        computed, known = rows[row, COMPUTED], rows[row, KNOWN]
        rows[row, COMPUTED] += step
        rows[row, KNOWN] += step
        grow(state, row, 1)
        _note_blocks(state, timeline, at, step)
        if lag and events[BLOCK_AT, at] == events[END_AT, at]:
            events[BLOCK_AT, at] = -1
        rows[row, COMPUTED] = computed
        rows[row, KNOWN] = known


@inner
def _end_requests(state: State, timeline: Timeline, steps: int, lag: int, read: int) -> int:
    """End those whose last token came out of the latest of `steps` steps; the sum of the tokens that are
    taken out of the KV cache of those that were in that step."""
    scalars, rows, running, events = state.scalars, state.rows, state.running, timeline.events
    kept = gone = 0
    for at in range(scalars[NUM_RUNNING]):
        row = running[at]
        if events[END_AT, at] != steps - 1:
            running[kept] = row
            for event in range(NUM_EVENTS):
                events[event, kept] = events[event, at]
            kept += 1
            continue
        _hand_out(state, timeline, row, steps)
        rows[row, KNOWN] += steps
        rows[row, COMPUTED] += steps - lag
        rows[row, FARTHEST] = rows[row, COMPUTED]
        rows[row, TOKENS_IN_FLIGHT] = rows[row, PLACEHOLDERS] = 0
        if lag:
            if scalars[CACHING]:
                cache_full_blocks(state, row, rows[row, COMPUTED])
        else:
            gone += rows[row, COMPUTED]
        rows[row, STATUS] = FINISHED
        release(state, row)
        note_end(timeline, row, read)
    scalars[NUM_RUNNING] = kept
    return gone


@inner
def _catch_up(state: State, timeline: Timeline, steps: int, lag: int) -> None:
    """Bring every running request, and the step in flight, to where `steps` steps have led."""
    scalars, rows, running = state.scalars, state.rows, state.running
    scalars[PREEMPTED] = 0
    scalars[PROGRESS] = scalars[STEP]
    for at in range(scalars[NUM_RUNNING]):
        row = running[at]
        _hand_out(state, timeline, row, steps)
        rows[row, KNOWN] += steps
        rows[row, COMPUTED] += steps
        rows[row, FARTHEST] = max(rows[row, FARTHEST], rows[row, COMPUTED])
        rows[row, PREFILLING] = 0
        if lag:
            rows[row, ELIGIBLE] = scalars[STEP] + scalars[STAGES]
    if lag:
        place = scalars[OLDEST]
        entries = state.entries[place]
        state.entry_counts[place] = scalars[NUM_RUNNING]
        timeline.queue[timeline.clock[FIRST_QUEUED]] = place
        for at in range(scalars[NUM_RUNNING]):
            entries[at, ROW] = running[at]
            entries[at, TOKENS] = entries[at, SAMPLES] = 1
            entries[at, PREFIX] = rows[running[at], COMPUTED] - 1
            entries[at, DRAFTED] = entries[at, PADDED] = 0


@inner
def _hand_out(state: State, timeline: Timeline, row: int, steps: int) -> None:
    """Note the reads of `steps` steps."""
    rows = state.rows
    to = rows[row, READ_AT] + rows[row, READS]
    for at in range(steps):
        timeline.read_ns[to + at] = timeline.stretch_ns[at]
    rows[row, READS] += steps
