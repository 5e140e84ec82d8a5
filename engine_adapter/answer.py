"""One answer as it was read, decoded once it is over: what a client that stamps sockets hands to bench."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine_adapter.errors import Crashed
from engine_adapter.seam import GenerateRequest


class FailureKind(StrEnum):
    """Why a request is no success. The values are the keys of `error_counts_by_kind`."""

    CONNECT = "connect"
    """No connection: refused, unreachable, a failed TLS handshake."""
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_READ = "timeout_read"
    """No token came within the request's time limit."""
    HTTP_STATUS = "http_status"
    """Any status but 200."""
    IN_STREAM_ERROR = "in_stream_error"
    """An error object, or an `error` event, inside a 200 stream."""
    TRUNCATED = "truncated"
    """The connection or the stream ended without [DONE] or a finish reason."""
    EMPTY = "empty"
    """It ended in order, without a single token."""
    PARSE = "parse"
    """What came is not HTTP, not an event stream, or not this API's JSON."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one request failed."""

    kind: FailureKind
    text: str
    """One line for the user; never holds a key or a header of the request."""
    status: int | None = None
    """The HTTP status, where it is the reason."""


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """What an answer held. Tokens that came before a failure are kept."""

    read_ns: list[int]
    """When each token-bearing message was read; messages that came in one read share a time."""
    read_tokens: list[int]
    """Tokens of each, at least 1."""
    finish_reason: str | None
    failure: Failure | None
    """None: a terminal signal, at least one token and no error."""
    prompt_tokens: int | None
    """As counted by the server; None where it did not say."""
    token_count_source: str
    """`token_ids`, `usage`, `tokenizer` or `events`; see openai_stream."""
    late_ns: list[int]
    """For each message, how long it lay in the socket before it was read; 0 where unknown."""
    merged: list[bool]
    """For each message, whether it came together with others, so that their time may be wrong."""
    token_ids: list[int] | None = None
    """All of the answer's tokens, where the server says every one."""


class Answer(Protocol):
    """One request and what comes back for it: composed, sent, awaited, then decoded."""

    sent_ns: int
    """When it was started, before its connection was opened where it needs a new one; -1 before."""
    end_ns: int
    """End of the stream, whatever its outcome; -1 before."""

    def send(self) -> None:
        """Start it now."""
        ...

    async def wait(self) -> None:
        """Until the stream is over. Failures are in what `decode` returns, never raised; cancelling
        ends the request, and what came until then can be decoded."""
        ...

    def last_sign_ns(self) -> int:
        """When it was sent or last brought something that may hold a token."""
        ...

    def give_up(self, kind: FailureKind, text: str) -> None:
        """End it now with this failure."""
        ...

    def decode(self) -> DecodedAnswer:
        """Parse what came. Costs microseconds a message: call it when nothing else waits."""
        ...


class AnswersWhole(Protocol):
    """An engine that reads by itself and hands over whole answers: no task wakes for a token."""

    def compose(self, request: GenerateRequest) -> Answer:
        """The request, ready to be sent without any further work."""
        ...

    async def connect(self, connections: int) -> None:
        """Open so many connections, so that the first requests need not."""
        ...

    async def death(self) -> Crashed | None:
        """Why new requests can no longer reach it; None while they can."""
        ...
