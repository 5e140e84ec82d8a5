"""Playing a whole load against a simulated engine at once."""

import numpy as np

from engine_adapter.errors import Hung
from engine_adapter.simulator import compiled
from engine_adapter.simulator import kernel_loop as loop
from engine_adapter.simulator import kernel_state as k
from engine_adapter.simulator import kernel_timeline as time
from engine_adapter.simulator.cost_arrays import cost_arrays
from engine_adapter.simulator.kernel_cruise import NUM_EVENTS
from engine_adapter.simulator.kernel_state import Int64, State
from engine_adapter.simulator.kernel_timeline import Timeline
from engine_adapter.simulator.load import Bool, Played, SimulatedLoad
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.state_arrays import (
    check_supported,
    fill_rows,
    most_in_flight,
    most_slots,
    new_state,
    other_rule,
    refusals,
)
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog
from workloads.errors import StallfreeError, UsageError

_TURNS = 8192
"""Turns of the loop between two chances to interrupt it."""


def play(load: SimulatedLoad, settings: SchedulerSettings, cost: StepCost, *,
         max_concurrency: int | None = None, keep_steps: bool = True, step_by_step: bool = False) -> Played:
    """What `load` gets from an engine of these settings whose steps take what `cost` says.

    With `max_concurrency`, a request is sent when it is due and fewer than so many wait for their last
    token; whoever was due first goes first, of equals the first in the load. Without `keep_steps` the step
    log stays empty. `step_by_step` decides every step by itself, for checks: the outcome is the same and
    takes longer. Requests that could never run are refused. UsageError for settings that are not
    simulated; Hung when the scheduler gets no further.
    """
    check_supported(settings)
    if max_concurrency is not None and max_concurrency < 1:
        raise UsageError(f"max_concurrency must be at least 1; got {max_concurrency}")
    refused = refusals(settings, load.input_len, load.output_len)[0] > 0
    not_sent = _behind(refused, load.after)
    refused, without = refused & ~not_sent, refused | not_sent
    state = _state(load, settings, without)
    timeline = _timeline(load, settings, cost, state, without, keep_steps)
    timeline.clock[time.STEP_BY_STEP] = step_by_step
    if max_concurrency is None and not (load.after >= 0).any():
        _send_all(state, timeline, refused)
    else:
        timeline = _due_one_by_one(load, timeline, max_concurrency)
    costs = cost_arrays(cost, _largest_step(settings))
    logs: list[tuple[Int64, Int64]] = []
    outcome = loop.MORE
    while outcome == loop.MORE:
        outcome = compiled.play_slice(state, timeline, costs, other_rule(settings), _TURNS)
        logs.append((timeline.steps[:timeline.clock[time.NUM_LOGGED]].copy(),
                     timeline.chunks[:timeline.clock[time.NUM_CHUNKS]].copy()))
        timeline.clock[[time.NUM_LOGGED, time.NUM_CHUNKS]] = 0
    if outcome == loop.STUCK:
        raise Hung(_why_stuck(state, timeline))
    _check_conservation(load, state, timeline, without)
    return _played(load, state, timeline, refused, not_sent, logs)


def _state(load: SimulatedLoad, settings: SchedulerSettings, without: Bool) -> State:
    """The scheduler with a row for each request, none of them queued yet; some will be `without` tokens."""
    n = len(load)
    size = settings.block_size
    full = (load.input_len + load.output_len) // size
    slots = -(-most_slots(settings, load.input_len, load.output_len) // size)
    full[without] = slots[without] = 0
    contents, count = np.zeros(0, dtype=np.int32), 0
    if settings.prefix_caching:
        contents, count = _contents(load, full)
    state = new_state(settings, draft_acceptance=load.draft_acceptance, seed=load.seed, rows=n,
                      table_places=int(slots.sum()) if settings.prefix_caching else 0,
                      contents=count)._replace(contents=contents)
    # No two requests reach an engine at the very same time; vLLM's priority policy can push out equals in
    # a circle for ever. So the order of the arrivals stands for their times.
    fill_rows(state.rows, load.input_len, load.output_len, np.arange(n), load.priority)
    state.rows[:, k.CONTENT] = np.cumsum(full) - full
    state.rows[:, k.TABLE] = np.cumsum(slots) - slots
    wanted = np.where(without, 0, load.output_len)
    state.rows[:, k.READ_AT] = np.cumsum(wanted) - wanted
    state.rows[without, k.STATUS] = k.REFUSED
    compiled.reset_blocks(state)
    return state


def _contents(load: SimulatedLoad, full: Int64) -> tuple[k.Int32, int]:
    """Numbers from 0 for the contents of all full blocks of all requests, `full[i]` of request i, and
    how many numbers there are. Equal keys get equal numbers, all other blocks their own."""
    start = np.cumsum(full) - full
    given = np.minimum(np.diff(load.prefix_offset), full)
    owner = np.repeat(np.arange(len(load)), given)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(given) - given, given)
    keys = load.prefix_keys[load.prefix_offset[owner] + place]
    shared = keys >= 0
    distinct, numbers = np.unique(keys[shared], return_inverse=True)
    contents = np.full(int(full.sum()), -1, dtype=np.int32)
    contents[start[owner[shared]] + place[shared]] = numbers
    own = contents < 0
    contents[own] = len(distinct) + np.arange(np.count_nonzero(own))
    return contents, len(distinct) + int(np.count_nonzero(own))


