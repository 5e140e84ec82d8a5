"""Connections whose reads are stamped at the socket.

Over plain TCP the kernel's own receive time is taken (SO_TIMESTAMPNS, socket(7)): however late this
process gets to a read, the time is that of the packet's arrival. The kernel stamps a read with the
arrival of its newest byte, so only messages that had to wait for one another can be wrong.
TLS records are opened by asyncio, and stamped as soon as it hands them over.
"""

import asyncio
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from typing import Protocol

from engine_adapter.answer import FailureKind
from engine_adapter.http.response import Response

_SO_TIMESTAMPNS = 35 if sys.platform == "linux" else None
_TIMESPEC = struct.Struct("@qq")
_READ_SIZE = 1 << 16
_CONTROL_SIZE = socket.CMSG_SPACE(_TIMESPEC.size)
_PLAUSIBLE_LATE_NS = 60_000_000_000



class Connection(Protocol):
    """One connection, at most one request at a time."""

    closed: bool

    @property
    def has_sent_all(self) -> bool:
        """Whether nothing of the last request is still to be sent."""
        ...

    def is_quiet(self) -> bool:
        """Whether nothing came that nobody asked for, the end of the connection included."""
        ...

    def exchange(self, response: Response, payload: bytes) -> None:
        """Send `payload`; what comes back goes into `response`."""
        ...

    def close(self) -> None: ...


class PlainConnection:
    """TCP without TLS, read and written here, without a transport in between."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop,
                 on_idle_end: Callable[["Connection"], None]) -> None:
        self.closed = False
        self._sock, self._loop, self._on_idle_end = sock, loop, on_idle_end
        self._recvmsg = sock.recvmsg
        self._response: Response | None = None
        self._unsent = memoryview(b"")
        self._newest_ns = 0
        stamp_reads(sock)
        loop.add_reader(sock.fileno(), self._readable)

    @property
    def has_sent_all(self) -> bool:
        return not self._unsent

    def is_quiet(self) -> bool:
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def exchange(self, response: Response, payload: bytes) -> None:
        self._response = response
        self._unsent = memoryview(payload)
        self._newest_ns = time.perf_counter_ns()
        self._writable()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            return self._lost(error.strerror or str(error))
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._sock.fileno(), self._writable)
        else:
            self._unsent = memoryview(b"")
            self._loop.remove_writer(self._sock.fileno())
        return None

    def _readable(self) -> None:
        try:
            data, control, _, _ = self._recvmsg(_READ_SIZE, _CONTROL_SIZE)
        except BlockingIOError:
            return None
        except OSError as error:
            return self._lost(error.strerror or str(error))
        # In this order: whatever comes between the two clocks makes the stamp late, never early.
        calendar_ns, now_ns = time.time_ns(), time.perf_counter_ns()
        if not data:
            return self._lost(None)
        late_ns = 0
        if control:
            seconds, nanoseconds = _TIMESPEC.unpack_from(control[0][2])
            late_ns = calendar_ns - (seconds * 1_000_000_000 + nanoseconds)
            if not 0 <= late_ns < _PLAUSIBLE_LATE_NS:  # somebody set the system's clock
                late_ns = 0
        response = self._response
        if response is None:
            return self._lost(None)  # nobody asked for anything
        # What came cannot be older than what came before it, whatever somebody does to the calendar.
        stamp_ns = self._newest_ns = max(now_ns - late_ns, self._newest_ns)
        response.feed(data, stamp_ns, min(late_ns, now_ns - stamp_ns))
        if response.over and self._response is response:
            self._response = None
            if response.overrun:
                self.close()
        return None

    def _lost(self, why: str | None) -> None:
        response, self._response = self._response, None
        self.close()
        if response is None:
            self._on_idle_end(self)
        else:
            end_of_stream(response, why)


class TlsConnection(asyncio.Protocol):
    """The same over TLS, on asyncio's transport."""

    def __init__(self, on_idle_end: Callable[["Connection"], None]) -> None:
        self.closed = False
        self._on_idle_end = on_idle_end
        self._response: Response | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def has_sent_all(self) -> bool:
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def is_quiet(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def exchange(self, response: Response, payload: bytes) -> None:
        assert self._transport is not None
        self._response = response
        self._transport.write(payload)

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        now_ns = time.perf_counter_ns()
        if (response := self._response) is None:
            return self.close()
        response.feed(data, now_ns, 0)
        if response.over and self._response is response:
            self._response = None
            if response.overrun:
                self.close()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        response, self._response = self._response, None
        was_closed, self.closed = self.closed, True
        if response is not None:
            end_of_stream(response, None if error is None else str(error))
        elif not was_closed:
            self._on_idle_end(self)


def end_of_stream(response: Response, why: str | None) -> None:
    """The connection ended under `response`, with an error or in order."""
    now_ns = time.perf_counter_ns()
    if response.over:
        return
    if response.status and why is None and not response.framed:
        # Without a length and without chunks the end of the connection is the end of the body.
        response.end(at_ns=now_ns)
    else:
        happened = f"the connection broke ({why})" if why else "the server closed the connection"
        response.end(f"{happened} {'in mid-answer' if response.status else 'before it answered'}",
                     FailureKind.TRUNCATED, at_ns=now_ns)


def stamp_reads(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what this socket receives; False where it cannot."""
    if _SO_TIMESTAMPNS is None:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


async def connect_plain(address: tuple[int, tuple[object, ...]], timeout_s: float,
                        on_idle_end: Callable[[Connection], None]) -> PlainConnection:
    """A connection to one resolved address, (family, sockaddr). OSError or TimeoutError without one."""
    loop = asyncio.get_running_loop()
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(timeout_s):
            await loop.sock_connect(sock, where)
        return PlainConnection(sock, loop, on_idle_end)
    except BaseException:
        sock.close()
        raise


async def connect_tls(host: str, port: int, context: ssl.SSLContext, timeout_s: float,
                      on_idle_end: Callable[[Connection], None]) -> TlsConnection:
    """A TLS connection; OSError (ssl.SSLError is one) or TimeoutError when there is none."""
    async with asyncio.timeout(timeout_s):
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: TlsConnection(on_idle_end), host, port, ssl=context)
    return connection
