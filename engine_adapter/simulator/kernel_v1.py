"""The rule vllm-v1, compiled: `Scheduler.schedule` of vLLM 0.32, decision for decision.

The RUNNING list is walked in order of admission, each request getting what it lacks, as far as the cap
on long prefills and the budgets allow; a request that finds no KV block pushes out the last one (or the
least urgent one). If none was pushed out, waiting requests are admitted in order until one does not fit.
"""

# mypy: no-warn-return-any
# (the elements of arrays have no type for mypy)

from engine_adapter.simulator.kernel_blocks import admit, cached_prefix, grow, release
from engine_adapter.simulator.kernel_queue import dequeue, enqueue, put_back
from engine_adapter.simulator.kernel_state import (
    ADAPTIVE,
    ARRIVAL,
    BLOCK_SIZE,
    BUDGET,
    CACHE_NEXT,
    CACHED_TOKENS,
    CHUNKED,
    COMPUTED,
    DRAFT_SLOTS,
    DRAFTED,
    DRAFTS,
    ELIGIBLE,
    INPUT,
    INPUT_BUDGET,
    KNOWN,
    LONG_PREFILL,
    LOOKAHEAD,
    LOST,
    MAX_ACTIVE,
    MAX_MODEL_LEN,
    NUM_RUNNING,
    NUM_SPEC,
    NUM_WAITING,
    OUTPUT,
    PADDED,
    PLACEHOLDERS,
    PREEMPTED,
    PREEMPTED_WAITING,
    PREEMPTIONS,
    PREFILLING,
    PREFIX,
    PRIORITY,
    ROOM,
    ROW,
    RUNNING,
    STALE,
    STATUS,
    STEP,
    TOKENS,
    TOKENS_IN_FLIGHT,
    URGENCY,
    Int64,
    State,
    inner,
)