def _timeline(load: SimulatedLoad, settings: SchedulerSettings, cost: StepCost, state: State,
              without: Bool, keep_steps: bool) -> Timeline:
    n, flight = len(load), most_in_flight(settings)
    clock = np.zeros(time.NUM_CLOCK_FIELDS, dtype=np.int64)
    clock[time.KEEP_STEPS] = keep_steps
    # Blocks hold only so many tokens, so what was lost to preemption is computed again within so many
    # steps of full budget; each smaller step carries decodes, which are progress.
    step = min(settings.token_budget, settings.long_prefill_token_threshold or settings.token_budget)
    clock[time.PATIENCE] = 1000 + 4 * settings.num_kv_blocks * settings.block_size // step
    clock[time.NOW] = load.arrival_ns[0] if n else 0
    reads = int(load.output_len[~without].sum())
    return Timeline(
        clock=clock,
        delays=np.array([cost.host_ns, cost.host_request_ns, cost.transfer_ns, cost.arrival_ns,
                         cost.arrival_token_ns, cost.delivery_ns]),
        order=np.zeros(n, dtype=np.int64), visible_ns=np.zeros(n, dtype=np.int64),
        arrival_ns=load.arrival_ns.copy(), sent_ns=load.arrival_ns.copy(),
        end_ns=np.full(n, -1, dtype=np.int64), next_turn=np.full(n, -1, dtype=np.int64),
        think_ns=load.think_ns, due_ns=load.arrival_ns.copy(), due=np.zeros(0, dtype=np.int64),
        free_ns=np.zeros(0, dtype=np.int64),
        stage_free_ns=np.zeros(settings.pipeline_parallel, dtype=np.int64),
        queue=np.zeros(flight, dtype=np.int64),
        pending=np.zeros((flight, len(STEP_COLUMNS)), dtype=np.int64),
        read_ns=np.zeros(reads, dtype=np.int64),
        read_tokens=np.zeros(reads if settings.num_spec_tokens else 0, dtype=np.int32),
        steps=np.zeros((_TURNS if keep_steps else 1, len(STEP_COLUMNS)), dtype=np.int64),
        chunks=np.zeros((_TURNS + state.entries.shape[1], len(CHUNK_COLUMNS)), dtype=np.int64),
        stretch_ns=np.zeros(_TURNS, dtype=np.int64),
        events=np.zeros((NUM_EVENTS, len(state.running)), dtype=np.int64),
    )


def _behind(refused: Bool, after: Int64) -> Bool:
    """Those that wait for one that was refused, or for one of these."""
    behind = np.zeros(len(refused), dtype=np.bool_)
    found = (after >= 0) & refused[after]
    while found.any():
        behind |= found
        found = (after >= 0) & behind[after] & ~behind
    return behind


def _send_all(state: State, timeline: Timeline, refused: Bool) -> None:
    """Send all requests at their arrivals."""
    delays = timeline.delays
    delay = delays[time.ARRIVAL_DELAY] + delays[time.ARRIVAL_TOKEN] * state.rows[:, k.INPUT]
    timeline.visible_ns[:] = timeline.arrival_ns + np.floor(delay + 0.5).astype(np.int64)
    order = np.argsort(timeline.visible_ns, kind="stable")
    order = order[~refused[order]]
    timeline.order[:len(order)] = order
    timeline.clock[time.NUM_ORDERED] = len(order)


def _due_one_by_one(load: SimulatedLoad, timeline: Timeline, max_concurrency: int | None) -> Timeline:
    """The timeline of a load of which the loop finds out who is sent when."""
    first = np.flatnonzero(load.after < 0)
    clock = timeline.clock
    clock[time.CAP] = clock[time.NUM_FREE] = min(max_concurrency or 0, len(load))
    clock[time.NUM_DUE] = len(first)
    due = np.zeros(len(load), dtype=np.int64)
    due[:len(first)] = first   # in order, which is a heap
    later = load.after >= 0
    timeline.next_turn[load.after[later]] = np.flatnonzero(later)
    timeline.sent_ns[:] = timeline.due_ns[later] = -1
    return timeline._replace(due=due, free_ns=np.full(clock[time.CAP], clock[time.NOW]))


