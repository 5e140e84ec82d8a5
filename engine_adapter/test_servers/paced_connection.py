"""One connection of the paced server: what was asked on it, and what it could not take yet."""

import socket
from collections import deque
from dataclasses import dataclass
from typing import Any

import httptools

from engine_adapter.test_servers.receive_time import receive

_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Request:
    """A whole request. `arrived_ns`: when its last byte had arrived, however much later it was read."""

    method: str
    path: str
    body: bytes
    x_request_id: str
    arrived_ns: int


class Connection:
    """A client's socket, never blocking. `requests` are those that wait for their answer."""

    __slots__ = ("_arrived_ns", "_body", "_headers", "_parser", "_socket", "_unsent", "_url", "closed",
                 "number", "requests", "stream")

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = accepted
        self.number = accepted.fileno()
        self.closed = False
        """No use any more; whoever sees it drops the connection."""
        self.requests: deque[Request] = deque()
        self.stream: Any = None
        """The answer under way."""
        self._unsent = b""
        self._parser: Any = httptools.HttpRequestParser(self)
        self._arrived_ns = 0
        self.on_message_begin()

    def send(self, data: bytes) -> bool:
        """Send at once, what is waiting first; whether nothing waits afterwards."""
        data = self._unsent + data if self._unsent else data
        try:
            taken = self._socket.send(data)
        except BlockingIOError:
            taken = 0
        except OSError:
            self.closed = True
            return True
        if taken == len(data):
            self._unsent = b""
            return True
        self._unsent = data[taken:]
        return False

    def receive(self) -> None:
        """Read what has come and append the requests that it completes."""
        try:
            data, arrived_ns = receive(self._socket, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, arrived_ns = b"", 0
        if not data:
            self.closed = True
            return
        self._arrived_ns = arrived_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.closed = True

    def close(self) -> None:
        """Close the socket; again is no error."""
        self.closed = True
        self._parser = None  # it refers back to this object
        self._socket.close()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.requests.append(Request(
            self._parser.get_method().decode(), self._url.decode("latin-1").partition("?")[0],
            b"".join(self._body), self._headers.get(b"x-request-id", b"").decode("latin-1"),
            self._arrived_ns))
