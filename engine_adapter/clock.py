"""Time as a parameter: the same code runs on the wall clock, in tests and in the simulator."""

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time in integer nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary fixed origin; never goes back."""
        ...

    async def sleep_until(self, t_ns: int) -> None:
        """Return at `t_ns` or as soon after it as possible; at once when it has passed."""
        ...


class WallClock:
    """CLOCK_MONOTONIC: comparable between the processes of one machine."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def sleep_until(self, t_ns: int) -> None:
        # The selector rounds a timeout up to whole milliseconds, so this returns up to 1 ms
        # late. Spinning away the rest would take the core from an engine on this machine;
        # the lateness is measured instead (sent - intended).
        while (wait_ns := t_ns - time.perf_counter_ns()) > 0:
            await asyncio.sleep(wait_ns / 1e9)


class VirtualClock:
    """Time that moves only when every task waits for it; one instance per event loop.

    Whoever sleeps is woken in order of time, then in order of asking, so a run on this
    clock is the same at every repetition. Tasks must wait through this clock only.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._driver: asyncio.Task[None] | None = None

    def now_ns(self) -> int:
        return self._now_ns

    async def sleep_until(self, t_ns: int) -> None:
        if t_ns <= self._now_ns:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (t_ns, next(self._order), woken))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        await woken

    async def _drive(self) -> None:
        while self._sleepers:
            # Let every runnable task run to its next wait before time moves: queues and
            # futures between tasks need several turns of the loop to settle.
            for _ in range(_SETTLE_TURNS):
                await asyncio.sleep(0)
            t_ns, _, woken = heapq.heappop(self._sleepers)
            if woken.cancelled():
                continue
            self._now_ns = max(self._now_ns, t_ns)
            woken.set_result(None)


_SETTLE_TURNS = 20
