"""A fake engine that ships with the package: real scheduling rule, scripted cost, scripted faults.

Every test above the seam can run on it, with a VirtualClock in no time. It packs steps by
vLLM V1's rule (running requests in admission order, then waiting ones, each truncated by the
budget that is left), so that knobs and load move its latencies the way they move an engine's.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from engine_adapter.clock import Clock
from engine_adapter.errors import Crashed, EngineError, NeedsRestart, OutOfMemory, Rejected, StartFailed
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.seam import Applied, EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog

FaultKind = Literal["start_failed", "out_of_memory", "crash", "hang", "reject"]
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong: at start, when step `at_step` begins, or for request `request`."""

    kind: FaultKind
    at_step: int | None = None
    request: int | None = None


@dataclass(frozen=True, slots=True)
class LinearStep:
    """Nanoseconds of a step: a constant, plus a price a prefill token, a decode and a token pair
    of attention. The defaults resemble SmolLM2-135M on two CPU cores."""

    fixed_ns: int = 15_000_000
    prefill_token_ns: int = 600_000
    decode_ns: int = 800_000
    attention_ns: float = 50.0

    def __call__(self, prefill_tokens: int, decodes: int, attention_work: int) -> int:
        return int(self.fixed_ns + self.prefill_token_ns * prefill_tokens + self.decode_ns * decodes
                   + self.attention_ns * attention_work)


@dataclass(slots=True, eq=False)
class _Live:
    request: GenerateRequest
    events: asyncio.Queue[TokenEvent | EngineError]
    computed: int = 0
    generated: int = 0

    @property
    def needed(self) -> int:
        return len(self.request.prompt_token_ids) + self.generated - self.computed


