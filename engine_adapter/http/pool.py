"""Connections to one server, kept open between requests."""

import asyncio
import socket
import ssl

from engine_adapter.http.connection import Connection, connect_plain, connect_tls, stamp_reads
from engine_adapter.http.target import HttpTarget

_AT_ONCE = 64
"""Connections opened at one time: more than a listening socket's queue lets most of them time out."""


class ConnectionPool:
    """Has no limit: how many requests are in flight is the load's business."""

    def __init__(self, target: HttpTarget) -> None:
        self.connect_timeout_s = target.connect_timeout_s
        self._target = target
        self._context = tls_context(target) if target.secure else None
        self._addresses: list[tuple[int, tuple[object, ...]]] = []
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        # The kernel begins to stamp a moment after the first socket asked for it.
        self._stamping = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.kernel_stamps = stamp_reads(self._stamping) and not target.secure

    def idle(self) -> Connection | None:
        """A connection that is open and free, the most recently used first."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and connection.is_quiet():
                return connection
            self.discard(connection)
        return None

    async def connect(self) -> Connection:
        """A new one. OSError or TimeoutError when the server does not take it."""
        if self._context is not None:
            connection: Connection = await connect_tls(
                self._target.host, self._target.port, self._context, self.connect_timeout_s, self.discard)
            self._all.add(connection)
            return connection
        if not self._addresses:
            await self._resolve()
        problem: OSError | None = None
        for address in self._addresses:
            try:
                connection = await connect_plain(address, self.connect_timeout_s, self.discard)
            except OSError as error:
                problem = problem or error
                continue
            # What worked once is tried first from now on.
            self._addresses.sort(key=lambda candidate: candidate is not address)
            self._all.add(connection)
            return connection
        raise problem or OSError("the server's name has no address")

    async def open(self, count: int) -> None:
        """Have at least `count` free connections, as far as the server takes them."""
        missing = count - len(self._idle)
        while missing > 0:
            found = await asyncio.gather(*[self.connect() for _ in range(min(missing, _AT_ONCE))],
                                         return_exceptions=True)
            opened = [connection for connection in found if not isinstance(connection, BaseException)]
            self._idle += opened
            missing -= len(found)
            if not opened:
                return

    def keep(self, connection: Connection) -> None:
        """It is free again."""
        self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """Close it and forget it."""
        connection.close()
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close everything."""
        for connection in tuple(self._all):
            connection.close()
        self._all.clear()
        self._idle.clear()
        self._stamping.close()

    async def _resolve(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.connect_timeout_s):
            found = await loop.getaddrinfo(self._target.host, self._target.port, type=socket.SOCK_STREAM)
        self._addresses = [(family, where) for family, _, _, _, where in found]


def tls_context(target: HttpTarget) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if target.ca_file is not None:
        context.load_verify_locations(target.ca_file)
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
