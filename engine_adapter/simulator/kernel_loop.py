"""The engine's loop in simulated time, compiled: `EngineCore.step_with_batch_queue` of vLLM 0.32.

Steps are decided and started until as many are in flight as the engine allows, then the outputs of the
oldest are awaited; with one in flight that is plain lock step. An empty step takes a place in the queue
too, as it does in vLLM. Requests become visible at their arrival plus what the way to the queue costs.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.cost_arrays import CostArrays, chunk_attention_ns
from engine_adapter.simulator.kernel_cruise import cruise
from engine_adapter.simulator.kernel_sending import next_seen_ns, next_sent_ns, note_end, send_due
from engine_adapter.simulator.kernel_state import (
    ARRIVAL,
    DRAFTED,
    ENDED,
    FIRST_NS,
    IN_FLIGHT,
    INPUT,
    MOST_IN_FLIGHT,
    NEVER,
    NEW_TOKENS,
    NUM_RUNNING,
    NUM_WAITING,
    PREEMPTED,
    PREFIX,
    PROGRESS,
    READ_AT,
    READS,
    ROW,
    STEP,
    TOKENS,
    State,
    inner,
)
from engine_adapter.simulator.kernel_steps import add, decide, finish_oldest
from engine_adapter.simulator.kernel_timeline import (
    FIRST_QUEUED,
    HOST,
    KEEP_STEPS,
    NEXT_ARRIVAL,
    NOW,
    NUM_CHUNKS,
    NUM_LOGGED,
    PATIENCE,
    PREEMPTED_SINCE,
    QUEUED,
    STEP_BY_STEP,
    Timeline,
    end_step,
    rounded,
    start_step,
)

MORE, DONE, STUCK = range(3)
"""How a slice of the loop ends."""

_AT_ONCE = 4096
"""Requests of one nanosecond whose arrivals are told apart."""


@inner
def play_slice(state: State, timeline: Timeline, cost: CostArrays, other_rule: int | None,
               turns: int) -> int:
    """Go on for at most `turns` turns, or until the logs are full; MORE, DONE or STUCK."""
    clock = timeline.clock
    for _ in range(turns):
        if (clock[NUM_LOGGED] + 1 > timeline.steps.shape[0]
                or clock[NUM_CHUNKS] + state.entries.shape[1] > timeline.chunks.shape[0]):
            return MORE
        if other_rule is None and not clock[STEP_BY_STEP]:
            cruise(state, timeline, cost)
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
            clock[NOW] += rounded(timeline.delays[HOST])
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
    if next_sent_ns(timeline) <= clock[NOW]:
        send_due(state, timeline)
    while next_seen_ns(timeline) <= clock[NOW]:
        row = timeline.order[clock[NEXT_ARRIVAL]]
        if len(timeline.due) > 0:   # else the rows are in order of arrival
            state.rows[row, ARRIVAL] = timeline.sent_ns[row] * _AT_ONCE + clock[NEXT_ARRIVAL] % _AT_ONCE
        add(state, row)
        clock[NEXT_ARRIVAL] += 1


@inner
def _wait(state: State, timeline: Timeline) -> int:
    """Let time pass until the scheduler sees another request, if there is one."""
    clock = timeline.clock
    sent, seen = next_sent_ns(timeline), next_seen_ns(timeline)
    while sent <= seen and sent < NEVER:
        clock[NOW] = max(clock[NOW], sent)
        send_due(state, timeline)
        sent, seen = next_sent_ns(timeline), next_seen_ns(timeline)
    if seen == NEVER:
        return STUCK if state.scalars[NUM_WAITING] + state.scalars[NUM_RUNNING] > 0 else DONE
    clock[NOW] = max(clock[NOW], seen)
    return MORE


@inner
def _launch(state: State, timeline: Timeline, cost: CostArrays, place: int) -> None:
    """Start the step at `place`, and log its chunks."""
    entries, count = state.entries[place], state.entry_counts[place]
    tokens = prefill_tokens = work_twice = chunks = decodes = logged_decodes = context = 0
    attention = 0.0
    for at in range(count):
        owner, new, prefix = entries[at, ROW], entries[at, TOKENS], entries[at, PREFIX]
        tokens += new
        work_twice += new * (2 * prefix + new)
        chunk = new > 1 or prefix < state.rows[owner, INPUT]
        if chunk:
            prefill_tokens += new
            _log_chunk(state, timeline, owner, new, prefix)
        else:
            logged_decodes += 1
        if chunk and entries[at, DRAFTED] == 0:
            chunks += 1
            attention += chunk_attention_ns(cost.terms, new, prefix)
        else:
            # A decode that verifies drafts reads its context once, as one without.
            decodes += 1
            context += prefix + new
    start_step(state, timeline, cost, place, count, tokens, prefill_tokens, chunks, attention, decodes,
               context, work_twice)
    timeline.pending[place, 5] = logged_decodes


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
def _await_oldest(state: State, timeline: Timeline) -> None:
    """Let the oldest step end, and hand out its tokens."""
    place = finish_oldest(state)
    read = end_step(timeline, place)
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
            note_end(timeline, row, read)
