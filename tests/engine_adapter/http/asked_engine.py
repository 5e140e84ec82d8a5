"""Asking a scripted server through HttpEngine, in one call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.seam import EngineInfo
from engine_adapter.test_servers.script import (
    Script,
    Send,
    streamed,
)
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import response


def text(piece: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": piece, "finish_reason": None} | more]}


GOOD = streamed([text("a"), text("b", finish_reason="length")], gap_s=0)


def refusal(status: int, message: str) -> Script:
    return (Send(response({"error": {"message": message}}, status=status)),)


def with_server(choose: Script | Callable[[ScriptedRequest], Script],
                use: Callable[[HttpEngine, ScriptedServer], Awaitable[Any]], **target: Any) -> Any:
    async def go() -> Any:
        pages = target.pop("pages", None)
        async with ScriptedServer(choose, pages=pages) as server:
            engine = HttpEngine(HttpTarget(base_url=server.base_url, **target))
            try:
                return await use(engine, server)
            finally:
                await engine.stop()

    return asyncio.run(go())


def started(choose: Script | Callable[[ScriptedRequest], Script], **target: Any) -> EngineInfo:
    info: EngineInfo = with_server(choose, lambda engine, server: engine.start(), **target)
    return info
