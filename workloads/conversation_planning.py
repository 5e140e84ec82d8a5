"""Which prefix each request begins with, and which requests are turns of one conversation."""

import math
import zlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.arrival_processes import ArrivalProcess, process_offsets_ns
from workloads.component import Component
from workloads.conversations import seconds_at
from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.schedule import MAX_REQUESTS, scheduled
from workloads.stratified import stratified
from workloads.workload import Workload

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Stream = Callable[[str], np.random.Generator]
Uniforms = Callable[[str, int], Float64]
"""So many uniform numbers of the stream of that name; fewer are a prefix of more."""

_PROBE = 4096
"""Conversations by which the mean number of turns is known, the same ones always."""
_MOST_SETTLING = 2_000_000
"""Requests that are planned at most before those of the plan."""
_FIRST = 64
"""Conversations that are planned at first, beyond those that settle."""


class Prefixes(NamedTuple):
    """Which shared prefix each request begins with."""

    group: Int32
    """-1 for none; shape (requests,)."""
    lengths: Int32
    """Tokens of each group's prefix, shape (groups,)."""

    def tokens(self) -> Int64:
        """Tokens of each request's prefix, shape (requests,)."""
        return np.append(self.lengths, 0).astype(np.int64)[self.group]


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """Requests of conversations, and requests on their own as conversations of one turn; by time."""

    intended_ns: Int64
    """The earliest time: the beginning of the conversation and all thinking."""
    component: Int64
    input_len: Int64
    """Prefix, history and what the turn adds."""
    output_len: Int64
    session: Int64
    """Number of the conversation; -1 for a request on its own."""
    turn: Int64
    think_ns: Int64
    prefix: Prefixes

    def first(self, n: int) -> "Turns":
        """The first `n` rows."""
        return self._cut(slice(0, n))

    def since(self, begin_ns: int) -> "Turns":
        """The rows that come at `begin_ns` or later, which is their time 0."""
        later = self._cut(slice(int(np.searchsorted(self.intended_ns, begin_ns)), None))
        return replace(later, intended_ns=later.intended_ns - begin_ns)

    def _cut(self, rows: slice) -> "Turns":
        return replace(self, **{name: getattr(self, name)[rows] for name in (
            "intended_ns", "component", "input_len", "output_len", "session", "turn", "think_ns")},
            prefix=Prefixes(self.prefix.group[rows], self.prefix.lengths))


def prefixes(workload: Workload, component: npt.NDArray[np.integer], uniforms: Uniforms,
             stream: Stream) -> Prefixes:
    """The prefix of each of these requests, by their components. Groups are numbered through all
    components; each has its length once and for all of the run."""
    chosen_at = uniforms("prefix-group", len(component))
    group, lengths = np.full(len(component), -1, dtype=np.int32), []
    first = 0
    for index, kind in enumerate(workload.components):
        if kind.prefix is None:
            continue
        rows = component == index
        weights = np.arange(1, kind.prefix.groups + 1, dtype=np.float64) ** -kind.prefix.zipf
        edges = np.cumsum(weights / weights.sum())[:-1]
        group[rows] = first + np.searchsorted(edges, chosen_at[rows], side="right")
        lengths.append(kind.prefix.tokens.quantile(stream(f"prefix-{index}").random(kind.prefix.groups)))
        first += kind.prefix.groups
    return Prefixes(group, np.concatenate(lengths).astype(np.int32) if lengths else np.zeros(0, np.int32))


def has_conversations(workload: Workload) -> bool:
    """Whether any of its requests is a turn of a conversation."""
    return any(component.conversation is not None for component in workload.components)


def conversation_rate(workload: Workload, rate_rps: float) -> float:
    """Conversations (and requests on their own) a second, at which `rate_rps` requests a second come in the
    long run."""
    shares = zip(workload.shares, workload.components, strict=True)
    return rate_rps * sum(share / mean_turns(kind, workload.max_model_len) for share, kind in shares)


def mean_turns(component: Component, max_model_len: int) -> float:
    """Turns of a conversation on average, those left out that would not fit; 1 without conversations."""
    if component.conversation is None:
        return 1.0
    return len(_probed(component, max_model_len).unit) / _PROBE


