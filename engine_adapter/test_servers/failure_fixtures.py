"""Answers that are none, and what stood in them before they failed."""

from engine_adapter.answer import FailureKind
from engine_adapter.test_servers.fixture import A_B, Expectation, Fixture, text
from engine_adapter.test_servers.script import (
    Close,
    Hang,
    Reset,
    Script,
    Send,
    Step,
    Wait,
    spaced,
    stream_head,
    streamed,
)
from engine_adapter.test_servers.wire import LAST_CHUNK, STREAM_HEADERS, chunk, head, response, sse

_WHY = "the GPU is on fire"
_ERROR = {"error": {"message": _WHY, "type": "server_error", "code": 500}}
_VLLM_ERROR = {"object": "error", "message": _WHY, "type": "BadRequestError", "code": 400}
_DONE = chunk(sse("[DONE]")) + LAST_CHUNK
_TOKENS = [chunk(sse(text(word))) for word in "abc"]
_THREE = spaced(stream_head(), *_TOKENS)
_HTML = b"<!DOCTYPE html><html><body>Bad gateway</body></html>"


def _failed(kind: FailureKind, tokens: int = 0, says: str = "") -> Expectation:
    """A failure after so many tokens, of which each came in a write of its own after the head."""
    return Expectation(tokens=(1,) * tokens, writes=tuple(range(1, tokens + 1)), failure=kind, says=says)


def _status(status: int, says: str = "") -> Expectation:
    return Expectation(failure=FailureKind.HTTP_STATUS, status=status, says=says or str(status))


def _then(*steps: Step) -> Script:
    """Three tokens, and then `steps`."""
    return (*_THREE, Wait(0.004), *steps)


_IN_STREAM, _TRUNCATED, _PARSE = FailureKind.IN_STREAM_ERROR, FailureKind.TRUNCATED, FailureKind.PARSE
_TIMEOUT = FailureKind.TIMEOUT_READ

ERRORS_IN_STREAM = (
    Fixture("error before the first token", (streamed([_ERROR]),), _failed(_IN_STREAM, says=_WHY)),
    Fixture("error after tokens", (_then(Send(chunk(sse(_ERROR)) + _DONE)),), _failed(_IN_STREAM, 3, _WHY)),
    Fixture("error after tokens, and then the end", (_then(Send(chunk(sse(_ERROR))), Close()),),
            _failed(_IN_STREAM, 3, _WHY)),
    Fixture("error object of vLLM", (_then(Send(chunk(sse(_VLLM_ERROR)) + _DONE)),),
            _failed(_IN_STREAM, 3, _WHY)),
    Fixture("error that is a string", (streamed([{"error": _WHY}]),), _failed(_IN_STREAM, says=_WHY)),
    Fixture("event: error", (_then(Send(chunk(sse(_ERROR, event="error")) + _DONE)),),
            _failed(_IN_STREAM, 3, _WHY)),
    Fixture("event: error without JSON", (_then(Send(chunk(sse(_WHY, event="error")) + LAST_CHUNK)),),
            _failed(_IN_STREAM, 3, _WHY)),
    Fixture("error as the whole body of a 200", ((Send(response(_ERROR)),),), _failed(_IN_STREAM, says=_WHY)),
    Fixture("finish reason abort", (streamed([text("a"), text("", "abort")]),), Expectation(
        tokens=(1,), writes=(1,), failure=_IN_STREAM, finish_reason="abort", says="abort")),
)

STATUSES = (
    Fixture("429 with Retry-After", ((Send(response(_ERROR, status=429, headers={"retry-after": "1"})),),),
            _status(429, _WHY)),
    Fixture("400 of vLLM", ((Send(response(_VLLM_ERROR, status=400)),),), _status(400, _WHY)),
    Fixture("500 without a body", ((Send(response(b"", status=500)),),), _status(500)),
    Fixture("503 of a proxy", ((Send(response(_HTML, status=503)),),), _status(503)),
    Fixture("204", ((Send(head(204)),),), _status(204)),
    Fixture("307 to elsewhere", ((Send(response(b"", status=307, headers={"location": "/elsewhere"})),),),
            _status(307)),
    Fixture("401", ((Send(response({"detail": "no key"}, status=401)),),), _status(401, "no key")),
)

BROKEN = (
    Fixture("200 with HTML", ((Send(response(_HTML, headers={"content-type": "text/html"})),),),
            _failed(_PARSE, says="html")),
    Fixture("200 with a whole answer", ((Send(response(A_B[1] | {"usage": {"completion_tokens": 2}})),),),
            _failed(_PARSE)),
    Fixture("200 with JSON of another kind", ((Send(response({"hello": "world"})),),),
            _failed(_PARSE, says="hello")),
    Fixture("no HTTP", ((Send(b"SSH-2.0-OpenSSH_9.9\r\n"), Wait(0.02), Close()),), _failed(_PARSE)),
    Fixture("broken JSON after tokens", (_then(Send(chunk(b'data: {"choices":[{\n\n') + _DONE)),),
            _failed(_PARSE, 3)),
    Fixture("broken chunk after tokens", (_then(Send(b"zz\r\n"), Wait(0.02), Close()),), _failed(_PARSE, 3)),
    Fixture("200 and then the end", ((Send(stream_head()), Wait(0.004), Close()),), _failed(_TRUNCATED)),
    Fixture("200 with an empty body", ((Send(stream_head() + LAST_CHUNK),),), _failed(_TRUNCATED)),
    # A connection that was used before may have been closed before the request came: one more attempt.
    Fixture("the end before the head, twice", ((Wait(0.004), Close()),) * 2, _failed(_TRUNCATED),
            before=streamed(A_B)),
    Fixture("reset before the head, twice", ((Wait(0.004), Reset()),) * 2, _failed(_TRUNCATED),
            before=streamed(A_B)),
    Fixture("the end in the head", ((Send(stream_head()[:30]), Wait(0.004), Close()),), _failed(_TRUNCATED)),
    Fixture("closed after three tokens", (_then(Close()),), _failed(_TRUNCATED, 3)),
    Fixture("reset after three tokens", (_then(Wait(0.03), Reset()),), _failed(_TRUNCATED, 3)),
    Fixture("body ended after three tokens", (_then(Send(LAST_CHUNK)),), _failed(_TRUNCATED, 3)),
    Fixture("closed in an event", (_then(Send(chunk(sse(text("d"))[:-20])), Wait(0.01), Close()),),
            _failed(_TRUNCATED, 3)),
    Fixture("content-length never reached", (
        (*spaced(head(200, STREAM_HEADERS | {"content-length": "99999"}), sse(text("a"))), Wait(0.01),
         Close()),),
        _failed(_TRUNCATED, 1)),
)

HANGS = (
    Fixture("hangs before the head", ((Hang(),),), _failed(_TIMEOUT)),
    Fixture("hangs after the head", ((Send(stream_head()), Hang()),), _failed(_TIMEOUT)),
    Fixture("hangs in mid-stream", (_then(Hang()),), _failed(_TIMEOUT, 3)),
    Fixture("nothing but comments", (
        (Send(stream_head()), *(Send(chunk(b": ping\n\n")), Wait(0.01)) * 3, Hang()),), _failed(_TIMEOUT)),
)