@dataclass(slots=True)
class ScriptedEngine:
    """See the module. `step_cost(prefill_tokens, decodes, attention_work) -> ns`."""

    clock: Clock
    knobs: Knobs = field(default_factory=lambda: Knobs(token_budget=2048, max_seqs=128))
    limits: KnobLimits = field(default_factory=lambda: KnobLimits(2048, 128, 8192))
    step_cost: Callable[[int, int, int], int] = field(default_factory=LinearStep)
    faults: tuple[Fault, ...] = ()
    live_knobs: bool = True
    start_ns: int = 20_000_000_000
    vocab_size: int = 49_152
    name: str = "scripted"

    _running: list[_Live] = field(default_factory=list)
    _waiting: list[_Live] = field(default_factory=list)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.Task[None] | None = None
    _dead: EngineError | None = None
    _steps: list[tuple[int, ...]] = field(default_factory=list)
    _chunks: list[tuple[int, ...]] = field(default_factory=list)
    _step: int = 0

    async def start(self) -> EngineInfo:
        began = self.clock.now_ns()
        await self.clock.sleep_until(began + self.start_ns)
        for fault in self.faults:
            if fault.kind == "start_failed":
                raise StartFailed("the engine did not start: scripted")
            if fault.kind == "out_of_memory":
                raise OutOfMemory("no memory for the KV cache: scripted")
        self._loop = asyncio.create_task(self._serve())
        return EngineInfo(
            name=self.name, version="1", model="scripted-model", max_model_len=self.limits.max_model_len,
            vocab_size=self.vocab_size, knobs=self.knobs, default_knobs=self.knobs, limits=self.limits,
            num_kv_blocks=100_000, kv_block_size=_BLOCK, live_knobs=self.live_knobs,
            live_knobs_note="" if self.live_knobs else "this scripted engine keeps its knobs",
            start_seconds=(self.clock.now_ns() - began) / 1e9, fingerprint={"engine": "scripted 1"},
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        self._admit_or_raise(request)
        live = _Live(request, asyncio.Queue())
        self._waiting.append(live)
        self._work.set()
        try:
            while True:
                event = await live.events.get()
                if isinstance(event, EngineError):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            for queue in (self._running, self._waiting):
                if live in queue:
                    queue.remove(live)

    async def apply(self, knobs: Knobs) -> Applied:
        if self._dead is not None:
            raise self._dead
        if not self.live_knobs:
            raise NeedsRestart("this scripted engine keeps its knobs")
        if (why := self.limits.refusal(knobs)) is not None:
            raise NeedsRestart(why)
        self.knobs = knobs
        return Applied(knobs)

    def step_log(self) -> StepLog:
        steps = np.array(self._steps, dtype=np.int64).reshape(-1, len(STEP_COLUMNS))
        chunks = np.array(self._chunks, dtype=np.int64).reshape(-1, len(CHUNK_COLUMNS))
        self._steps, self._chunks = [], []
        return StepLog(
            steps={name: steps[:, i].copy() for i, name in enumerate(STEP_COLUMNS)},
            chunks={name: chunks[:, i].copy() for i, name in enumerate(CHUNK_COLUMNS)},
        )

    async def reset_caches(self) -> None:
        if self._dead is not None:
            raise self._dead

    async def stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None
        self._fail(Crashed("the engine has been stopped"))

    def _admit_or_raise(self, request: GenerateRequest) -> None:
        if self._dead is not None:
            raise self._dead
        if self._loop is None:
            raise Crashed("the engine has not been started")
        if not len(request.prompt_token_ids):
            raise Rejected("the prompt is empty")
        if len(request.prompt_token_ids) + request.output_len > self.limits.max_model_len:
            raise Rejected(f"{len(request.prompt_token_ids)} prompt and {request.output_len} output tokens "
                           f"exceed the model's {self.limits.max_model_len}")
        if any(f.kind == "reject" and f.request == request.number for f in self.faults):
            raise Rejected(f"request {request.number} is refused: scripted")

    def _fail(self, error: EngineError) -> None:
        self._dead = error
        for live in self._running + self._waiting:
            live.events.put_nowait(error)
        self._running, self._waiting = [], []

    async def _serve(self) -> None:
        while True:
            if not (self._running or self._waiting):
                self._work.clear()
                await self._work.wait()
            for fault in self.faults:
                if fault.at_step is not None and fault.at_step <= self._step:
                    if fault.kind == "crash":
                        self._fail(Crashed(f"the engine died at step {self._step}: scripted"))
                        return
                    if fault.kind == "hang":
                        await asyncio.Event().wait()
            await self._run_step(self._pack())

    def _pack(self) -> list[tuple[_Live, int]]:
        budget = self.knobs.token_budget
        cap = self._cap()
        batch: list[tuple[_Live, int]] = []
        for live in self._running:
            tokens = min(live.needed, budget, cap)
            if tokens > 0:
                batch.append((live, tokens))
                budget -= tokens
        while self._waiting and budget > 0 and len(self._running) < self.knobs.max_seqs:
            live = self._waiting.pop(0)
            tokens = min(live.needed, budget, cap)
            self._running.append(live)
            batch.append((live, tokens))
            budget -= tokens
        return batch

    def _cap(self) -> int:
        """vLLM's long-prefill rule: off for a request that is alone, floored by a fair share if adaptive."""
        present = len(self._running) + len(self._waiting)
        cap = self.knobs.long_prefill_token_threshold
        if cap == 0 or present <= 1:
            return self.limits.max_model_len
        return max(cap, self.knobs.token_budget // present) if self.knobs.adaptive_long_prefill else cap

    async def _run_step(self, batch: list[tuple[_Live, int]]) -> None:
        start = self.clock.now_ns()
        prefill = decodes = work = 0
        for live, tokens in batch:
            work += tokens * live.computed + tokens * tokens // 2
            if live.computed < len(live.request.prompt_token_ids):
                prefill += tokens
                self._chunks.append((self._step, live.request.number, tokens, live.computed))
            else:
                decodes += 1
            live.computed += tokens
        used = sum(math.ceil(live.computed / _BLOCK) for live in self._running)
        running, waiting = len(self._running), len(self._waiting)
        await self.clock.sleep_until(start + self.step_cost(prefill, decodes, work))
        end = self.clock.now_ns()
        for live, _ in batch:
            if live.needed == 0:
                live.generated += 1
                done = live.generated >= live.request.output_len
                live.events.put_nowait(TokenEvent(end, 1, "length" if done else None))
                if done and live in self._running:
                    self._running.remove(live)
        self._steps.append((self._step, start, end, prefill + decodes, prefill, decodes, work, used,
                            running, waiting, 0))
        self._step += 1
