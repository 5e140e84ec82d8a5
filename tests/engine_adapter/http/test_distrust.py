"""What the client must not believe, and what it must not tell."""

import asyncio
import itertools
import time

import pytest

from engine_adapter.answer import FailureKind
from engine_adapter.clock import WallClock
from engine_adapter.http import connection
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.exchange import HttpAnswer
from engine_adapter.http.pool import ConnectionPool
from engine_adapter.http.target import HttpTarget
from engine_adapter.seam import GenerateRequest
from engine_adapter.test_servers.script import (
    Hang,
    Script,
    Send,
    Wait,
    streamed,
)
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import response
from tests.engine_adapter.http.asked_engine import GOOD, text, with_server


def test_a_connection_that_was_answered_early_is_not_used_again() -> None:
    """A server that refuses before it has read the whole prompt leaves the rest of it in the way."""
    async def go() -> int:
        connections: list[asyncio.Task[None]] = []

        async def refuse_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(asyncio.current_task())  # type: ignore[arg-type]
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response({"error": "too large"}, status=413))
            while await reader.read(1 << 20):
                pass
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

        server = await asyncio.start_server(refuse_at_once, "127.0.0.1", 0)
        pool = ConnectionPool(HttpTarget(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        for _ in range(2):
            request = b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 20_000_000
            answer = HttpAnswer(request, pool, clock=WallClock(), asked=9, tokens_of_text=None, cleaned=str)
            answer.send()
            await answer.wait()
            failure = answer.decode().failure
            assert failure is not None
            assert failure.status == 413
        pool.close()
        await asyncio.gather(*connections, return_exceptions=True)
        server.close()
        return len(connections)

    assert asyncio.run(go()) == 2


@pytest.mark.parametrize("step_s", [-3600, -5, 5, 3600])
def test_a_calendar_that_is_set_does_not_touch_the_times(
        step_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel stamps by the calendar. Set in mid-answer, it moves no token before the one before it, nor
    before its request, nor after its reading."""
    calls = itertools.count()
    real = time.time_ns
    monkeypatch.setattr(connection.time, "time_ns",
                        lambda: real() + (step_s * 1_000_000_000 if next(calls) > 2 else 0))

    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        answer = await engine.answer(GenerateRequest(1, [11], 6))
        read_by_ns = time.perf_counter_ns()
        decoded = answer.decode()
        assert len(decoded.read_ns) == 6
        assert decoded.read_ns == sorted(decoded.read_ns)
        assert answer.sent_ns <= decoded.read_ns[0]
        assert decoded.read_ns[-1] <= read_by_ns

    six = streamed([*[text("a")] * 5, text("b", finish_reason="length")])
    with_server(lambda request: GOOD if request.number == 0 else six, use, model="m")


TWICE = (Send(b"".join(step.data for step in GOOD if isinstance(step, Send)) * 2),)
"""An answer and, in the same write, another one that nobody asked for."""


def test_bytes_after_the_end_of_an_answer_are_nobodys_tokens() -> None:
    """A second answer in the same write adds nothing, and its connection is not used again."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        for number in range(2):
            decoded = (await engine.answer(GenerateRequest(number, [11], 2))).decode()
            assert (decoded.failure, decoded.read_tokens) == (None, [1, 1])
        assert server.requests[1].connection != server.requests[2].connection

    with_server(lambda request: GOOD if request.number == 0 else TWICE, use, model="m")


def test_what_came_unasked_is_no_answer_to_the_next_request() -> None:
    """A connection on which something lies that nobody asked for is left."""
    late = (*GOOD, Wait(0.01), *TWICE)

    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        await engine.answer(GenerateRequest(1, [11], 2))
        while len(server.requests[1].writes) < len([step for step in late if isinstance(step, Send)]):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)
        decoded = (await engine.answer(GenerateRequest(2, [11], 2))).decode()
        assert (decoded.failure, decoded.read_tokens) == (None, [1, 1])
        assert server.requests[-1].connection != server.requests[1].connection

    with_server(lambda request: late if request.number == 1 else GOOD, use, model="m")


@pytest.mark.parametrize("padding", [0, 200, 285, 295, 299, 400])
@pytest.mark.parametrize("in_stream", [False, True])
def test_not_even_half_a_key_is_told(padding: int, in_stream: bool) -> None:
    """An error that repeats the key is cleaned before it is cut."""
    key = "sk-abcdefghijklmnopqrstuvwxyz"

    def choose(request: ScriptedRequest) -> Script:
        if request.number == 0:
            return GOOD
        said = {"error": {"message": "x" * padding + " " + request.headers["authorization"]}}
        return streamed([said]) if in_stream else (Send(response(said, status=500)),)

    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        failure = (await engine.answer(GenerateRequest(1, [11], 2))).decode().failure
        assert failure is not None
        assert "sk-ab" not in failure.text

    with_server(choose, use, model="m", api_key=key)


@pytest.mark.parametrize(("completion", "prompt"), [(1 << 24, 1), (1 << 40, 1), (2, 1 << 31), (2, 1 << 62)])
def test_counts_that_cannot_be_are_not_believed(completion: int, prompt: int) -> None:
    """A token count far beyond what was asked for is a failure; a prompt count without sense is unknown."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    events = [text("a"), text("b", finish_reason="length"), {"choices": [], "usage": usage}]

    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        decoded = (await engine.answer(GenerateRequest(1, [11], 2))).decode()
        assert (decoded.failure is None) == (completion == 2)
        assert decoded.prompt_tokens in (1, None)

    with_server(lambda request: GOOD if request.number == 0 else streamed(events), use, model="m")


def test_empty_texts_are_no_sign_of_life_and_endless_ones_are_ended() -> None:
    """Roles without end do not keep a request alive; tokens without end are ended when somebody looks."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        empty = engine.compose(GenerateRequest(1, [11], 2))
        empty.send()
        while len(server.requests) < 2 or len(server.requests[1].writes) < 5:
            await asyncio.sleep(0.005)
        assert empty.last_sign_ns() == empty.sent_ns
        empty.give_up(FailureKind.TIMEOUT_READ, "")
        endless = engine.compose(GenerateRequest(2, [11], 2))
        endless.send()
        while endless.end_ns < 0:
            endless.last_sign_ns()
            await asyncio.sleep(0.005)
        failure = endless.decode().failure
        assert failure is not None
        assert failure.kind is FailureKind.PARSE

    roles = streamed([text("")] * 50, done=False)
    forever = streamed([text("a")] * 3000, gap_s=0, done=False)[:-1]
    with_server(lambda request: (GOOD, roles, (*forever, Hang()))[min(request.number, 2)], use, model="m")
