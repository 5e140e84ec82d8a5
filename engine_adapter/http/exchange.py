"""One request over HTTP: composed, sent, read raw, and decoded once it is over."""

import asyncio
import itertools
import re
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from engine_adapter.answer import DecodedAnswer, Failure, FailureKind
from engine_adapter.clock import Clock
from engine_adapter.http.connection import Connection
from engine_adapter.http.openai_stream import StreamContent, decode_stream
from engine_adapter.http.pool import ConnectionPool
from engine_adapter.http.response import LARGEST_ANSWER, Response
from engine_adapter.http.text_tokens import TokensOfText

_STALE_WITHIN_NS = 250_000_000
"""A connection that ends later, unanswered, was ended by the request: that is a failure."""
_MOST_TOKENS = 1 << 16
_TIMES_ASKED = 4
"""An answer with more tokens than both is a counter gone wrong, or a server that ignores its limit."""
_LEAST_LIMIT = 1024
_MOST_PROMPT_TOKENS = 1 << 31
_SIGN = re.compile(
    rb'"(?:text|content|reasoning|reasoning_content|arguments)"\s*:\s*"[^"]|"token_ids"\s*:\s*\[\s*\d')
"""What a message with a token has in it."""
_AFTER_LAST_EVENT_S = 1.0
"""A server that keeps the connection open after [DONE] is waited for no longer than this."""


class HttpAnswer:
    """Speaks engine_adapter.answer.Answer; see there."""

    __slots__ = ("_asked", "_cleaned", "_clock", "_connecting", "_connection", "_last_event_ns",
                 "_looked_at", "_loop", "_may_retry", "_over", "_payload", "_pool", "_response", "_sign_ns",
                 "_signs", "_tail", "_timer", "_tokens_of_text", "end_ns", "sent_ns")

    def __init__(self, payload: bytes, pool: ConnectionPool, *, clock: Clock, asked: int,
                 tokens_of_text: TokensOfText | None, cleaned: Callable[[str], str]) -> None:
        """`payload` is the whole HTTP request for `asked` tokens; `cleaned` takes secrets out of a text."""
        self._payload, self._pool, self._clock = payload, pool, clock
        self._tokens_of_text, self._cleaned = tokens_of_text, cleaned
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._response = Response(self._ended, self._saw_last_event)
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_event_ns = -1
        self._looked_at, self._tail, self._signs = 0, b"", 0
        self._asked = asked
        self._may_retry = False
        self.sent_ns = self.end_ns = self._sign_ns = -1

    def send(self) -> None:
        self.sent_ns = self._sign_ns = self._clock.now_ns()
        connection = self._pool.idle()
        if connection is None:
            self._connecting = self._loop.create_task(self._connect_and_send())
        else:
            # A server may close a connection just as it is used again; that says nothing about the request.
            self._may_retry = True
            self._connection = connection
            connection.exchange(self._response, self._payload)

    async def wait(self) -> None:
        try:
            await self._over
        except asyncio.CancelledError:
            self.give_up(FailureKind.TRUNCATED, "it was cut short by this client")
            raise

    def last_sign_ns(self) -> int:
        bodies = self._response.bodies
        if len(bodies) == self._looked_at:
            return self._sign_ns
        # Comments, roles and empty texts keep a connection alive; a reader gets nothing from them.
        new = self._tail + b"".join(bodies[self._looked_at:])
        self._looked_at = len(bodies)
        whole = max(new.rfind(b"\n"), new.rfind(b"\r")) + 1
        self._tail = new[whole:]
        if found := len(_SIGN.findall(new, 0, whole)):
            self._signs += found
            self._sign_ns = self._response.stamps_ns[-1]
        if self._signs > _TIMES_ASKED * self._asked + _LEAST_LIMIT:
            self.give_up(FailureKind.PARSE,
                         f"the server goes on far beyond the {self._asked} tokens asked for")
        return self._sign_ns

    def give_up(self, kind: FailureKind, text: str) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._may_retry = False
        self._response.end(text, kind, at_ns=self._clock.now_ns())

    def decode(self) -> DecodedAnswer:
        response, content, failure = self._response, None, self._transport_failure()
        if failure is None:
            content, failure = self._content()
        if content is None:
            return DecodedAnswer([], [], None, failure, None, "events", [], [])
        stamps = [response.stamps_ns[read] for read in content.message_read]
        # The kernel stamps a read with its newest byte: what came before that in one read may be older.
        merged = [earlier == later for earlier, later in itertools.pairwise(stamps)]
        after = [*response.stamps_ns[1:], -1]
        last = bool(stamps) and after[content.message_read[-1]] == stamps[-1]
        return DecodedAnswer(
            read_ns=stamps, read_tokens=content.message_tokens, finish_reason=content.finish_reason,
            failure=failure, prompt_tokens=_countable(content.prompt_tokens),
            token_count_source=content.token_count_source,
            late_ns=[response.late_ns[read] for read in content.message_read],
            merged=[*merged, last] if stamps else [],
            token_ids=content.token_ids,
        )

    def body(self) -> bytes:
        """What came, undecoded."""
        return b"".join(self._response.bodies)

    def _transport_failure(self) -> Failure | None:
        """Why there is no answer to look into; None where there is one, whole or not."""
        response = self._response
        if response.status == 0:
            kind = response.failure_kind or FailureKind.TRUNCATED
            return Failure(kind, self._cleaned(response.broken or "no answer came"))
        if response.status != 200:
            # Cleaned before it is cut: half a key is a key to somebody.
            said = error_text(self._cleaned(self.body().decode("utf-8", errors="replace")).encode())
            text = f"HTTP {response.status}: {said}" if said else f"HTTP {response.status}"
            return Failure(FailureKind.HTTP_STATUS, text, response.status)
        return None

    def _content(self) -> tuple[StreamContent | None, Failure | None]:
        response = self._response
        try:
            bodies = _plain(response.bodies, response.content_encoding)
        except (zlib.error, ValueError) as error:
            return None, Failure(FailureKind.PARSE, f"the answer cannot be unpacked: {error}")
        content = decode_stream(bodies, tokens_of_text=self._tokens_of_text)
        if (counted := sum(content.message_tokens)) > max(_MOST_TOKENS, _TIMES_ASKED * self._asked):
            return None, Failure(FailureKind.PARSE, f"the server counts {counted} tokens where {self._asked} "
                                                    f"were asked for")
        failure = content.failure
        if failure is not None:
            said = self._cleaned(b"".join(bodies).decode("utf-8", errors="replace")).encode()
            failure = decode_stream([said]).failure or failure
            if response.broken is not None and failure.kind is not FailureKind.IN_STREAM_ERROR:
                # Why it ends where it ends is what the connection says.
                failure = Failure(response.failure_kind or FailureKind.TRUNCATED, response.broken)
            failure = Failure(failure.kind, self._cleaned(failure.text), failure.status)
        return content, failure

    async def _connect_and_send(self) -> None:
        try:
            connection = await self._pool.connect()
        except TimeoutError:
            self._response.end(f"no connection to the server within {self._pool.connect_timeout_s:g} s",
                               FailureKind.TIMEOUT_CONNECT, at_ns=self._clock.now_ns())
        except OSError as error:
            self._response.end(f"no connection to the server: {error.strerror or error}", FailureKind.CONNECT,
                               at_ns=self._clock.now_ns())
        else:
            if self._response.over:
                self._pool.keep(connection)
                return
            self._connection = connection
            connection.exchange(self._response, self._payload)

    def _ended(self) -> None:
        response, connection = self._response, self._connection
        self._connection = None
        if self._may_retry and self._was_stale(response):
            self._may_retry = False
            self._response = Response(self._ended, self._saw_last_event)
            self._connecting = self._loop.create_task(self._connect_and_send())
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is not None:
            whole = response.broken is None and connection.has_sent_all
            if whole and response.keep_alive and not connection.closed:
                self._pool.keep(connection)
            else:
                self._pool.discard(connection)
        self.end_ns = response.end_ns
        self._payload = b""
        if not self._over.done():
            self._over.set_result(None)

    def _was_stale(self, response: Response) -> bool:
        """Whether the connection had been closed by the time it was used again, as an idle one may be."""
        return (response.failure_kind is FailureKind.TRUNCATED and not response.bytes_in_head
                and response.end_ns - self.sent_ns < _STALE_WITHIN_NS)

    def _saw_last_event(self) -> None:
        if self._timer is None:
            self._last_event_ns = self._response.stamp_ns
            self._timer = self._loop.call_later(_AFTER_LAST_EVENT_S, self._leave)

    def _leave(self) -> None:
        self._response.end("the server kept the connection open after [DONE]", FailureKind.TRUNCATED,
                           at_ns=self._last_event_ns)


