"""A scripted server beside a whole command."""

import asyncio
import contextlib
import threading
from typing import Any

from engine_adapter.test_servers.scripted import ScriptedServer, Scripts


class Served:
    """A ScriptedServer in a thread of its own, so that a whole command can speak to it."""

    def __init__(self, scripts: Scripts, **more: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self.server = ScriptedServer(scripts, **more)
        self._up, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        async with self.server:
            self._up.set()
            await self._end.wait()

    def stop(self) -> None:
        """Close every connection and the port. Idempotent."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
