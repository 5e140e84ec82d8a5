"""One fixture, asked for through the client that measures real servers."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from engine_adapter.answer import DecodedAnswer, FailureKind
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.exchange import HttpAnswer
from engine_adapter.http.target import HttpTarget
from engine_adapter.request_number import http_request_number
from engine_adapter.seam import GenerateRequest
from engine_adapter.test_servers.fixture import Fixture, content, text
from engine_adapter.test_servers.script import Close, Script, streamed
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer

ASKED = GenerateRequest(7, [11, 12, 13], 4)
BEFORE = GenerateRequest(6, [11, 12, 13], 4)
PATIENCE_S = 0.3
"""Longer than the pauses of any fixture that hangs; then the client gives up."""


async def ask_for(fixture: Fixture, *, tls: ssl.SSLContext | None = None,
                  ca_file: Path | None = None) -> tuple[HttpAnswer, DecodedAnswer, list[ScriptedRequest]]:
    """The answer, decoded, and the requests for it that the server saw."""
    async with ScriptedServer(_scripts_of(fixture), tls=tls) as server:
        engine = HttpEngine(HttpTarget(
            base_url=server.base_url, api="chat" if fixture.chat else "completions", ca_file=ca_file))
        await engine.start()
        try:
            if fixture.before is not None:
                assert (await engine.answer(BEFORE)).decode().failure is None
                await asyncio.sleep(0.01)
            answer = engine.compose(ASKED)
            answer.send()
            if fixture.hangs:
                asyncio.get_running_loop().call_later(
                    PATIENCE_S, answer.give_up, FailureKind.TIMEOUT_READ, "it took too long")
            await answer.wait()
        finally:
            await engine.stop()
    return answer, answer.decode(), [r for r in server.requests if _number(r) == ASKED.number]


def _scripts_of(fixture: Fixture) -> Callable[[ScriptedRequest], Script]:
    """The fixture for the request that is measured, its `before`, and a good answer to all the others."""
    attempts = iter(fixture.scripts)
    good = streamed([content("a", "stop")] if fixture.chat else [text("a", "stop")], gap_s=0)

    def script_for(request: ScriptedRequest) -> Script:
        if _number(request) == ASKED.number:
            return next(attempts, (Close(),))
        return fixture.before if _number(request) == BEFORE.number and fixture.before else good

    return script_for


def _number(request: ScriptedRequest) -> int:
    number = http_request_number(request.headers["x-request-id"])
    assert number is not None
    return number
