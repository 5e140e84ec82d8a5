"""From a case with a difference to a small one that has a difference still."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import TypeVar

from engine_adapter.simulator.differential.case import Case, CaseRequest
from engine_adapter.simulator.settings import SchedulerSettings
from workloads.errors import UsageError

_Value = TypeVar("_Value", Case, CaseRequest, SchedulerSettings)


def shrink(case: Case, differs: Callable[[Case], bool], *, most_tries: int = 3000) -> Case:
    """A case with fewer requests, events, settings off their defaults and smaller numbers, for which
    `differs` still holds, as it must for `case`; the smallest one found in `most_tries`."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            if tries >= most_tries:
                return case
            if candidate == case or not candidate.is_feasible():
                continue
            tries += 1
            if differs(candidate):
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """The boldest first."""
    count = len(case.requests)
    size = count // 2
    while size:
        for start in range(0, count, size):
            yield _without(case, start, start + size)
        size //= 2
    for name in ("aborts", "changes", "resets"):
        events = getattr(case, name)
        if events:
            yield _put(case, name, ())
            for at in range(len(events)):
                yield _put(case, name, events[:at] + events[at + 1:])
    yield replace(case, draft_acceptance=0.0)
    yield replace(case, seed=0)
    yield _sooner(case, case.requests[0].turn)
    yield from (replace(case, settings=settings) for settings in _plainer(case.settings))
    for row, request in enumerate(case.requests):
        for one in _lesser(request, case.requests[row - 1].turn if row else 0):
            keys = one.prefix_keys[:one.input_len // case.settings.block_size]
            one = replace(one, prefix_keys=keys)
            yield replace(case, requests=(*case.requests[:row], one, *case.requests[row + 1:]))
    for name in ("aborts", "changes"):
        events = getattr(case, name)
        for at, event in enumerate(events):
            if event.turn:
                earlier = replace(event, turn=event.turn - 1)
                yield _put(case, name, (*events[:at], earlier, *events[at + 1:]))


def _sooner(case: Case, turns: int) -> Case:
    """`case` from turn `turns` on, which is its first."""
    return replace(
        case, requests=tuple(replace(one, turn=one.turn - turns) for one in case.requests),
        aborts=tuple(replace(one, turn=max(one.turn - turns, 0)) for one in case.aborts),
        changes=tuple(replace(one, turn=max(one.turn - turns, 0)) for one in case.changes),
        resets=tuple(max(turn - turns, 0) for turn in case.resets))


def _without(case: Case, start: int, stop: int) -> Case:
    """`case` less its requests from `start` to `stop`; the rows behind them move up."""
    gone = range(start, min(stop, len(case.requests)))
    if len(gone) == len(case.requests):
        return case
    return replace(
        case, requests=case.requests[:start] + case.requests[stop:],
        aborts=tuple(replace(abort, row=abort.row - (len(gone) if abort.row >= stop else 0))
                     for abort in case.aborts if abort.row not in gone))


def _plainer(settings: SchedulerSettings) -> Iterator[SchedulerSettings]:
    """Each setting at its default, and each number nearer to the least."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        lesser = [value // 2, value * 3 // 4, value - 1] if type(value) is int else []
        for new in [each.default, *lesser]:
            if new is MISSING or new == value:
                continue
            with contextlib.suppress(UsageError):
                yield _put(settings, each.name, new)


def _lesser(request: CaseRequest, earliest: int) -> Iterator[CaseRequest]:
    if request.turn > earliest:
        yield replace(request, turn=earliest)
        yield replace(request, turn=request.turn - 1)
    for name in ("priority", "arrival_ns"):
        if getattr(request, name):
            yield _put(request, name, 0)
    if request.prefix_keys:
        yield replace(request, prefix_keys=())
        yield replace(request, prefix_keys=request.prefix_keys[:-1])
    for name in ("output_len", "input_len"):
        value = getattr(request, name)
        for less in dict.fromkeys((1, value // 2, value * 3 // 4, value - 1)):
            if 0 < less < value:
                yield _put(request, name, less)


def _put(value: _Value, name: str, new: object) -> _Value:
    return replace(value, **{name: new})  # type: ignore[arg-type]
