"""Fixtures over TLS: what the client reads through another transport must come out the same."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from engine_adapter.errors import StartFailed
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.test_servers.fixture import Fixture, text
from engine_adapter.test_servers.fixtures import FIXTURES
from engine_adapter.test_servers.script import streamed
from engine_adapter.test_servers.scripted import ScriptedServer
from tests.engine_adapter.test_servers.asking import ask_for

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
NAMES = (
    "two tokens", "four tokens a message, by their ids", "one byte at a time", "everything in one write",
    "an event of a megabyte", "the end of the connection ends the body", "connection: close", "slow head",
    "error after tokens", "429 with Retry-After", "closed after three tokens", "reset after three tokens",
    "200 and then the end", "connection closed between two requests", "hangs in mid-stream",
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate of our own, for the client to trust, and the server's side of it."""
    home = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", home / "key.pem", "-out", home / "cert.pem", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(home / "cert.pem", home / "key.pem")
    return home / "cert.pem", context


@pytest.mark.parametrize("fixture", [f for f in FIXTURES if f.name in NAMES], ids=lambda f: f.name)
def test_fixtures_come_out_the_same(fixture: Fixture, certificate: tuple[Path, ssl.SSLContext]) -> None:
    """Outcome and tokens."""
    _, decoded, _ = asyncio.run(ask_for(fixture, ca_file=certificate[0], tls=certificate[1]))
    assert (decoded.failure and decoded.failure.kind) == fixture.expect.failure
    assert tuple(decoded.read_tokens) == fixture.expect.tokens
    assert decoded.finish_reason == fixture.expect.finish_reason


def test_the_fixtures_named_here_exist() -> None:
    """A renamed fixture would silently be left out."""
    assert set(NAMES) <= {fixture.name for fixture in FIXTURES}


def test_a_certificate_that_nobody_vouches_for(certificate: tuple[Path, ssl.SSLContext]) -> None:
    """The engine does not start, in one line that says why."""
    async def run() -> None:
        async with ScriptedServer(streamed([text("a", "stop")]), tls=certificate[1]) as server:
            with pytest.raises(StartFailed, match="certificate"):
                await HttpEngine(HttpTarget(base_url=server.base_url)).start()

    asyncio.run(run())
