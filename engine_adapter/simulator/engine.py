"""A simulated engine behind the seam: vLLM's decisions, one step at a time, on any clock.

Its times are those of `play`, which answers a whole load at once; see `simulate`. What is decided at a
moment of simulated time is decided a nanosecond later on the clock, when everybody who wakes at that
moment has had his turn: the request that is sent when a step ends can be in the next one.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine_adapter.clock import Clock
from engine_adapter.errors import Crashed, EngineError, NeedsRestart, Rejected
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.seam import Applied, EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.simulator.info import VOCAB_SIZE, fingerprint_of, knobs_of, simulated_info
from engine_adapter.simulator.live_request import LiveRequest, made_up_answer
from engine_adapter.simulator.load import Played, SimulatedLoad
from engine_adapter.simulator.prefix_keys import PrefixKeys
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.simulator.step_times import StepTimes
from engine_adapter.step_log import StepLog

if TYPE_CHECKING:
    from engine_adapter.simulator.scheduler import Scheduler, Step

_FAR_BEHIND_NS = 50_000_000
"""Later than this behind a wall clock the simulation no longer tries to catch up."""

_AT_ONCE = 4096
"""Requests of one nanosecond that are told apart."""


class SimulatedEngine:
    """Serves as an engine with `settings` would whose steps take what `cost` says.

    `limits` are the ceilings of live knobs, by default the settings; `default_knobs` what it would choose
    by itself. `draft_acceptance` and `seed` as in SimulatedLoad. UsageError at `start` for settings that
    are not simulated.
    """

    def __init__(
        self, clock: Clock, settings: SchedulerSettings, cost: StepCost, *, limits: KnobLimits | None = None,
        default_knobs: Knobs | None = None, model: str = "", vocab_size: int = VOCAB_SIZE,
        fingerprint: Mapping[str, Any] | None = None, draft_acceptance: float = 0.0, seed: int = 0,
    ) -> None:
        self._clock, self._settings, self._cost = clock, settings, cost
        self._limits = limits or KnobLimits(settings.max_batched_tokens, settings.max_seqs,
                                            settings.max_model_len)
        self._default_knobs, self._model, self._vocab_size = default_knobs, model, vocab_size
        self._fingerprint = dict(fingerprint or fingerprint_of(settings, cost))
        self._draft_acceptance, self._seed = draft_acceptance, seed
        self._scheduler: Scheduler | None = None
        self._dead: EngineError | None = Crashed("the engine has not been started")
        self._tasks: list[asyncio.Task[None]] = []
        self._times = StepTimes(settings, cost, 0)
        self._keys = PrefixKeys(settings.block_size)
        self._order = itertools.count()
        self._arriving: list[LiveRequest] = []
        """A heap of those that the scheduler does not see yet."""
        self._live: dict[int, LiveRequest] = {}
        """Those in the scheduler, by row."""
        self._numbers: list[int] = []
        """Of the requests of all rows."""
        self._in_flight: deque[Step] = deque()
        """Steps that were decided, empty ones too."""
        self._outbox: deque[tuple[int, list[tuple[LiveRequest, int, bool]]]] = deque()
        """Tokens on their way to their readers, and when they are read."""
        self._sent, self._posted = asyncio.Event(), asyncio.Event()

    async def start(self) -> EngineInfo:
        from engine_adapter.simulator.scheduler import Scheduler  # only now, as it loads the compiler

        self._scheduler = Scheduler(self._settings, draft_acceptance=self._draft_acceptance, seed=self._seed)
        self._times = StepTimes(self._settings, self._cost, self._clock.now_ns())
        self._dead = None
        self._tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._deliver())]
        for task in self._tasks:
            task.add_done_callback(self._note_defect)
        return simulated_info(
            self._settings, self._cost, fingerprint=self._fingerprint, model=self._model, limits=self._limits,
            default_knobs=self._default_knobs, vocab_size=self._vocab_size)

    def simulate(self, load: SimulatedLoad, *, max_concurrency: int | None = None) -> Played:
        """What `load` would get from this engine with the knobs in force and an empty cache, at once and
        without the clock. Leaves the engine as it is."""
        from engine_adapter.simulator.quick_play import quick_play

        drafts = replace(load, draft_acceptance=self._draft_acceptance, seed=self._seed)
        return quick_play(drafts, self._settings, self._cost, max_concurrency=max_concurrency)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        live = self._admit(request)
        try:
            while True:
                event = await live.events.get()
                if isinstance(event, EngineError):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            live.left = True
            if live.row is not None and self._live.pop(live.row, None) is not None:
                self._started.abort(live.row)

    async def apply(self, knobs: Knobs) -> Applied:
        if self._dead is not None:
            raise self._dead
        if (why := self._limits.refusal(knobs)) is not None:
            raise NeedsRestart(why)
        settings = replace(
            self._settings, token_budget=knobs.token_budget, input_budget=self._limits.token_budget,
            max_seqs=knobs.max_seqs, long_prefill_token_threshold=knobs.long_prefill_token_threshold,
            adaptive_long_prefill=knobs.adaptive_long_prefill, priority=knobs.policy == "priority")
        self._started.apply(settings)
        self._settings = settings
        return Applied(knobs_of(settings))

    def step_log(self) -> StepLog:
        return self._times.taken_log()

    async def reset_caches(self) -> None:
        if self._dead is not None:
            raise self._dead
        self._started.reset_prefix_cache()
        self._keys.forget()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._end(Crashed("the engine has been stopped"))

    def _end(self, error: EngineError) -> None:
        self._dead = error
        waiting = [*self._live.values(), *self._arriving,
                   *(live for _, tokens in self._outbox for live, *_ in tokens)]
        for live in waiting:
            live.events.put_nowait(error)
        self._live.clear()
        self._arriving.clear()
        self._outbox.clear()

    def _note_defect(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(Crashed(f"the simulated engine failed: {error!r}"))

    @property
    def _started(self) -> "Scheduler":
        assert self._scheduler is not None, "asked for only after the start"
        return self._scheduler

    def _admit(self, request: GenerateRequest) -> LiveRequest:
        from engine_adapter.simulator.state_arrays import rejected

        if self._dead is not None:
            raise self._dead
        if not len(request.prompt_token_ids):
            raise Rejected("the prompt is empty")
        if reason := rejected(self._settings, len(request.prompt_token_ids), request.output_len):
            raise reason
        sent_ns = self._clock.now_ns()
        visible_ns = self._times.visible_ns(sent_ns, len(request.prompt_token_ids))
        live = LiveRequest(
            visible_ns, next(self._order), sent_ns, request,
            made_up_answer(request, seed=self._seed, vocab_size=self._vocab_size))
        heapq.heappush(self._arriving, live)
        self._sent.set()
        return live

    async def _serve(self) -> None:
        """`EngineCore.step_with_batch_queue`, over and over; kernel_loop has the same in one piece."""
        from engine_adapter.simulator.state_arrays import most_in_flight

        scheduler, times, queue = self._started, self._times, self._in_flight
        most = most_in_flight(self._settings)
        while True:
            await self._clock.sleep_until(times.now_ns + 1)
            if self._clock.now_ns() - times.now_ns > _FAR_BEHIND_NS:
                times.now_ns = self._clock.now_ns()
            self._take_arrivals()
            if scheduler.has_work:
                step = scheduler.schedule()
                times.note_preemptions(len(step.preempted))
                if len(step):
                    times.launch(step, self._number_of)
                elif not any(len(earlier) for earlier in queue):
                    queue.clear()
                    if len(step.preempted):
                        times.pause()
                    else:
                        await self._wait()
                    continue
                queue.append(step)
                if len(queue) < most:
                    continue
            elif not queue:
                await self._wait()
                continue
            if len(oldest := queue.popleft()):
                await self._finish(oldest)

    def _number_of(self, row: int) -> int:
        return self._numbers[row]

    def _take_arrivals(self) -> None:
        while self._arriving and self._arriving[0].visible_ns <= self._times.now_ns:
            live = heapq.heappop(self._arriving)
            if live.left:
                continue
            prompt = live.request.prompt_token_ids
            keys = self._keys.of([*prompt, *live.answer]) if self._settings.prefix_caching else ()
            # vLLM's priority policy lets requests that came at the very same time push one another out for
            # ever; no two reach a real engine so, and none does here.
            came = live.sent_ns * _AT_ONCE + len(self._numbers) % _AT_ONCE
            live.row = self._started.add(len(prompt), live.request.output_len, arrival_ns=came,
                                         prefix_keys=keys)
            self._numbers.append(live.request.number)
            self._live[live.row] = live

    async def _wait(self) -> None:
        """Until the scheduler sees another request."""
        while True:
            self._sent.clear()
            while self._arriving and self._arriving[0].left:
                heapq.heappop(self._arriving)
            if not self._arriving:
                await self._sent.wait()
            elif self._arriving[0].visible_ns > self._clock.now_ns():
                # A shorter prompt that is sent later may be seen before.
                await _first_of(self._clock.sleep_until(self._arriving[0].visible_ns), self._sent.wait())
            else:
                self._times.now_ns = max(self._times.now_ns, self._arriving[0].visible_ns)
                return

    async def _finish(self, step: "Step") -> None:
        """Let the oldest step end, and hand out its tokens."""
        read_ns = self._times.end_oldest()
        await self._clock.sleep_until(self._times.now_ns)
        outputs = self._started.update(step)
        tokens = [
            (self._live.pop(row) if finished else self._live[row], new, finished)
            for row, new, finished in zip(
                outputs.rows.tolist(), outputs.new_tokens.tolist(), outputs.finished.tolist(), strict=True)
            if row in self._live]
        if read_ns > self._times.now_ns:
            self._outbox.append((read_ns, tokens))
            self._posted.set()
        else:
            self._hand_out(tokens)

    async def _deliver(self) -> None:
        """What takes time from the end of its step to its reader."""
        while True:
            self._posted.clear()
            while self._outbox:
                await self._clock.sleep_until(self._outbox[0][0])
                self._hand_out(self._outbox.popleft()[1])
            await self._posted.wait()

    def _hand_out(self, tokens: list[tuple[LiveRequest, int, bool]]) -> None:
        now_ns = self._clock.now_ns()
        for live, new, finished in tokens:
            live.events.put_nowait(TokenEvent(now_ns, new, "length", live.answer) if finished
                                   else TokenEvent(now_ns, new))


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
