"""Start, talk to and certainly end the host process of one embedded engine."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_adapter.engine_home import EngineHome
from engine_adapter.host_protocol import HEAD, MESSAGE, TOKENS, TokenRecord, message, unpack_tokens
from engine_adapter.vllm_launch import VllmLaunch

_STOP_DEADLINE_S = 10.0


class HostProcess:
    """One host process from spawn to its certain end.

    `on_tokens` and `on_message` are called in the event loop; `on_end` once, when the
    connection is gone for whatever reason.
    """

    def __init__(
        self,
        launch: VllmLaunch,
        log_path: Path | None,
        on_tokens: Callable[[TokenRecord], None],
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._launch = launch
        self._on_tokens, self._on_message, self._on_end = on_tokens, on_message, on_end
        self._home = EngineHome(log_path)
        self._id = self._home.id
        self.block = self._home.block
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None

    async def spawn(self) -> None:
        """Start the process and connect; the engine's own start goes on inside it."""
        ours, theirs = socket.socketpair()
        try:
            with self._home.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "engine_adapter.vllm_host", str(theirs.fileno())],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[theirs.fileno()],
                    # Its own session: a Ctrl-C on our terminal reaches us alone, and we stop it in order.
                    start_new_session=True, env=self._home.environment(ours=True, offline=self._is_local()),
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._launch.as_dict()).encode() + b"\n")
        self._process.stdin.flush()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listener = asyncio.create_task(self._listen(reader))

    def send(self, data: bytes) -> None:
        """Queue a frame; dropped silently when the connection is gone (`on_end` has told)."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    def log_text(self) -> str:
        """The engine's log so far, its last 200 kB."""
        return self._home.log_text()

    async def end(self, *, in_order: bool) -> None:
        """End every process and remove the private directory; idempotent.

        With `in_order` the engine is first asked to shut down, for a bounded time.
        """
        await self._home.note_shared_memory()
        if in_order and self._listener is not None and not self._listener.done():
            self.send(message(op="stop"))
            await asyncio.wait([self._listener], timeout=_STOP_DEADLINE_S)
            if self._process is not None:
                await self._wait_for_exit(2.0)
        left = await self._home.end_processes()
        if self._process is not None:
            await self._wait_for_exit(5.0)
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._writer is not None:
            self._writer.close()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        self._home.remove()
        if left:
            raise RuntimeError(f"the engine's processes {left} did not end after SIGKILL")

    async def _wait_for_exit(self, seconds: float) -> None:
        assert self._process is not None
        for _ in range(int(seconds / 0.02)):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.02)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
                payload = await reader.readexactly(length)
                if kind == TOKENS:
                    for record in unpack_tokens(payload):
                        self._on_tokens(record)
                elif kind == MESSAGE:
                    self._on_message(json.loads(payload))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._on_end()

    def _is_local(self) -> bool:
        return Path(self._launch.model).is_dir() or self._launch.config_file is not None
