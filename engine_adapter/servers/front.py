"""What all engines over HTTP hand on to the client that does the work."""

from collections.abc import AsyncIterator
from typing import Generic, Protocol, TypeVar

from engine_adapter.answer import Answer, AnswersWhole
from engine_adapter.errors import Crashed
from engine_adapter.http.server_metrics import ServerMetrics
from engine_adapter.http.target import HttpTarget
from engine_adapter.seam import Engine, GenerateRequest, TokenEvent


class ServedEngine(Engine, AnswersWhole, Protocol):
    """An engine that is reached over HTTP."""

    @property
    def target(self) -> HttpTarget:
        """Where it is and how it is spoken to."""
        ...

    async def metrics(self) -> ServerMetrics | None:
        """One look at the server's own counters; None where it shows none that are known."""
        ...


E = TypeVar("E", bound=ServedEngine)


class ServerFront(Generic[E]):
    """Hands requests on to the engine behind it, which exists between `start` and `stop` only."""

    def __init__(self) -> None:
        self._behind: E | None = None

    @property
    def target(self) -> HttpTarget:
        """Where the server is, for as long as it runs."""
        return self._served().target

    def compose(self, request: GenerateRequest) -> Answer:
        return self._served().compose(request)

    async def connect(self, connections: int) -> None:
        await self._served().connect(connections)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        async for event in self._served().generate(request):
            yield event

    async def reset_caches(self) -> None:
        await self._served().reset_caches()

    async def metrics(self) -> ServerMetrics | None:
        return await self._served().metrics()

    async def death(self) -> Crashed | None:
        return await self._served().death()

    def _served(self) -> E:
        if self._behind is None:
            raise Crashed("the server has not been started, or has been stopped")
        return self._behind