def settling_ns(workload: Workload, rate_rps: float) -> int:
    """So long it takes until as many late turns come as ever: all thinking of the longest conversations but
    one in a hundred; and at most until two million requests have come, which bounds what is planned for a
    short run."""
    waits = [_probed(component, workload.max_model_len) for component in workload.components
             if component.conversation is not None]
    whole = [np.bincount(probed.unit, minlength=1) for probed in waits]
    last = [probed.waited_ns[np.cumsum(turns) - 1] for probed, turns in zip(waits, whole, strict=True)]
    longest = max((int(np.percentile(each, 99)) for each in last), default=0)
    return min(longest, round(_MOST_SETTLING / rate_rps * 1e9))


def _probed(component: Component, max_model_len: int) -> "_Drawn":
    """Conversations of this kind, the same ones always."""
    def rng(name: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(name.encode()))

    prefix = np.zeros(_PROBE, dtype=np.int64)
    if component.prefix is not None:
        prefix = component.prefix.tokens.sample(_PROBE, rng("prefix"))
    return _turns_of(np.zeros(_PROBE, np.int64), (component,), max_model_len, prefix,
                     uniforms_of(rng, even=False))


def planned_turns(workload: Workload, begin_ns: Int64, uniforms: Uniforms, stream: Stream) -> Turns:
    """The turns of conversations that begin at `begin_ns`, ascending, by time. All that come before the last
    beginning are whole and stay when more conversations follow."""
    total = [share / mean_turns(kind, workload.max_model_len)
             for share, kind in zip(workload.shares, workload.components, strict=True)]
    edges = np.cumsum(np.array(total) / sum(total))[:-1]
    kind_of = np.searchsorted(edges, uniforms("component", len(begin_ns)), side="right")
    prefix = prefixes(workload, kind_of, uniforms, stream)
    turns = _turns_of(kind_of, workload.components, workload.max_model_len, prefix.tokens(), uniforms)
    unit, lone = turns.unit, np.array([c.conversation is None for c in workload.components])[kind_of]
    intended_ns = begin_ns[unit] + turns.waited_ns
    order = np.lexsort((turns.number, unit, intended_ns))
    columns = Turns(
        intended_ns, kind_of[unit], turns.input_len, turns.output_len, np.where(lone[unit], -1, unit),
        turns.number, turns.think_ns, Prefixes(prefix.group[unit], prefix.lengths))
    sorted_columns = {name: getattr(columns, name)[order] for name in (
        "intended_ns", "component", "input_len", "output_len", "session", "turn", "think_ns")}
    return replace(columns, **sorted_columns,
                   prefix=Prefixes(columns.prefix.group[order], prefix.lengths))