@inner
def schedule_v1(state: State, entries: Int64) -> int:
    """Fill `entries` with the next step; the number of its requests."""
    scalars = state.scalars
    eligible = scalars[NUM_RUNNING] + scalars[NUM_WAITING]
    cap = scalars[LONG_PREFILL] if eligible > 1 else 0
    if cap > 0 and scalars[ADAPTIVE]:
        cap = max(cap, scalars[INPUT_BUDGET] // eligible)
    count, budget, inputs, prefilling = _continue_running(state, entries, cap)
    if scalars[PREEMPTED] == 0:
        count = _admit_waiting(state, entries, cap, count, budget, inputs, prefilling)
    return count


@inner
def _continue_running(state: State, entries: Int64, cap: int) -> tuple[int, int, int, bool]:
    """Requests scheduled, the token and the input budget left, and whether one of them was prefilling."""
    # Fields are read one by one here and in the other loops over a step's requests: a view of a row
    # would cost more than all else.
    scalars, rows, running = state.scalars, state.rows, state.running
    budget, inputs, slots = scalars[BUDGET], scalars[INPUT_BUDGET], scalars[DRAFT_SLOTS]
    step, lookahead, longest = scalars[STEP], scalars[LOOKAHEAD], scalars[MAX_MODEL_LEN]
    at = count = 0
    prefilling = False
    while at < scalars[NUM_RUNNING] and budget > 0 and inputs > slots:
        row = running[at]
        computed, coming = rows[row, COMPUTED], rows[row, PLACEHOLDERS]
        new = rows[row, KNOWN] + rows[row, DRAFTS] + coming - computed
        if 0 < cap < new:
            new = cap
        new = min(new, budget, inputs - slots, longest - computed - 1)
        if new <= 0 or step < rows[row, ELIGIBLE] or (
            # Its last token is in flight already.
            coming > 0 and computed + 2 - coming >= rows[row, INPUT] + rows[row, OUTPUT]
        ):
            at += 1
            continue
        if computed + new + lookahead > rows[row, ROOM] or computed + new >= rows[row, CACHE_NEXT]:
            while not grow(state, row, new):
                victim_at = _least_urgent(state) if scalars[PRIORITY] else scalars[NUM_RUNNING] - 1
                victim = running[victim_at]
                _leave_running(state, victim_at)
                if victim_at < at:
                    at -= 1
                    restored = _take_back(entries, count, victim)
                    if restored > 0:
                        count -= 1
                        budget += restored
                        inputs += restored + slots
                preempt(state, victim)
                if victim == row:
                    return count, budget, inputs, prefilling
        prefilling |= rows[row, PREFILLING] != 0
        drafted = 0
        if rows[row, DRAFTS] > 0:
            over = new + computed - rows[row, KNOWN] - coming
            drafted = max(min(rows[row, DRAFTS], over), 0)
            rows[row, DRAFTS] = 0
        note(entries, count, row, new, computed, drafted, 0)
        count += 1
        budget -= new
        inputs -= new + slots
        at += 1
    return count, budget, inputs, prefilling


@inner
def _admit_waiting(state: State, entries: Int64, cap: int, count: int, budget: int, inputs: int,
                   prefilling: bool) -> int:
    """Admit waiting requests behind the `count` scheduled ones; the number of all scheduled."""
    scalars, rows = state.scalars, state.rows
    slots = scalars[DRAFT_SLOTS]
    aside = 0
    running_scheduled = count > 0
    while budget > 0 and inputs > slots and scalars[NUM_WAITING] > 0:
        if scalars[NUM_RUNNING] >= scalars[MAX_ACTIVE]:
            break
        row = state.waiting[0]
        fields = rows[row]
        if fields[STALE] > 0:
            # What was in flight when it was preempted comes first.
            state.spare[aside] = dequeue(state)
            aside += 1
            continue
        hits = cached_prefix(state, row)
        computed = hits * scalars[BLOCK_SIZE]
        room = min(budget, inputs - slots)
        new, padded = _first_tokens(
            scalars, fields, computed, not prefilling and (running_scheduled or computed > 0), cap, room)
        if new == 0 or not admit(state, row, hits, new):
            break
        dequeue(state)
        if fields[PREEMPTIONS] == 0:
            fields[CACHED_TOKENS] = computed
        fields[STATUS] = RUNNING
        state.running[scalars[NUM_RUNNING]] = row
        scalars[NUM_RUNNING] += 1
        note(entries, count, row, new, computed, scalars[NUM_SPEC] if padded else 0, padded)
        count += 1
        budget -= new
        inputs -= new + slots
    for at in range(aside):
        put_back(state, state.spare[at])
    return count


@inner
def _first_tokens(scalars: Int64, fields: Int64, computed: int, may_pad: bool, cap: int,
                  room: int) -> tuple[int, int]:
    """Tokens for a waiting request of which `computed` are cached, 0 to stop admitting; and 1 where they
    are one token padded to the length of a decode with drafts."""
    new, padded = fields[KNOWN] - computed, 0
    if scalars[NUM_SPEC] > 0 and new == 1 and may_pad:
        whole = 1 + scalars[NUM_SPEC]
        if computed + whole + 1 <= scalars[MAX_MODEL_LEN]:
            if whole > room:
                return 0, 0
            new, padded = whole, 1
    if 0 < cap < new:
        new = cap
    if new > room and not scalars[CHUNKED]:
        return 0, 0
    return min(new, room), padded


@inner
def note(entries: Int64, count: int, row: int, tokens: int, prefix: int, drafted: int, padded: int) -> None:
    """Write an entry."""
    entries[count, ROW] = row
    entries[count, TOKENS] = tokens
    entries[count, PREFIX] = prefix
    entries[count, DRAFTED] = drafted
    entries[count, PADDED] = padded


@inner
def preempt(state: State, row: int) -> None:
    """Take the blocks from `row`, which left RUNNING, and let it start again from the queue."""
    scalars, fields = state.scalars, state.rows[row]
    release(state, row)
    state.spare[scalars[PREEMPTED]] = row
    scalars[PREEMPTED] += 1
    scalars[LOST] += fields[COMPUTED]
    fields[STATUS] = PREEMPTED_WAITING
    fields[COMPUTED] = 0
    fields[DRAFTS] = 0
    fields[STALE] = fields[TOKENS_IN_FLIGHT]
    fields[PLACEHOLDERS] = 0
    fields[PREEMPTIONS] += 1
    enqueue(state, row, True)


@inner
def _least_urgent(state: State) -> int:
    """Place in RUNNING of the first request with the greatest (priority, arrival)."""
    rows, running = state.rows, state.running
    worst = 0
    for at in range(1, state.scalars[NUM_RUNNING]):
        one, other = running[at], running[worst]
        if rows[one, URGENCY] > rows[other, URGENCY] or (
            rows[one, URGENCY] == rows[other, URGENCY] and rows[one, ARRIVAL] > rows[other, ARRIVAL]
        ):
            worst = at
    return worst


@inner
def _leave_running(state: State, at: int) -> None:
    running = state.running
    state.scalars[NUM_RUNNING] -= 1
    for place in range(at, state.scalars[NUM_RUNNING]):
        running[place] = running[place + 1]


@inner
def _take_back(entries: Int64, count: int, row: int) -> int:
    """Strike `row` from the `count` entries; the tokens it had, 0 if it was not among them."""
    for at in range(count):
        if entries[at, ROW] == row:
            tokens = entries[at, TOKENS]
            for place in range(at + 1, count):
                note(entries, place - 1, entries[place, ROW], entries[place, TOKENS], entries[place, PREFIX],
                     entries[place, DRAFTED], entries[place, PADDED])
            return tokens
    return 0