def _largest_step(settings: SchedulerSettings) -> int:
    """Tokens that no step exceeds: rules that do not chunk run the longest prompt beside the decodes."""
    return max(settings.token_budget, settings.max_model_len) + settings.max_seqs


def _why_stuck(state: State, timeline: Timeline) -> str:
    scalars = state.scalars
    counts = f"{scalars[k.NUM_RUNNING]} requests running, {scalars[k.NUM_WAITING]} waiting"
    blocks = f"{scalars[k.FREE_BLOCKS]} of {scalars[k.NUM_BLOCKS] - 1} KV blocks free"
    decided = scalars[k.STEP] - scalars[k.PROGRESS]
    if decided > timeline.clock[time.PATIENCE]:
        reason = f"the last {decided} steps computed nothing new, requests push one another out"
    else:
        reason = "nothing can be scheduled and nothing will arrive"
    return f"livelock at step {scalars[k.STEP]}: {reason}; {counts}, {blocks}"


def _check_conservation(load: SimulatedLoad, state: State, timeline: Timeline, without: Bool) -> None:
    """StallfreeError where tokens or blocks got lost on the way, or time ran backwards."""
    scalars, rows = state.scalars, state.rows
    served = ~without
    rules = {
        "a request did not end": bool(np.all(rows[served, k.STATUS] == k.FINISHED)),
        "tokens out": np.array_equal(rows[served, k.KNOWN], (load.input_len + load.output_len)[served]),
        "tokens read": int(_read_tokens(state, timeline).sum()) == int(load.output_len[served].sum()),
        "tokens in": int(rows[:, k.COMPUTED].sum()) == int(
            scalars[k.SCHEDULED] + scalars[k.HIT] - scalars[k.LOST] - scalars[k.REJECTED]),
        # One that was pushed out while its last token was in flight ends with nothing computed.
        "tokens computed": bool(np.all((rows[served, k.COMPUTED] >= rows[served, k.KNOWN] - 1)
                                       | (rows[served, k.PREEMPTIONS] > 0))),
        "blocks freed": scalars[k.FREE_BLOCKS] == scalars[k.NUM_BLOCKS] - 1,
        "blocks held": not np.any(state.blocks[:, k.HOLDERS]),
        "time": bool(np.all(timeline.end_ns[served] >= rows[served, k.FIRST_NS])
                     and np.all(rows[served, k.FIRST_NS] >= timeline.sent_ns[served])),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise StallfreeError(f"internal error: the simulation does not conserve {', '.join(broken)}")


def _read_tokens(state: State, timeline: Timeline) -> k.Int32:
    """Tokens of each read, one without drafts."""
    if len(timeline.read_tokens):
        return timeline.read_tokens[timeline.read_tokens > 0]
    return np.ones(int(state.rows[:, k.READS].sum()), dtype=np.int32)


def _played(load: SimulatedLoad, state: State, timeline: Timeline, refused: Bool, not_sent: Bool,
            logs: list[tuple[Int64, Int64]]) -> Played:
    rows, clock = state.rows, timeline.clock
    reads_offset = np.zeros(len(load) + 1, dtype=np.int64)
    np.cumsum(rows[:, k.READS], out=reads_offset[1:])
    # With drafts a read may hold several tokens, so that a request has fewer reads than places.
    read_ns = timeline.read_ns[timeline.read_tokens > 0] if len(timeline.read_tokens) else timeline.read_ns
    steps = np.concatenate([part for part, _ in logs])
    chunks = np.concatenate([part for _, part in logs])
    return Played(
        refused=refused, not_sent=not_sent, due_ns=timeline.due_ns, sent_ns=timeline.sent_ns,
        first_scheduled_ns=rows[:, k.FIRST_NS].copy(),
        end_ns=timeline.end_ns, reads_offset=reads_offset,
        read_ns=read_ns, read_tokens=_read_tokens(state, timeline),
        cached_tokens=rows[:, k.CACHED_TOKENS].copy(), preemptions=rows[:, k.PREEMPTIONS].copy(),
        steps=StepLog(
            steps={name: np.ascontiguousarray(steps[:, at]) for at, name in enumerate(STEP_COLUMNS)},
            chunks={name: np.ascontiguousarray(chunks[:, at]) for at, name in enumerate(CHUNK_COLUMNS)}),
        num_steps=int(clock[time.NUM_STEPS]),
        simulated_ns=int(clock[time.NOW] - load.arrival_ns[0]) if len(load) else 0,
    )
