"""Both schedulers play one case in lockstep; every decision must be the same."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from engine_adapter.simulator.differential.case import Case
from engine_adapter.simulator.differential.observed import Decision, Delivered, Side
from engine_adapter.simulator.differential.our_side import OurSide
from engine_adapter.simulator.differential.vllm_side import VllmSide

MOST_TURNS = 4000
"""A random case that takes longer is one that vLLM never ends."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that was not the same."""

    turn: int
    what: str
    vllm: object
    ours: object

    def __str__(self) -> str:
        return f"turn {self.turn}, {self.what}: vLLM {self.vllm}, ours {self.ours}"


@dataclass(slots=True)
class Comparison:
    """What was compared, counted on vLLM's side."""

    turns: int = 0
    steps: int = 0
    """Decisions with at least one token."""
    preemptions: int = 0
    cached_tokens: int = 0
    """Found in the prefix cache, those of resumed requests too."""
    accepted_drafts: int = 0
    finished: int = 0
    ended: bool = False
    """No request is left; otherwise it stopped at a difference or at the most turns."""
    difference: Difference | None = None


def compare(case: Case, *, our_side: Callable[[Case], Side] = OurSide,
            most_turns: int = MOST_TURNS) -> Comparison:
    """Drive both as EngineCore does (`step`, or `step_with_batch_queue` where steps overlap), up to the
    first difference. Ours is given what vLLM's is given, and decides nothing about the course."""
    return _Lockstep(case, our_side).play(most_turns)


class _Differs(Exception):
    def __init__(self, what: str, vllm: object, ours: object) -> None:
        self.what, self.vllm, self.ours = what, vllm, ours


@dataclass(slots=True)
class _Lockstep:
    case: Case
    our_side: Callable[[Case], Side]
    seen: Comparison = field(default_factory=Comparison)
    vllm: VllmSide = field(init=False)
    ours: Side = field(init=False)
    under_way: list[bool] = field(default_factory=list)
    """For each step in the queue, oldest first, whether it has any tokens."""
    arrived: int = 0

    def play(self, most_turns: int) -> Comparison:
        seen, requests = self.seen, self.case.requests
        self.vllm = VllmSide(self.case)
        try:
            self.ours = _ours("start", self.our_side, self.case)
            while seen.turns < most_turns and not seen.ended:
                self._take_in(seen.turns)
                if self.vllm.has_requests() or self.under_way:
                    self._turn(seen.turns)
                else:
                    seen.ended = self.arrived == len(requests)
                seen.turns += 1
        except _Differs as differs:
            seen.difference = Difference(seen.turns, differs.what, differs.vllm, differs.ours)
        return seen

    def _take_in(self, turn: int) -> None:
        case = self.case
        while self.arrived < len(case.requests) and case.requests[self.arrived].turn <= turn:
            request = case.requests[self.arrived]
            self.vllm.add(self.arrived, request)
            _ours(f"add request {self.arrived}", self.ours.add, self.arrived, request)
            self.arrived += 1
        self._abort(turn, under_way=False)
        if any(change.turn == turn for change in case.changes):
            self.vllm.apply(case.settings_at(turn))
            _ours("apply", self.ours.apply, case.settings_at(turn))
        if turn in case.resets:
            self.vllm.reset_prefix_cache()
            _ours("reset_prefix_cache", self.ours.reset_prefix_cache)

    def _abort(self, turn: int, *, under_way: bool) -> None:
        for abort in self.case.aborts:
            if abort.turn == turn and abort.under_way == under_way and abort.row < self.arrived:
                self.vllm.abort(abort.row)
                _ours(f"abort request {abort.row}", self.ours.abort, abort.row)

    def _turn(self, turn: int) -> None:
        if self.vllm.has_requests():
            decision = self.vllm.schedule()
            _same("schedule", decision, _ours("schedule", self.ours.schedule))
            self._count(decision)
            scheduled = bool(decision.rows)
            self.under_way.append(scheduled)
            if len(self.under_way) < self.vllm.max_concurrent_batches and (
                    scheduled or self.vllm.has_requests()):
                return
        self._abort(turn, under_way=True)
        if self.under_way.pop(0):
            delivered = self.vllm.update()
            _same("update", delivered, _ours("update", self.ours.update))
            self.seen.finished += len(delivered.finished)
            self.seen.accepted_drafts += sum(delivered.tokens) - len(delivered.tokens)

    def _count(self, decision: Decision) -> None:
        seen = self.seen
        seen.steps += bool(decision.rows)
        seen.preemptions += len(decision.preempted)
        seen.cached_tokens += self.vllm.cached_tokens


def _ours(what: str, call: Callable[..., Any], *args: object) -> Any:
    """The result of `call`; what it raises is a difference, for vLLM has just done the same."""
    try:
        return call(*args)
    except Exception as error:
        raise _Differs(what, "goes on", repr(error)) from error


def _same(what: str, vllm: Decision | Delivered, ours: Decision | Delivered) -> None:
    if vllm == ours:
        return
    for one in (vllm, vllm.state):
        other = ours if one is vllm else ours.state
        for each in fields(one):
            name = each.name
            if name != "state" and getattr(one, name) != getattr(other, name):
                raise _Differs(f"{what}: {name}", getattr(one, name), getattr(other, name))
