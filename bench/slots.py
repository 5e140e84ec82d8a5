"""Places for requests in flight: the concurrency cap, and the closed loop that refills it."""

import asyncio
from collections import deque


class Slots:
    """At most `limit` requests at a time; None has no limit. Waiting requests go in order."""

    def __init__(self, limit: int | None, *, free_since_ns: int) -> None:
        self._limit = limit
        self._freed_ns = deque([free_since_ns] * (limit or 0))
        self._waiting: asyncio.Future[None] | None = None

    async def take(self) -> int:
        """A place, once there is one; returns when it became free. Only one may wait at a time."""
        if self._limit is None:
            return 0
        while not self._freed_ns:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._freed_ns.popleft()

    def free(self, at_ns: int) -> None:
        """The request that had a place ended at `at_ns`."""
        if self._limit is not None:
            self._freed_ns.append(at_ns)
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)
