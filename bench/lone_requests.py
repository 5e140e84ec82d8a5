"""Requests outside any plan: one prompt, or one small batch, on an otherwise idle engine."""

import asyncio
import hashlib
import itertools
from collections.abc import Coroutine
from typing import Any

import numpy as np

from bench.run import Int64
from engine_adapter.clock import Clock
from engine_adapter.errors import Crashed, Hung
from engine_adapter.seam import Engine, EngineInfo, GenerateRequest

_LOWEST_ID = 10  # below are special tokens in most vocabularies


class LoneRequests:
    """Asks with prompts that no other salt gives, so that no cached prefix answers for the engine."""

    def __init__(
        self, engine: Engine, info: EngineInfo, *, clock: Clock, salt: str, timeout_s: float
    ) -> None:
        self._engine = engine
        self._vocab_size = info.vocab_size
        self._clock = clock
        self._timeout_ns = int(timeout_s * 1e9)
        self._rng = np.random.default_rng(list(hashlib.sha256(salt.encode()).digest()))
        # Plans number their requests from 0; the step log must not confuse these with them.
        self._numbers = itertools.count(1 << 30)

    async def first_token_ns(self, input_len: int) -> int:
        """Time to first token of one prompt, in nanoseconds. Raises EngineError when none comes."""
        sent_ns = self._clock.now_ns()
        (reads_ns,) = await self._in_time([self._read_times(input_len, 1)])
        return int(reads_ns[0]) - sent_ns

    async def batch_read_ns(self, batch: int, input_len: int, output_len: int) -> list[Int64]:
        """When each of `batch` equal requests, sent together, was read. Raises EngineError on failure."""
        return await self._in_time([self._read_times(input_len, output_len) for _ in range(batch)])

    async def _read_times(self, input_len: int, output_len: int) -> Int64:
        lowest = min(_LOWEST_ID, self._vocab_size - 1)
        prompt = self._rng.integers(lowest, self._vocab_size, size=input_len).tolist()
        request = GenerateRequest(next(self._numbers), prompt, output_len)
        times = [event.read_ns async for event in self._engine.generate(request) if event.num_tokens]
        if not times:
            raise Crashed(f"the engine answered a lone prompt of {input_len} tokens with no token")
        return np.array(times, dtype=np.int64)

    async def _in_time(self, requests: list[Coroutine[Any, Any, Int64]]) -> list[Int64]:
        answers = [asyncio.create_task(request) for request in requests]
        timer = asyncio.create_task(self._clock.sleep_until(self._clock.now_ns() + self._timeout_ns))
        waiting: set[asyncio.Task[Any]] = {*answers, timer}
        try:
            while len(waiting) > 1 and timer in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # the first failure ends them all
            if timer not in waiting:
                raise Hung(f"the engine did not answer a lone request within {self._timeout_ns / 1e9:g} s")
            return [answer.result() for answer in answers]
        finally:
            for task in (*answers, timer):
                task.cancel()
            await asyncio.gather(*answers, timer, return_exceptions=True)
