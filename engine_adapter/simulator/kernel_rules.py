"""The other scheduling rules, compiled: the policies that the literature compares with.

They are first come, first served, without prefix caching, drafts or asynchronous scheduling, and know no
cap on long prefills. A request whose step is in flight (pipeline parallel) is left out. A preempted
request computes all its tokens again.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.kernel_blocks import grow, reserve
from engine_adapter.simulator.kernel_queue import dequeue
from engine_adapter.simulator.kernel_state import (
    BUDGET,
    COMPUTED,
    IN_FLIGHT,
    INPUT,
    KNOWN,
    MAX_ACTIVE,
    NUM_RUNNING,
    NUM_WAITING,
    OUTPUT,
    PREEMPTED,
    RUNNING,
    STATUS,
    TOKENS_IN_FLIGHT,
    Int64,
    State,
    inner,
)
from engine_adapter.simulator.kernel_v1 import note, preempt

OTHER_RULES = ("sarathi-serve", "vllm-v0", "orca", "request-level")


@inner
def schedule_other(state: State, entries: Int64, rule: int) -> int:
    """Fill `entries` with the next step by the rule at this place of OTHER_RULES; the number of its
    requests."""
    if rule == 0:
        return schedule_sarathi(state, entries)
    if rule == 1:
        return schedule_v0(state, entries)
    if rule == 2:
        return schedule_orca(state, entries)
    return schedule_request_level(state, entries)


@inner
def schedule_sarathi(state: State, entries: Int64) -> int:
    """Decodes, then chunks of prompts that were begun, then new prompts, up to the budget; blocks for
    the whole prompt are taken at admission (Sarathi-Serve's scheduler)."""
    count, budget = _decode(state, entries, 0, state.scalars[BUDGET])
    for at in range(state.scalars[NUM_RUNNING]):
        row = state.running[at]
        fields = state.rows[row]
        if budget > 0 and fields[TOKENS_IN_FLIGHT] == 0 and not _decodes(fields):
            new = min(fields[KNOWN] - fields[COMPUTED], budget)
            note(entries, count, row, new, fields[COMPUTED], 0, 0)
            count += 1
            budget -= new
    while budget > 0 and _may_admit(state) and reserve(state, state.waiting[0],
                                                       state.rows[state.waiting[0], KNOWN]):
        row = _to_running(state)
        new = min(state.rows[row, KNOWN], budget)
        note(entries, count, row, new, 0, 0, 0)
        count += 1
        budget -= new
    return count


@inner
def schedule_v0(state: State, entries: Int64) -> int:
    """While a prompt can be admitted, whole prompts alone, as many as fit into the budget and at least
    one; decodes otherwise (vLLM V0 without chunked prefill)."""
    count, budget = 0, state.scalars[BUDGET]
    while _may_admit(state):
        row = state.waiting[0]
        tokens = state.rows[row, KNOWN]
        if (count > 0 and tokens > budget) or not reserve(state, row, tokens):
            break
        note(entries, count, _to_running(state), tokens, 0, 0, 0)
        count += 1
        budget -= tokens
    if count > 0:
        return count
    count, budget = _decode(state, entries, 0, state.scalars[BUDGET])
    return count


@inner
def schedule_orca(state: State, entries: Int64) -> int:
    """Decodes, and whole prompts in the same step, as many as fit into the budget and at least one;
    blocks for the prompt and the whole answer are taken at admission (Orca)."""
    count, budget = _decode(state, entries, 0, state.scalars[BUDGET])
    prompts = 0
    while _may_admit(state):
        row = state.waiting[0]
        fields = state.rows[row]
        if prompts > 0 and fields[INPUT] > budget:
            break
        if not reserve(state, row, fields[INPUT] + fields[OUTPUT]):
            break
        note(entries, count, _to_running(state), fields[INPUT], 0, 0, 0)
        count += 1
        prompts += 1
        budget -= fields[INPUT]
    return count


@inner
def schedule_request_level(state: State, entries: Int64) -> int:
    """A batch of requests is admitted when nothing runs, with blocks for their whole answers; its whole
    prompts go first, as many in a step as fit into the budget and at least one, then all decode
    together until the last has ended."""
    scalars = state.scalars
    if scalars[NUM_RUNNING] == 0 and scalars[IN_FLIGHT] == 0:
        while _may_admit(state):
            fields = state.rows[state.waiting[0]]
            if not reserve(state, state.waiting[0], fields[INPUT] + fields[OUTPUT]):
                break
            _to_running(state)
    count, budget = 0, scalars[BUDGET]
    for at in range(scalars[NUM_RUNNING]):
        row = state.running[at]
        fields = state.rows[row]
        if fields[COMPUTED] == 0 and (count == 0 or fields[INPUT] <= budget):
            note(entries, count, row, fields[INPUT], 0, 0, 0)
            count += 1
            budget -= fields[INPUT]
    if count > 0:
        return count
    count, budget = _decode(state, entries, 0, scalars[BUDGET])
    return count


@inner
def _decodes(fields: Int64) -> bool:
    return fields[COMPUTED] >= fields[INPUT] and fields[KNOWN] - fields[COMPUTED] == 1


@inner
def _decode(state: State, entries: Int64, count: int, budget: int) -> tuple[int, int]:
    """One token for each decoding request in order of admission; where blocks are missing, the last
    running request that is not in flight is pushed out. The number of entries and the budget left."""
    scalars, running = state.scalars, state.running
    at = 0
    while at < scalars[NUM_RUNNING] and budget > 0:
        row = running[at]
        fields = state.rows[row]
        if fields[TOKENS_IN_FLIGHT] > 0 or not _decodes(fields):
            at += 1
            continue
        while not grow(state, row, 1):
            victim_at = scalars[NUM_RUNNING] - 1
            while state.rows[running[victim_at], TOKENS_IN_FLIGHT] > 0:
                victim_at -= 1
            victim = running[victim_at]
            scalars[NUM_RUNNING] -= 1
            for place in range(victim_at, scalars[NUM_RUNNING]):
                running[place] = running[place + 1]
            preempt(state, victim)
            if victim == row:
                break
        if fields[STATUS] != RUNNING:
            break
        note(entries, count, row, 1, fields[COMPUTED], 0, 0)
        count += 1
        budget -= 1
        at += 1
    return count, budget


@inner
def _may_admit(state: State) -> bool:
    """Whether a request waits and may be admitted, if blocks are left."""
    scalars = state.scalars
    return (scalars[NUM_WAITING] > 0 and scalars[NUM_RUNNING] < scalars[MAX_ACTIVE]
            and scalars[PREEMPTED] == 0)


@inner
def _to_running(state: State) -> int:
    """Move the first waiting request to the end of RUNNING; its row."""
    row = dequeue(state)
    state.rows[row, STATUS] = RUNNING
    state.running[state.scalars[NUM_RUNNING]] = row
    state.scalars[NUM_RUNNING] += 1
    return row
