"""What is seen of a scheduler from outside, and the face that both schedulers are given for it."""

from dataclasses import dataclass
from typing import Protocol

from engine_adapter.simulator.differential.case import CaseRequest
from engine_adapter.simulator.settings import SchedulerSettings

Rows = tuple[int, ...]
"""Places of requests in the case."""


@dataclass(frozen=True, slots=True)
class State:
    """Between decisions."""

    running: Rows
    """In the order of vLLM's RUNNING list."""
    waiting: Rows
    """In the order in which they would be admitted."""
    free_blocks: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What one call of `schedule()` decided."""

    rows: Rows
    """In the order in which they were given tokens."""
    tokens: tuple[int, ...]
    prefixes: tuple[int, ...]
    """Tokens computed before this step; of a request that was just admitted: found in the cache."""
    drafts: tuple[int, ...]
    """Draft tokens among the tokens."""
    preempted: Rows
    """In the order in which they were preempted."""
    state: State


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of the oldest step under way."""

    rows: Rows
    """Those that got tokens."""
    tokens: tuple[int, ...]
    finished: Rows
    state: State


class Side(Protocol):
    """A scheduler under test."""

    def add(self, row: int, request: CaseRequest) -> None: ...
    def abort(self, row: int) -> None: ...
    def apply(self, settings: SchedulerSettings) -> None: ...
    def reset_prefix_cache(self) -> None: ...
    def schedule(self) -> Decision: ...
    def update(self) -> Delivered:
        """Process the outputs of the oldest step under way that has any tokens."""
        ...
