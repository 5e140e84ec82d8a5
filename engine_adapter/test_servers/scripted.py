"""A server that does exactly what a script says, write by write, and remembers when.

    server = ScriptedServer(streamed([{"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}]))
    async with server:
        ...  # POST anything to server.base_url
    server.requests[0].writes[1].before_ns  # when the token left

It runs in the event loop of the test, so both sides have one clock and, with short waits, take turns.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, cast

from engine_adapter.test_servers.script import Close, Hang, Reset, Script, Send, Until, Wait
from engine_adapter.test_servers.wire import response

_LONGEST_HEAD = 1 << 20
_ABORT = struct.pack("ii", 1, 0)
"""struct linger: on, 0 seconds."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write, on CLOCK_MONOTONIC."""

    before_ns: int
    after_ns: int


@dataclass(slots=True, eq=False)
class ScriptedRequest:
    """One request as it came, and what was done with it."""

    number: int
    """Counted over all requests to scripted paths, from 0."""
    connection: int
    """Counted over all connections, from 0."""
    on_connection: int
    """How many requests came on this connection before it."""
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    arrived_ns: int
    """When its last byte had been read."""
    writes: list[Write] = field(default_factory=list)
    client_left_ns: int | None = None
    """When the client closed the connection under a Hang or a Send."""

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


Scripts = Script | Sequence[Script] | Callable[[ScriptedRequest], Script]
PAGES: Mapping[str, bytes] = {
    "/health": response(b""),
    "/v1/models": response({"object": "list", "data": [
        {"id": "scripted", "object": "model", "owned_by": "stallfree", "max_model_len": 8192}]}),
    "/metrics": response(b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\n",
                         headers={"content-type": "text/plain; version=0.0.4"}),
}
"""What a GET is answered with, by path."""


class ScriptedServer:
    """Serves `scripts` on a free port of 127.0.0.1 while its `async with` block lasts.

    `scripts`: one script for every POST; a list, one after the other, the last for all that follow; or
    a function of the request. `pages` replaces or adds answers to GET (whole responses, by path); any
    other GET is a 404. With `tls` it speaks TLS. The end of the block closes every connection, and
    raises what a function of the test raised here.
    """

    def __init__(self, scripts: Scripts, *, pages: Mapping[str, bytes] | None = None,
                 tls: ssl.SSLContext | None = None) -> None:
        self._scripts = scripts
        self._pages = {**PAGES, **(pages or {})}
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[Any]] = set()
        self._error: Exception | None = None
        self._open = self._in_flight = 0
        self.requests: list[ScriptedRequest] = []
        """Requests to which a script belongs, as they came."""
        self.page_requests: list[ScriptedRequest] = []
        self.connections = 0
        """How many were accepted in all."""
        self.peak_connections = 0
        self.peak_in_flight = 0
        """Most scripts that ran at one time."""
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve_connection, "127.0.0.1", 0, limit=_LONGEST_HEAD, ssl=self._tls, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        while self._handlers:
            for task in tuple(self._handlers):
                task.cancel()
            await asyncio.wait(self._handlers)
        await self._server.wait_closed()
        if self._error is not None and error is None:
            raise self._error

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        number = self.connections
        self.connections += 1
        self._open += 1
        self.peak_connections = max(self.peak_connections, self._open)
        try:
            served = 0
            while (request := await _read_request(reader, number, served)) is not None:
                served += 1
                if not await self._serve(request, reader, writer):
                    break
        except OSError:
            pass  # the client broke the connection
        except asyncio.CancelledError:
            writer.transport.abort()
        except Exception as defect:
            self._error = self._error or defect
        finally:
            self._open -= 1
            self._handlers.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, request: ScriptedRequest, reader: asyncio.StreamReader,
                     writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection can take another."""
        if request.method == "GET":
            self.page_requests.append(request)
            writer.write(self._pages.get(request.path) or response({"error": "not found"}, status=404))
            return True
        request.number = len(self.requests)
        self.requests.append(request)
        self._in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self._in_flight)
        try:
            return await _play(self._script_for(request), request, reader, writer)
        finally:
            self._in_flight -= 1

    def _script_for(self, request: ScriptedRequest) -> Script:
        if callable(self._scripts):
            return self._scripts(request)
        if not self._scripts or not isinstance(self._scripts[0], tuple):
            return cast(Script, self._scripts)
        return cast(Sequence[Script], self._scripts)[min(request.number, len(self._scripts) - 1)]


async def _read_request(reader: asyncio.StreamReader, connection: int,
                        on_connection: int) -> ScriptedRequest | None:
    """The next request; None where the client closed the connection instead."""
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except asyncio.IncompleteReadError:
        return None
    headers.pop("", None)
    method, path, _ = first.split(" ")
    return ScriptedRequest(-1, connection, on_connection, method, path, headers, body, time.perf_counter_ns())


async def _play(script: Script, request: ScriptedRequest, reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter) -> bool:
    """Do the steps; whether the connection is still open after them."""
    for step in script:
        match step:
            case Send(data):
                before_ns = time.perf_counter_ns()
                writer.write(data)
                request.writes.append(Write(before_ns, time.perf_counter_ns()))
                try:
                    await writer.drain()
                except OSError:
                    request.client_left_ns = time.perf_counter_ns()
                    return False
            case Wait(seconds):
                if not seconds:
                    # This goes on before whoever can read now is called, so it takes a turn more.
                    await asyncio.sleep(0)
                await asyncio.sleep(seconds)
            case Until(event):
                await event.wait()
            case Close():
                return False
            case Reset():
                if (sock := writer.get_extra_info("socket")) is not None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                writer.transport.abort()
                return False
            case Hang():
                with contextlib.suppress(OSError):
                    await reader.read()
                request.client_left_ns = time.perf_counter_ns()
                return False
    return True
