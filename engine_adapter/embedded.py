"""A real vLLM engine in processes of our own: AsyncLLM with chunked prefill and our scheduler plug-in."""

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from engine_adapter.engine_facts import info_from_facts
from engine_adapter.errors import Crashed, EngineError, Hung, Rejected
from engine_adapter.host_process import HostProcess
from engine_adapter.host_protocol import TokenRecord, message, pack_generate
from engine_adapter.knobs import Knobs
from engine_adapter.live_knobs import PROBE_NUMBER, LiveKnobs, probe_prompt
from engine_adapter.seam import Applied, EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.start_failure import not_ready, start_failure
from engine_adapter.step_log import StepLog
from engine_adapter.vllm_launch import VllmLaunch
from workloads.errors import UsageError

T = TypeVar("T")

_ANSWER_DEADLINE_S = 60.0


class EmbeddedVllm:
    """Speaks the Engine seam; see there. One instance is one start.

    `log_path` keeps the engine's own log; without it the log goes with the engine.
    `start_deadline_s` bounds loading and warm-up.
    """

    def __init__(self, launch: VllmLaunch, *, log_path: Path | None = None,
                 start_deadline_s: float = 900.0) -> None:
        self._launch = launch
        self._log_path = log_path
        self._start_deadline_s = start_deadline_s
        self._host: HostProcess | None = None
        self._live: LiveKnobs | None = None
        self._streams: dict[int, asyncio.Queue[TokenRecord | EngineError]] = {}
        self._answers: dict[int, list[int]] = {}
        self._ready: asyncio.Future[dict[str, Any]] | None = None
        self._reset: asyncio.Future[bool] | None = None
        self._dead: EngineError | None = Crashed("the engine has not been started")
        self._info: EngineInfo | None = None
        self._probes = 0
        self._stopped = False

    async def start(self) -> EngineInfo:
        if importlib.util.find_spec("vllm") is None:
            raise UsageError("the embedded engine needs vLLM, which is not installed here: run `make setup`, "
                             "or pip install 'stallfree[cpu]' (with an NVIDIA GPU: 'stallfree[cuda]')")
        began = time.monotonic()
        self._ready = asyncio.get_running_loop().create_future()
        try:
            self._host = HostProcess(self._launch, self._log_path, self._on_tokens, self._on_message,
                                     self._on_end)
            await self._host.spawn()
            facts = await self._wait_until_ready()
            self._dead = None
            self._live = LiveKnobs(self._host.block, self._probe)
            started = Knobs.from_dict(facts["knobs"])
            note = await self._refusing_after_a_hang(self._live.why_not(started, facts["max_model_len"]))
            self._info = info_from_facts(
                facts, name="vllm", model=self._launch.model, live_knobs_note=note,
                knobs=started if note else self._host.block.effective(),
                start_seconds=time.monotonic() - began,
            )
        except BaseException:
            await self._end(in_order=False)
            raise
        return self._info

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        if self._dead is not None:
            raise self._dead
        if not len(request.prompt_token_ids):
            raise Rejected("the prompt is empty")
        if request.number in self._streams:
            raise Rejected(f"request number {request.number} is in flight already")
        assert self._host is not None
        queue: asyncio.Queue[TokenRecord | EngineError] = asyncio.Queue()
        self._streams[request.number] = queue
        ended = False
        self._host.send(pack_generate(request.number, list(request.prompt_token_ids), request.output_len,
                                      wants_token_ids=request.wants_token_ids))
        try:
            while not ended:
                record = await queue.get()
                ended = isinstance(record, EngineError) or record.finish_reason is not None
                if isinstance(record, EngineError):
                    raise record
                yield TokenEvent(record.read_ns, record.num_tokens, record.finish_reason,
                                 self._answers.pop(request.number, ()) if ended else ())
        finally:
            del self._streams[request.number]
            self._answers.pop(request.number, None)
            if not ended:
                self._host.send(message(op="cancel", number=request.number))

    async def apply(self, knobs: Knobs) -> Applied:
        if self._dead is not None:
            raise self._dead
        assert self._info is not None
        assert self._live is not None
        return await self._refusing_after_a_hang(self._live.apply(knobs, self._info))

    def step_log(self) -> StepLog:
        return self._host.block.read_steps() if self._host is not None and not self._stopped else StepLog()

    def prefix_counts(self) -> tuple[int, int] | None:
        """Prompt tokens looked up in the prefix cache since the start, and found there, as vLLM counts them;
        None where it does not."""
        if self._host is None or self._stopped:
            return None
        return self._host.block.prefix_counts()

    async def reset_caches(self) -> None:
        if self._dead is not None:
            raise self._dead
        assert self._host is not None
        self._reset = asyncio.get_running_loop().create_future()
        self._host.send(message(op="reset"))
        try:
            if not await asyncio.wait_for(self._reset, _ANSWER_DEADLINE_S):
                raise Rejected("the prefix cache cannot be reset while requests are running")
        except TimeoutError:
            self._dead = Hung(f"the engine did not answer a cache reset within {_ANSWER_DEADLINE_S:.0f} s")
            raise self._dead from None

    async def stop(self) -> None:
        await self._end(in_order=self._dead is None)

    # What the host tells us.

    def _on_tokens(self, record: TokenRecord) -> None:
        if (queue := self._streams.get(record.number)) is not None:
            queue.put_nowait(record)

    def _on_message(self, fields: dict[str, Any]) -> None:
        match fields["op"]:
            case "ready":
                self._settle(self._ready, fields)
            case "failed":
                self._fail_start(f"{fields['kind']}: {fields['text']}")
            case "error" if (queue := self._streams.get(fields["number"])) is not None:
                crashed = fields["kind"] == "crashed"
                queue.put_nowait(Crashed(self._death()) if crashed else Rejected(fields["text"]))
            case "answer" if fields["number"] in self._streams:
                self._answers[fields["number"]] = fields["token_ids"]
            case "reset":
                self._settle(self._reset, fields["done"])
            case "dead":
                self._fail(Crashed(self._death()))

    def _on_end(self) -> None:
        self._fail_start("")
        self._fail(Crashed("the engine's process ended while it served"))

    @staticmethod
    def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
        if future is not None and not future.done():
            future.set_result(value)

    def _fail_start(self, text: str) -> None:
        if self._ready is not None and not self._ready.done():
            assert self._host is not None
            self._ready.set_exception(start_failure(self._host.log_text(), text))

    def _fail(self, error: EngineError) -> None:
        if self._dead is None:
            self._dead = error
        for queue in self._streams.values():
            queue.put_nowait(self._dead)
        if self._reset is not None and not self._reset.done():
            self._reset.set_exception(self._dead)

    def _death(self) -> str:
        log = f"; its log is {self._log_path}" if self._log_path is not None else ""
        return f"the engine died while it served{log}"

    # Start, knobs, stop.

    async def _wait_until_ready(self) -> dict[str, Any]:
        assert self._ready is not None
        try:
            return await asyncio.wait_for(self._ready, self._start_deadline_s)
        except TimeoutError:
            assert self._host is not None
            raise not_ready(self._host.log_text(), self._start_deadline_s) from None

    async def _probe(self, length: int) -> None:
        self._probes += 1
        request = GenerateRequest(PROBE_NUMBER + self._probes, probe_prompt(self._probes, length), 1)
        async for _ in self.generate(request):
            pass

    async def _refusing_after_a_hang(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except Hung as error:
            self._dead = error
            raise

    async def _end(self, *, in_order: bool) -> None:
        self._fail(Crashed("the engine has been stopped"))
        if self._dead is None:
            self._dead = Crashed("the engine has been stopped")
        if self._host is not None and not self._stopped:
            # Shielded: a second Ctrl-C must not leave half of the engine behind.
            await asyncio.shield(self._host.end(in_order=in_order))
            self._stopped = True
