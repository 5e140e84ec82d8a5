"""Keeping the measuring process quiet, and measuring how quiet it was."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bench.run import ClientHealth
from engine_adapter.clock import Clock

TICK_NS = 5_000_000


@contextmanager
def quiet_gc() -> Iterator[None]:
    """No garbage collection inside: a full one takes long enough to look like a stall of the engine."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


class LagTicker:
    """A 5 ms timer; how late it fires is how late a token can be read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lags_ns: list[int] = []

    async def tick_forever(self) -> None:
        """Run until cancelled."""
        while True:
            due_ns = self._clock.now_ns() + TICK_NS
            await self._clock.sleep_until(due_ns)
            self._lags_ns.append(self._clock.now_ns() - due_ns)

    def health(self) -> ClientHealth:
        """Percentiles of the lags so far; all None without one."""
        if not self._lags_ns:
            return ClientHealth()
        p50, p99, longest = np.percentile(self._lags_ns, [50, 99, 100])
        return ClientHealth(int(p50), int(p99), int(longest))
