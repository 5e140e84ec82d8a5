"""Every fixture, through the client that measures real servers."""

import asyncio
import re

import pytest

from engine_adapter.answer import DecodedAnswer, FailureKind
from engine_adapter.errors import StartFailed
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.exchange import HttpAnswer
from engine_adapter.http.openai_stream import decode_stream
from engine_adapter.http.target import HttpTarget
from engine_adapter.test_servers.fixture import Fixture, text
from engine_adapter.test_servers.fixtures import FIXTURES
from engine_adapter.test_servers.script import streamed
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from tests.engine_adapter.test_servers.asking import ASKED, ask_for


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_a_client_gets_it_right(fixture: Fixture) -> None:
    """Outcome, tokens of every message, times that agree with the server's, and one request an attempt."""
    answer, decoded, requests = asyncio.run(ask_for(fixture))
    expect, failure = fixture.expect, decoded.failure
    assert (failure and failure.kind, failure and failure.status) == (expect.failure, expect.status), failure
    assert failure is None or expect.says.lower() in failure.text.lower()
    assert failure is None or re.fullmatch(r"[^\n]{1,400}", failure.text)
    assert tuple(decoded.read_tokens) == expect.tokens
    assert (decoded.finish_reason, decoded.prompt_tokens) == (expect.finish_reason, expect.prompt_tokens)
    if expect.tokens:
        assert decoded.token_count_source == expect.source
    if expect.text is not None:
        assert decode_stream([answer.body()]).text == expect.text
    assert len(requests) == len(fixture.scripts)
    assert_times_agree(fixture, answer, decoded, requests[-1])


def assert_times_agree(fixture: Fixture, answer: HttpAnswer, decoded: DecodedAnswer,
                       request: ScriptedRequest) -> None:
    """No token was read before it was written, nor after the answer's end; nor, unless it came in one
    read with the next one, after the next token was written."""
    writes = [request.writes[i] for i in fixture.expect.writes]
    assert len(writes) == len(decoded.read_ns)
    assert decoded.read_ns == sorted(decoded.read_ns)
    assert answer.sent_ns <= request.arrived_ns
    for i, (write, read_ns) in enumerate(zip(writes, decoded.read_ns, strict=True)):
        assert write.before_ns <= read_ns <= answer.end_ns
        later = [write.before_ns for write in request.writes[fixture.expect.writes[i] + 1 :]]
        assert decoded.merged[i] or not later or read_ns <= later[0]


def test_names_of_fixtures_are_unique() -> None:
    """Each can be named in a report of a failure."""
    assert len({fixture.name for fixture in FIXTURES}) == len(FIXTURES)


def test_a_refused_connection() -> None:
    """Nobody listens: of a server that went away, the answer is a failure; of one never met, one line."""
    async def run() -> DecodedAnswer:
        async with ScriptedServer(streamed([text("a", "stop")], gap_s=0)) as server:
            engine = HttpEngine(HttpTarget(base_url=server.base_url))
            await engine.start()
        try:
            decoded = (await engine.answer(ASKED)).decode()
        finally:
            await engine.stop()
        with pytest.raises(StartFailed, match="no server answers at"):
            await engine.start()
        return decoded

    decoded = asyncio.run(run())
    assert decoded.failure is not None
    assert decoded.failure.kind is FailureKind.CONNECT
    assert decoded.read_ns == []
