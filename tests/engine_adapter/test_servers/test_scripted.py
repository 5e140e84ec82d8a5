"""The scripted server itself, seen through a plain socket."""

import asyncio
import time

import pytest

from engine_adapter.test_servers.script import (
    Close,
    Hang,
    Reset,
    Send,
    Wait,
    one_byte_each,
    spaced,
    streamed,
)
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import chunk, head, response, sse

ASK = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Name: Value\r\nContent-Length: 2\r\n\r\n{}"


async def exchange(port: int, *asks: bytes) -> tuple[list[tuple[int, bytes]], str]:
    """Reads with their times, and how the connection ended (`closed`, `reset`, `open`)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reads: list[tuple[int, bytes]] = []
    try:
        for ask in asks:
            writer.write(ask)
            while True:
                try:
                    data = await asyncio.wait_for(reader.read(1 << 20), 0.1)
                except ConnectionResetError:
                    return reads, "reset"
                except TimeoutError:
                    break
                if not data:
                    return reads, "closed"
                reads.append((time.perf_counter_ns(), data))
        return reads, "open"
    finally:
        writer.close()


def test_each_send_is_one_write_and_its_time_is_known() -> None:
    """What is sent apart is read apart, never before the time that the server remembers."""
    async def run() -> None:
        async with ScriptedServer(spaced(head(), b"one", b"two", gap_s=0.02)) as server:
            reads, ended = await exchange(server.port, ASK)
        assert [data for _, data in reads] == [head(), b"one", b"two"]
        (request,) = server.requests
        assert all(write.before_ns <= write.after_ns and write.before_ns <= read_ns
                   for write, (read_ns, _) in zip(request.writes, reads, strict=True))
        assert ended == "open"
        assert (request.method, request.path, request.body) == ("POST", "/v1/completions", b"{}")
        assert request.headers["x-name"] == "Value"
        assert request.json() == {}

    asyncio.run(run())


@pytest.mark.parametrize(("last", "ended"), [(Close(), "closed"), (Reset(), "reset"), (Hang(), "open")])
def test_a_connection_ends_as_scripted(last: Close | Reset | Hang, ended: str) -> None:
    """In order, broken off, or not at all; a client that leaves a hanging server is noticed."""
    async def run() -> None:
        async with ScriptedServer((Send(b"x"), Wait(0.01), last)) as server:
            reads, found = await exchange(server.port, ASK)
            await asyncio.sleep(0.01)
        assert (b"".join(data for _, data in reads), found) == (b"x", ended)
        assert (server.requests[0].client_left_ns is not None) == isinstance(last, Hang)

    asyncio.run(run())


def test_scripts_go_by_order_or_by_request() -> None:
    """A list is used one by one, its last for all that follow; a function sees the request."""
    async def run() -> None:
        async with ScriptedServer([(Send(b"1"),), (Send(b"2"),)]) as server:
            reads, _ = await exchange(server.port, ASK, ASK, ASK)
        assert [data for _, data in reads] == [b"1", b"2", b"2"]
        assert [(r.number, r.connection, r.on_connection) for r in server.requests] == [
            (0, 0, 0), (1, 0, 1), (2, 0, 2)]

        def by_path(request: ScriptedRequest) -> tuple[Send]:
            return (Send(request.path.encode()),)

        async with ScriptedServer(by_path) as server:
            reads, _ = await exchange(server.port, ASK)
        assert [data for _, data in reads] == [b"/v1/completions"]

    asyncio.run(run())


def test_peaks_are_counted() -> None:
    """The most connections and the most scripts under way at one time."""
    async def run() -> None:
        async with ScriptedServer((Wait(0.03), Send(b"x"), Close())) as server:
            await asyncio.gather(*(exchange(server.port, ASK) for _ in range(20)))
        assert (server.connections, server.peak_connections, server.peak_in_flight) == (20, 20, 20)

    asyncio.run(run())


def test_pages_are_answered_and_can_be_replaced() -> None:
    """GET has sensible answers without a script; others can be given; unknown ones are 404."""
    async def page(port: int, path: str) -> bytes:
        reads, _ = await exchange(port, f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return b"".join(data for _, data in reads)

    async def run() -> None:
        async with ScriptedServer((), pages={"/health": response(b"ill", status=503)}) as server:
            pages = await asyncio.gather(*(page(server.port, path) for path in (
                "/v1/models", "/health", "/metrics", "/nothing")))
        assert [data[9:12] for data in pages] == [b"200", b"503", b"200", b"404"]
        assert b'"scripted"' in pages[0]
        assert server.requests == []
        assert len(server.page_requests) == 4

    asyncio.run(run())


def test_an_error_in_the_tests_own_function_comes_out() -> None:
    """A defect of the script must not look like one of the client."""
    def wrong(request: ScriptedRequest) -> tuple[Send]:
        raise LookupError("no script")

    async def run() -> None:
        async with ScriptedServer(wrong) as server:
            await exchange(server.port, ASK)

    with pytest.raises(LookupError, match="no script"):
        asyncio.run(run())


def test_builders_write_what_they_say() -> None:
    """Chunks carry their length, events end with a blank line, an empty chunk is refused."""
    assert chunk(b"x" * 26, extension=";a=b") == b"1a;a=b\r\n" + b"x" * 26 + b"\r\n"
    assert sse({"a": "é"}) == 'data: {"a":"é"}\n\n'.encode()
    assert sse("x", event="error", end="\r\n", space="") == b"event:error\r\ndata:x\r\n\r\n"
    assert [step.data for step in one_byte_each(b"ab") if isinstance(step, Send)] == [b"a", b"b"]
    assert response(b"hi", status=429, headers={"retry-after": "1"}) == (
        b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\nretry-after: 1\r\n\r\nhi")
    assert [step.data for step in streamed(["a"]) if isinstance(step, Send)][1:] == [
        chunk(sse("a")), chunk(sse("[DONE]")) + b"0\r\n\r\n"]
    with pytest.raises(ValueError, match="empty chunk"):
        chunk(b"")
