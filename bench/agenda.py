"""Which request of a run is due next: later turns of conversations come when the turn before is over."""

import asyncio
import heapq
from collections.abc import Sequence

from engine_adapter.clock import Clock
from workloads import Plan


def turns_after(plan: Plan, rows: Sequence[int]) -> dict[int, int]:
    """For each of `rows` that another one of them follows in its conversation, that one."""
    if not (plan.predecessor >= 0).any():
        return {}
    chosen = set(rows)
    return {before: row for row in rows if (before := int(plan.predecessor[row])) in chosen}


class Agenda:
    """The requests `rows` (ascending) of `plan` in order of (due time, row).

    A request is due at its intended time; a later turn no earlier than its think time after the end of
    the turn before. A turn whose predecessor is not among `rows` waits for nobody.
    """

    def __init__(self, plan: Plan, rows: Sequence[int]) -> None:
        self.start_ns = 0
        """Of the schedule, on the clock of the run; set it before anything is asked."""
        self._plan = plan
        self._after = turns_after(plan, rows)
        self._later = set(self._after.values())
        self._firsts = [row for row in rows if row not in self._later] if self._later else rows
        self._taken = 0
        self._ready: list[tuple[int, int]] = []
        self._awaited = len(self._after)
        """Later turns whose predecessors are not over."""
        self._changed = asyncio.Event()

    def is_later_turn(self, row: int) -> bool:
        """Whether `row` waits, or waited, for the end of another one."""
        return row in self._later

    def after(self, row: int) -> int | None:
        """The turn that waits for the end of `row`."""
        return self._after.get(row)

    def first(self) -> tuple[int, int] | None:
        """Due time and row of whoever is due first by what is known now; None where nobody is."""
        found = self._ready[0] if self._ready else None
        if self._taken < len(self._firsts):
            row = self._firsts[self._taken]
            due_ns = int(self._plan.intended_ns[row]) + self.start_ns
            if found is None or (due_ns, row) < found:
                return due_ns, row
        return found

    def take(self) -> tuple[int, int]:
        """The same, taken off; there must be one."""
        found = self.first()
        assert found is not None
        if self._ready and found == self._ready[0]:
            heapq.heappop(self._ready)
        else:
            self._taken += 1
        return found

    async def next(self) -> tuple[int, int] | None:
        """`first`, as soon as there is one; None when there will be none any more."""
        while (found := self.first()) is None and self._awaited:
            self._changed.clear()
            await self._changed.wait()
        return found

    async def until(self, t_ns: int, clock: Clock) -> bool:
        """Sleep until `t_ns` and return True, or False as soon as somebody has been added meanwhile."""
        if not self._awaited or clock.now_ns() >= t_ns:
            await clock.sleep_until(t_ns)
            return True
        self._changed.clear()
        sleep = asyncio.create_task(clock.sleep_until(t_ns))
        change = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((sleep, change), return_when=asyncio.FIRST_COMPLETED)
            return sleep.done()
        finally:
            sleep.cancel()
            change.cancel()

    def over(self, row: int, end_ns: int) -> None:
        """Request `row` succeeded at `end_ns`: the turn after it, where there is one, may come."""
        if (later := self._after.pop(row, None)) is not None:
            due_ns = max(int(self._plan.intended_ns[later]) + self.start_ns,
                         end_ns + int(self._plan.think_ns[later]))
            heapq.heappush(self._ready, (due_ns, later))
            self._awaited -= 1
            self._changed.set()

    def failed(self, row: int) -> list[int]:
        """Request `row` failed: the turns after it, which will never come."""
        never = []
        while (later := self._after.pop(row, None)) is not None:
            never.append(later)
            row = later
        self._awaited -= len(never)
        self._changed.set()
        return never

    def close(self) -> None:
        """Nobody more is sent: whoever waits for a turn to end is left as he is."""
        self._after.clear()