def _countable(tokens: int | None) -> int | None:
    return tokens if tokens is not None and 0 <= tokens < _MOST_PROMPT_TOKENS else None


class _Error(msgspec.Struct):
    """The fields under which servers put their reason."""

    error: Any = None
    message: Any = None
    detail: Any = None


def error_text(body: bytes) -> str:
    """The reason in the body of a refusal, in one line of at most 300 characters; "" without one."""
    found: Any = body[:2000].decode("utf-8", errors="replace")
    try:
        said = msgspec.json.decode(body, type=_Error)
        found = said.error or said.message or said.detail or found
        if isinstance(found, dict):
            found = found.get("message") or found
    except (msgspec.DecodeError, ValueError):
        pass
    line = " ".join("".join(c if c.isprintable() else " " for c in str(found)).split())
    return line if len(line) <= 300 else line[:299] + "…"


def _plain(bodies: list[bytes], encoding: str) -> list[bytes]:
    """The pieces of a body that a server packed although nobody asked it to."""
    if encoding in ("", "identity"):
        return bodies
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"its content-encoding is {encoding}")
    unpacker, left, plain = zlib.decompressobj(zlib.MAX_WBITS | 32), LARGEST_ANSWER, []
    for piece in bodies:
        plain.append(unpacker.decompress(piece, left))
        left -= len(plain[-1])
        if left <= 0:
            raise ValueError(f"unpacked it is larger than {LARGEST_ANSWER >> 20} MiB")
    return plain
