"""The raw response to one request: framed as HTTP while it comes, looked into when it is over."""

import re
from collections.abc import Callable

import httptools

from engine_adapter.answer import FailureKind

_LAST_EVENT = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\][\r\n]*$")
LARGEST_ANSWER = 1 << 28
"""An answer is kept whole until it is over."""
_LONGEST_HEAD = 1 << 20


class Response:
    """The raw response to one request; the object that httptools calls back.

    `bodies[i]` came at `stamps_ns[i]` after lying in the socket for `late_ns[i]`.
    """

    __slots__ = ("_parser", "bodies", "broken", "bytes_in_head", "content_encoding", "end_ns",
                 "failure_kind", "framed", "keep_alive", "late_ns", "on_end", "on_last_event", "over",
                 "overrun", "size", "stamp_late_ns", "stamp_ns", "stamps_ns", "status")

    def __init__(self, on_end: Callable[[], None], on_last_event: Callable[[], None]) -> None:
        """`on_end` is called once, when it is over; `on_last_event` when [DONE] was seen before that."""
        self.on_end, self.on_last_event = on_end, on_last_event
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.bodies: list[bytes] = []
        self.stamps_ns: list[int] = []
        self.late_ns: list[int] = []
        self.status = 0
        self.content_encoding = ""
        self.framed = False
        """Whether the body has an end of its own, a length or a last chunk."""
        self.keep_alive = False
        self.over = False
        self.broken: str | None = None
        self.failure_kind: FailureKind | None = None
        self.stamp_ns = self.stamp_late_ns = 0
        self.end_ns = -1
        self.bytes_in_head = 0
        self.size = 0
        self.overrun = False
        """Whether the server sent more than one answer to one request."""

    def feed(self, data: bytes, stamp_ns: int, late_ns: int) -> None:
        """Bytes that came at `stamp_ns`."""
        if (parser := self._parser) is None:
            return
        self.stamp_ns, self.stamp_late_ns = stamp_ns, late_ns
        if not self.status:
            self.bytes_in_head += len(data)
            if self.bytes_in_head > _LONGEST_HEAD:
                self.end("the server sent a megabyte without a status line", FailureKind.PARSE)
                return
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.end("the server wants to change the protocol", FailureKind.PARSE)
        except httptools.HttpParserError as error:
            self.overrun = self.over
            self.end(f"the server's answer is not HTTP ({error})", FailureKind.PARSE)

    def end(self, broken: str | None = None, kind: FailureKind | None = None,
            at_ns: int | None = None) -> None:
        """The response is over: complete, or broken off for this reason."""
        if not self.over:
            self.over = True
            self.broken, self.failure_kind = broken, kind
            self.end_ns = self.stamp_ns if at_ns is None else at_ns
            # Reference cycles, and nobody collects garbage during a run.
            on_end, self.on_end, self.on_last_event, self._parser = self.on_end, _nothing, _nothing, None
            on_end()

    # What httptools calls, from within feed.

    def on_message_begin(self) -> None:
        self.overrun = self.over

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.over:
            return
        match name.lower():
            case b"content-encoding":
                self.content_encoding = value.decode("latin-1").lower().strip()
            case b"content-length" | b"transfer-encoding":
                self.framed = True

    def on_headers_complete(self) -> None:
        if self._parser is not None:
            self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.over:
            return
        self.size += len(body)
        if self.size > LARGEST_ANSWER:
            self.end(f"the answer is larger than {LARGEST_ANSWER >> 20} MiB", FailureKind.PARSE)
            return
        self.bodies.append(body)
        self.stamps_ns.append(self.stamp_ns)
        self.late_ns.append(self.stamp_late_ns)
        if b"[DONE]" in body[-16:] and _LAST_EVENT.search(body):
            self.on_last_event()

    def on_message_complete(self) -> None:
        if self.over:
            return
        if self.status < 200:  # 100 Continue and its like: the answer is still to come
            self.status = 0
            return
        self.keep_alive = self._parser is not None and self._parser.should_keep_alive()
        self.end()


def _nothing() -> None:
    pass