def conversation_plan(
    workload: Workload, process: ArrivalProcess, rate_rps: float | None,
    streams: Stream, *, even: bool, seed: int, num_prompts: int | None, duration_s: float | None,
    num_warmups: int | None, warmup_s: float | None,
) -> Plan:
    """The plan of a workload some of whose requests are turns of conversations; see `build_plan`."""
    if rate_rps is None:
        raise UsageError("conversations come at one mean rate: leave out the stages, and give a request rate")
    if workload.reuse is not None:
        raise UsageError("a workload has either conversations or fitted reuse of prompts: leave one out")
    rate, uniforms = conversation_rate(workload, rate_rps), uniforms_of(streams, even=even)
    # The plan begins when late turns are as frequent as they will be; conversations that began before it
    # have a history that nobody else has.
    before_ns = 0 if math.isinf(rate) else settling_ns(workload, rate_rps)

    def conversations(count: int) -> tuple[Turns, int]:
        begin_ns = process_offsets_ns(process, count, rate, streams, even=even)
        turns = planned_turns(workload, begin_ns, uniforms, streams)
        return turns.since(before_ns), int(begin_ns[-1]) - before_ns

    # The most that were planned so far: how many conversations, their turns, and when the last one begins.
    least = 0 if math.isinf(rate) else math.ceil(rate * before_ns / 1e9) + _FIRST
    known = (least, *conversations(least)) if least else None

    def first_turns(n: int) -> Turns:
        nonlocal known
        if math.isinf(rate):   # as many conversations as hold so many requests: more would change the first
            enough = bisect_left(range(1, n), n, key=lambda c: len(conversations(c)[0].turn)) + 1
            return conversations(enough)[0].first(n)
        assert known is not None   # at a finite rate
        while True:
            count, turns, last_ns = known
            # What comes before the last beginning stays when more conversations follow.
            if np.searchsorted(turns.intended_ns, last_ns) >= n:
                return turns.first(n)
            if count > MAX_REQUESTS:
                raise UsageError("the plan would hold too many conversations: lower the rate or the duration")
            known = (2 * count, *conversations(2 * count))

    intended_ns, warmups = scheduled(
        lambda n: first_turns(n).intended_ns, num_prompts=num_prompts, duration_s=duration_s,
        num_warmups=num_warmups, warmup_s=warmup_s)
    if len(intended_ns) <= warmups:
        raise UsageError(f"no request falls into the measured part at {rate_rps:g} requests/s; "
                         f"raise the rate or the duration")
    turns = first_turns(len(intended_ns))
    return Plan(
        intended_ns=turns.intended_ns, input_len=turns.input_len.astype(np.int32),
        output_len=turns.output_len.astype(np.int32), component=turns.component.astype(np.int16),
        session=turns.session.astype(np.int32), turn=turns.turn.astype(np.int32), think_ns=turns.think_ns,
        prefix_group=turns.prefix.group, prefix_lens=turns.prefix.lengths, num_warmups=warmups, seed=seed,
        rate_rps=rate_rps, component_names=tuple(c.name for c in workload.components),
        component_tenants=workload.component_tenants)


def uniforms_of(streams: Stream, *, even: bool) -> Uniforms:
    """Uniform numbers of these streams, spread evenly (see `stratified`) where they are to be `even`."""
    return lambda name, n: stratified(n, streams(name)) if even else streams(name).random(n)


class _Drawn(NamedTuple):
    unit: Int64
    """The conversation of each turn."""
    number: Int64
    input_len: Int64
    output_len: Int64
    think_ns: Int64
    waited_ns: Int64
    """All thinking from the first turn on."""


def _turns_of(kind_of: Int64, components: tuple[Component, ...], max_model_len: int, prefix: Int64,
              uniforms: Uniforms) -> _Drawn:
    """The turns of every conversation, one after the other, each as far as it fits."""
    turns_at = uniforms("turns", len(kind_of))
    count = np.ones(len(kind_of), dtype=np.int64)
    for index, kind in enumerate(components):
        if kind.conversation is not None:
            rows = kind_of == index
            # Not more than could ever fit: they would all be drawn first.
            most = max(1, max_model_len // (kind.input.bounds()[0] + kind.output.bounds()[0]))
            count[rows] = np.minimum(kind.conversation.turns.quantile(turns_at[rows]), most)
    unit = np.repeat(np.arange(len(kind_of)), count)
    starts = np.repeat(np.cumsum(count) - count, count)
    number = np.arange(len(unit)) - starts
    added, output_len, think_ns = (np.zeros(len(unit), dtype=np.int64) for _ in range(3))
    at = {name: uniforms(name, len(unit)) for name in ("input", "output", "think")}
    for index, kind in enumerate(components):
        rows = kind_of[unit] == index
        added[rows] = kind.input.quantile(at["input"][rows])
        output_len[rows] = kind.output.quantile(at["output"][rows])
        if kind.conversation is not None:
            later = rows & (number > 0)
            think_ns[later] = np.rint(seconds_at(kind.conversation.think, at["think"][later]) * 1e9)
    # Whole lengths after each turn, within its own conversation.
    grown = np.cumsum(added + output_len)
    before = grown - (added + output_len)
    input_len = prefix[unit] + before - before[starts] + added
    waited = np.cumsum(think_ns)
    fits = (input_len + output_len <= max_model_len) | (number == 0)
    return _Drawn(unit[fits], number[fits], input_len[fits], output_len[fits], think_ns[fits],
                  (waited - waited[starts])[fits])

