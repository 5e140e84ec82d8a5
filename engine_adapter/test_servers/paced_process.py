"""The paced server in its process, as an async context manager."""

import asyncio
import contextlib
import io
import sys
import urllib.request
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from engine_adapter.errors import StartFailed

_START_SECONDS = 30.0
_END_SECONDS = 5.0
_ASK_SECONDS = 60.0


@dataclass(slots=True)
class PacedServer:
    """`async with PacedServer(interval_ms=20) as server:` serves at `server.base_url` until the end of
    the block; the process also ends when this one dies. StartFailed when it does not come up."""

    ttft_ms: float = 50.0
    interval_ms: float = 20.0
    tokens_per_message: int = 1
    keep_truth: bool = True
    base_url: str = ""
    """`http://127.0.0.1:PORT` while it serves."""
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "engine_adapter.test_servers.paced", "--ttft-ms", repr(self.ttft_ms),
            "--interval-ms", repr(self.interval_ms), "--tokens-per-message", str(self.tokens_per_message),
            *([] if self.keep_truth else ["--no-truth"]),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            # Control-C is for the client, which then closes our standard input.
            start_new_session=True)
        try:
            assert self._process.stdout is not None
            line = await asyncio.wait_for(self._process.stdout.readline(), _START_SECONDS)
            said, _, address = line.decode().strip().rpartition(" ")
            if said != "listening on":
                raise StartFailed("the paced server ended before it listened; its error is above")
        except BaseException as error:
            await self._end()
            if isinstance(error, TimeoutError):
                raise StartFailed(f"the paced server did not listen within {_START_SECONDS:g} s") from None
            raise
        self.base_url = f"http://{address}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._end()

    async def truth(self) -> dict[str, Any]:
        """Figures of every answer since the start or the last reset; see Truth.summary."""
        figures: dict[str, Any] = msgspec.json.decode(await self._ask("/truth"))
        return figures

    async def truth_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every time of every answer since the start or the last reset; see Truth.arrays."""
        with np.load(io.BytesIO(await self._ask("/truth.npz"))) as arrays:
            return dict(arrays)

    async def reset_truth(self) -> None:
        """Forget the answers so far."""
        await self._ask("/truth/reset", method="POST")

    async def _ask(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(self.base_url + path, method=method)

        def ask() -> bytes:
            with urllib.request.urlopen(request, timeout=_ASK_SECONDS) as answer:
                body: bytes = answer.read()
                return body

        return await asyncio.to_thread(ask)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
