"""A vLLM server with our scheduler plugged in: measured over HTTP, changed through its control block."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

from engine_adapter.clock import Clock
from engine_adapter.control_block import ControlBlock
from engine_adapter.engine_facts import facts_beside, info_from_facts, read_facts
from engine_adapter.errors import EngineError
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.live_knobs import PROBE_NUMBER, LiveKnobs, open_control_block, probe_prompt
from engine_adapter.seam import Applied, EngineInfo, GenerateRequest
from engine_adapter.servers.front import ServerFront
from engine_adapter.step_log import StepLog

_PUT_BACK_DEADLINE_S = 10.0


class LiveServer(ServerFront[HttpEngine]):
    """Speaks the Engine seam and AnswersWhole, for a server that `engine_adapter.vllm_server` runs.

    `control_block` is the file that it was started with. `stop` leaves the server running and, unless
    `restore` is off, puts back the knobs that were in force at `start`.
    """

    def __init__(self, target: HttpTarget, control_block: Path, *, clock: Clock | None = None,
                 restore: bool = True) -> None:
        super().__init__()
        self._restore = restore
        self._asked_target, self._path, self._clock = target, control_block, clock
        self._live: LiveKnobs | None = None
        self._info: EngineInfo | None = None
        self._probes = 0

    async def start(self) -> EngineInfo:
        """See the seam; UsageError where the file is no control block in use."""
        block = open_control_block(self._path)
        facts = read_facts(facts_beside(self._path))
        target = replace(self._asked_target, model=self._asked_target.model or facts["served_model"])
        self._behind = HttpEngine(target, clock=self._clock, vocab_size=facts["vocab_size"])
        self._live = LiveKnobs(block, self._probe)
        try:
            seen = await self._behind.start()
            started = block.effective()
            note = await self._live.why_not(started, facts["max_model_len"])
        except BaseException:
            await self.stop()
            raise
        info = info_from_facts(
            facts, name="vllm-server", model=seen.model, knobs=started, live_knobs_note=note,
            start_seconds=seen.start_seconds, token_count_source=seen.token_count_source,
        )
        self._info = replace(info, fingerprint=seen.fingerprint | info.fingerprint)
        return self._info

    @property
    def block(self) -> ControlBlock:
        """Through which the scheduler is spoken to."""
        assert self._live is not None
        return self._live.block

    async def apply(self, knobs: Knobs) -> Applied:
        self._served()
        assert self._live is not None
        assert self._info is not None
        return await self._live.apply(knobs, self._info)

    def step_log(self) -> StepLog:
        return StepLog() if self._behind is None else self.block.read_steps()

    async def stop(self) -> None:
        if self._behind is None:
            return
        try:
            if self._restore:
                await self._put_back()
        finally:
            http, self._behind = self._behind, None
            await http.stop()

    async def _put_back(self) -> None:
        if self._info is None or not self._info.live_knobs or self.block.effective() == self._info.knobs:
            return
        # A server that has gone, or hangs, has no settings to put back.
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(_PUT_BACK_DEADLINE_S):
                await self.apply(self._info.settings.knobs)

    async def _probe(self, length: int) -> None:
        self._probes += 1
        request = GenerateRequest(PROBE_NUMBER + self._probes, probe_prompt(self._probes, length), 1)
        async for _ in self.generate(request):
            pass
