"""Starts a server's processes, waits until it answers, and certainly ends them."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine_adapter.engine_home import OUR_ROOT, EngineHome
from engine_adapter.servers.freed_memory import until_memory_is_back
from engine_adapter.start_failure import PortInUse, not_ready, start_failure

if TYPE_CHECKING:
    import aiohttp

_ASK_EVERY_S = 0.1
_ASK_TIMEOUT_S = 2.0
_STOP_DEADLINE_S = 10.0
# Not with -m: that would need a PYTHONPATH, which the command would inherit.
_GUARD = (f"import sys; sys.path.insert(0, {OUR_ROOT!r}); "
          f"from engine_adapter.servers.guard import main; main()")
_READY_PATHS = ("/health", "/v1/models")
"""Tried in this order; the second where a server does not know the first."""


class ServerProcess:
    """One server from its start to its certain end. One instance is one start.

    `command` is run without a shell, in a session of its own and with this `environment`, which must
    hold the mark of `home`; it must stay in the foreground. `base_url` is where it will answer, for
    example `http://127.0.0.1:8000`.
    """

    def __init__(self, command: Sequence[str], *, home: EngineHome, environment: Mapping[str, str],
                 base_url: str, deadline_s: float) -> None:
        self.home = home
        self._command, self._environment = list(command), dict(environment)
        self._base_url, self._deadline_s = base_url, deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = asyncio.Event()
        self._status: int | None = None
        self._watch: socket.socket | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it and return when it answers.

        Raises OutOfMemory, PortInUse or StartFailed, and then, as on cancellation, leaves nothing.
        """
        try:
            if await _answers(self._base_url):
                raise PortInUse(f"the engine was not started: something answers at {self._base_url} already; "
                                "stop it, or give another port")
            self._spawn()
            await self._until_ready()
            await self.home.note_shared_memory()
        except BaseException:
            await self.stop()
            raise

    async def has_ended(self, *, within_s: float = 0.0) -> bool:
        """Whether the command has ended, or does so within this time."""
        if not self._ended.is_set() and within_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), within_s)
        return self._ended.is_set()

    def how_it_ended(self) -> str:
        """A few words for a message, such as `its process ended with status 1`."""
        if self._status is None:
            return "its process was ended together with its guard"
        if self._status < 0:
            hint = " (the kernel does that when memory runs out)" if self._status == -signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(-self._status).name}{hint}"
        return f"its process ended with status {self._status}"

    async def stop(self) -> None:
        """Ask the whole group to end, then kill what is left; return when its memory is back. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        # Shielded: a second Ctrl-C must not leave half of the server behind.
        await asyncio.shield(self._stopping)

    def _spawn(self) -> None:
        # Brings the command's status, or its own end when the guard was killed: no need to ask again.
        self._watch, theirs = socket.socketpair()
        with theirs, self.home.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _GUARD, str(self.home.directory), str(theirs.fileno()), "--",
                 *self._command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
                # Its own session: a Ctrl-C on our terminal reaches us alone, and we stop it in order.
                start_new_session=True, env=self._environment,
            )
        self._watch.setblocking(False)
        asyncio.get_running_loop().add_reader(self._watch, self._told)

    def _told(self) -> None:
        assert self._watch is not None
        line = self._watch.recv(64)
        self._status = int(line) if line else None
        self._forget_watch()
        self._ended.set()

    def _forget_watch(self) -> None:
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch)
            self._watch.close()
            self._watch = None

    async def _until_ready(self) -> None:
        import aiohttp

        loop = asyncio.get_running_loop()
        end = loop.time() + self._deadline_s
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_TIMEOUT_S)) as session:
            while loop.time() < end:
                if await self.has_ended(within_s=_ASK_EVERY_S):
                    hint = "; a server's command must stay in the foreground" if self._status == 0 else ""
                    raise start_failure(self.home.log_text(), "", ended=self.how_it_ended() + hint)
                if await _is_ready(session, self._base_url):
                    return
        raise not_ready(self.home.log_text(), self._deadline_s)

    async def _stop(self) -> None:
        await self.home.note_shared_memory()
        if self._process is not None and not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            await self.has_ended(within_s=_STOP_DEADLINE_S)
        left = await self.home.end_processes()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, 5.0)
            assert self._process.stdin is not None
            self._process.stdin.close()
            await until_memory_is_back()
        self._forget_watch()
        self.home.remove()
        if left:
            raise RuntimeError(f"the server's processes {left} did not end after SIGKILL")


def free_port() -> int:
    """A port of the loopback address that nobody listens on now; somebody may take it before you do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _answers(base_url: str) -> bool:
    """Whether somebody is there: a server left over from before would be measured for ours."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _is_ready(session: "aiohttp.ClientSession", base_url: str) -> bool:
    import aiohttp

    for path in _READY_PATHS:
        try:
            # Whoever asks for a key, or shows a certificate of its own, is there.
            async with session.get(base_url + path, ssl=False) as response:
                if response.status != 404:
                    return response.status in (200, 401, 403)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
    return False
