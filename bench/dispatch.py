"""Plays a plan against an engine: open loop on an absolute schedule, or closed loop under a cap."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from bench.decoding import DecodeQueue
from bench.loop_health import LagTicker, quiet_gc
from bench.prompts import Prompts
from bench.recorder import Progress, RunRecorder
from bench.run import Int64, Outcome, Run
from bench.run_meta import run_meta
from bench.slots import Slots
from engine_adapter.answer import Answer, AnswersWhole, FailureKind
from engine_adapter.clock import Clock, VirtualClock
from engine_adapter.errors import Crashed, EngineError, Hung, Rejected
from engine_adapter.seam import Engine, EngineInfo, GenerateRequest
from workloads import Plan

LEAD_NS = 20_000_000
"""From the call to the start of the schedule: the first request must not be late already."""
STEP_LOG_PERIOD_NS = 1_000_000_000
PROGRESS_PERIOD_NS = 250_000_000
UNWIND_SECONDS = 10.0
"""Cancelled requests get this long to leave a dead engine; then they are left behind."""
READY_CONNECTIONS = 8
"""Opened before the first request, so that opening them is in nobody's time to first token."""
REFUSALS_OF_A_DEAD_SERVER = 3
"""Requests in a row that found no server, after which it is asked whether it is there at all."""
SHORTEST_WATCH_NS = 1_000_000
SILENCES_OF_A_HUNG_SERVER = 2
"""Request timeouts without a token from anybody, after which a server that only times out is left."""


async def play(
    plan: Plan, engine: Engine, info: EngineInfo, *, clock: Clock, salt: str,
    request_timeout_s: float = 120.0, recorder: RunRecorder | None = None,
    on_progress: Callable[[Progress], None] | None = None, meta: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None, dispatch_for_s: float | None = None,
    rows: Int64 | None = None, start: Callable[[], Awaitable[int]] | None = None,
) -> Run:
    """Send every request of `plan` at its time, whatever the engine does, and return what was measured.

    `info.knobs` must be the knobs in force. `salt` makes the prompts: another salt, other prompts.
    A request that brings no token for `request_timeout_s` is ended as hung. A failed request
    is a row, not an exception; only an engine that crashed or hung for good ends the run, which
    then says so in `engine_failure` and in its validity. `meta` is added to what the run knows
    about itself (see Run.meta).

    `max_concurrency` caps the requests in flight: whoever comes then waits for a place, and that
    wait counts from his intended time. With a plan of infinite rate this is a closed loop: a
    request is meant for the moment its place became free. Nothing is sent later than
    `dispatch_for_s` after the start; what is left then was not sent. `rows` plays only these rows
    of the plan (one worker's share); `start` is awaited when everything is ready and returns the
    start of the schedule on the clock.

    On cancellation every request is cancelled and awaited before CancelledError goes on; pass a
    `recorder` made for `plan` and call its `run(cut_short=...)` to keep what was measured by then.
    `on_progress` is called at most four times a second and must return at once.
    """
    recorder = recorder or RunRecorder(plan)
    recorder.meta = run_meta(plan, info, salt, {"max_concurrency": max_concurrency, **(meta or {})})
    playing = _Playing(plan, engine, info, clock, recorder, int(request_timeout_s * 1e9), on_progress,
                       max_concurrency=max_concurrency,
                       dispatch_for_ns=None if dispatch_for_s is None else int(dispatch_for_s * 1e9))
    chosen = (np.arange(len(plan)) if rows is None else rows).tolist()
    prompts = Prompts(plan, chosen, vocab_size=info.vocab_size, salt=salt)
    await playing.open_connections(len(chosen))
    with quiet_gc():
        await playing.through(prompts, start)
    failure = recorder.engine_failure
    return recorder.run(cut_short=str(failure) if failure else "")


class _Playing:
    """The tasks of one run: one dispatches, one watches, one task a request."""

    def __init__(
        self, plan: Plan, engine: Engine, info: EngineInfo, clock: Clock, recorder: RunRecorder,
        timeout_ns: int, on_progress: Callable[[Progress], None] | None, *,
        max_concurrency: int | None, dispatch_for_ns: int | None,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._whole = cast(AnswersWhole, engine) if hasattr(engine, "compose") else None
        self._clock = clock
        self._recorder = recorder
        self._timeout_ns = timeout_ns
        self._on_progress = on_progress
        self._max_concurrency = max_concurrency
        self._closed_loop = max_concurrency is not None and math.isinf(plan.rate_rps)
        self._dispatch_for_ns = dispatch_for_ns
        self._next_progress_ns = 0
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, Answer] = {}
        self._slots = Slots(None, free_since_ns=0)
        self._undecoded = DecodeQueue(recorder, self._report)
        self._hung: set[int] = set()
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    async def open_connections(self, requests: int) -> None:
        """As many as surely will be needed at once."""
        if self._whole is not None:
            cap = requests if self._max_concurrency is None else self._max_concurrency
            at_once = int((self._plan.intended_ns == self._plan.intended_ns[0]).sum())
            await self._whole.connect(min(cap, requests, max(at_once, READY_CONNECTIONS)))

    async def through(self, prompts: Prompts, start: Callable[[], Awaitable[int]] | None) -> None:
        """Play it all; whatever happens, no task is left and what the engine logged is kept."""
        ticker = LagTicker(self._clock)
        self._recorder.start_ns = self._clock.now_ns() + LEAD_NS if start is None else await start()
        self._engine.step_log()  # forget the steps before this run
        self._slots = Slots(self._max_concurrency, free_since_ns=self._recorder.start_ns)
        helpers = [self._spawn(self._dispatch(prompts)), self._spawn(self._watch())]
        if not isinstance(self._clock, VirtualClock):  # virtual time has no lag
            helpers += [self._spawn(ticker.tick_forever()), self._spawn(self._drain_steps())]
        if self._whole is not None:
            helpers.append(self._spawn(self._undecoded.work_forever()))
        began_ns, cpu_began_ns = self._clock.now_ns(), time.process_time_ns()
        try:
            await self._over.wait()
        finally:
            passed_ns, cpu_ns = self._clock.now_ns() - began_ns, time.process_time_ns() - cpu_began_ns
            await _cancelled([*helpers, *self._requests.values()])
            self._take_what_is_left()
            self._recorder.client = ticker.health()
            if not isinstance(self._clock, VirtualClock) and passed_ns:
                self._recorder.client = replace(self._recorder.client, cpu_share=cpu_ns / passed_ns)
            self._keep_steps()
        if self._error is not None:
            raise self._error
        await self._notice_a_dead_server()
        self._report(always=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_defect)
        return task

    def _note_defect(self, task: asyncio.Task[None]) -> None:
        # Engine errors became rows; what still comes out of a task is a defect, and must be seen.
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self._over.set()

    async def _dispatch(self, prompts: Prompts) -> None:
        start_ns = self._recorder.start_ns
        for row in prompts.rows:
            intended_ns = int(self._plan.intended_ns[row]) + start_ns
            # Before the wait, not after it: the request is ready when its time comes.
            request = GenerateRequest(row, prompts.take(row), int(self._plan.output_len[row]))
            answer = None if self._whole is None else self._whole.compose(request)
            if not self._closed_loop:
                await self._clock.sleep_until(intended_ns)
            free_ns = await self._slots.take()
            if self._closed_loop:
                intended_ns = free_ns
                await self._clock.sleep_until(start_ns)
            if self._is_too_late():
                break
            if self._max_concurrency is not None:
                self._recorder.due(row, intended_ns, max(intended_ns, free_ns))
            if answer is None:
                self._requests[row] = self._spawn(self._ask(row, request))
            else:
                answer.send()
                self._recorder.sent(row, answer.sent_ns)
                self._answers[row] = answer
                self._requests[row] = self._spawn(self._take(row, answer))
            self._report()
        while self._requests:
            await asyncio.wait(self._requests.values())
        self._over.set()

    def _is_too_late(self) -> bool:
        return (self._dispatch_for_ns is not None
                and self._clock.now_ns() > self._recorder.start_ns + self._dispatch_for_ns)

    async def _take(self, row: int, answer: Answer) -> None:
        """Wait for a whole answer; its place is free before anybody looks into it."""
        cut_short = True
        try:
            await answer.wait()
            cut_short = False
        finally:
            self._slots.free(answer.end_ns)
            self._recorder.over(row)
            del self._answers[row]
            self._requests.pop(row, None)
            self._undecoded.put(row, answer, cut_short=cut_short)

    def _take_what_is_left(self) -> None:
        for row, answer in self._answers.items():  # whose task was cancelled before it began to wait
            answer.give_up(FailureKind.TRUNCATED, "it was cut short by this client")
            self._undecoded.put(row, answer, cut_short=True)
        self._answers.clear()
        self._undecoded.finish()

    async def _notice_a_dead_server(self) -> None:
        if self._whole is not None and self._recorder.failed and self._recorder.engine_failure is None:
            death = await self._whole.death()
            if death is not None:
                self._engine_failed(death)

    async def _ask(self, row: int, request: GenerateRequest) -> None:
        self._recorder.sent(row, self._clock.now_ns())
        outcome = Outcome.TRUNCATED
        ended_ns = None
        try:
            async for event in self._engine.generate(request):
                if event.num_tokens:
                    self._recorder.read(row, event.read_ns, event.num_tokens)
                if event.finish_reason is not None:
                    outcome = Outcome.OK if event.finish_reason in ("length", "stop") else Outcome.ERROR
                    ended_ns = event.read_ns
        except Rejected:
            outcome = Outcome.REJECTED
        except (Crashed, Hung) as error:
            outcome = Outcome.CRASHED if isinstance(error, Crashed) else Outcome.HUNG
            self._engine_failed(error)
        except EngineError:
            outcome = Outcome.ERROR
        except asyncio.CancelledError:
            outcome = Outcome.HUNG if row in self._hung else Outcome.CUT_SHORT
            raise
        finally:
            ended_ns = ended_ns or self._clock.now_ns()
            self._recorder.ended(row, ended_ns, outcome)
            self._slots.free(ended_ns)
            self._requests.pop(row, None)
            self._report()

    async def _watch(self) -> None:
        """End requests that bring nothing; when none brings anything, the engine itself is hung."""
        patience_ns = self._timeout_ns * (1 if self._whole is None else SILENCES_OF_A_HUNG_SERVER)
        while True:
            now_ns = self._clock.now_ns()
            signs = self._signs_of_life()
            silent = [row for row, sign_ns in signs.items() if now_ns - sign_ns >= self._timeout_ns]
            # New arrivals are no sign of life: only tokens are.
            newest_ns = max(self._recorder.last_read_ns, self._recorder.start_ns if self._whole else 0)
            if silent and now_ns - newest_ns >= patience_ns:
                self._engine_failed(Hung(
                    f"the engine gave no token for {patience_ns / 1e9:g} s to any of the {len(signs)} "
                    f"requests in flight; restart it, or allow more with a longer request timeout"
                ))
            for row in silent:
                self._hung.add(row)
                if row in self._answers:
                    self._answers[row].give_up(FailureKind.TIMEOUT_READ,
                                               f"no token came for {self._timeout_ns / 1e9:g} s")
                else:
                    self._requests[row].cancel()
                del signs[row]
            if self._recorder.refused_in_a_row >= REFUSALS_OF_A_DEAD_SERVER:
                await self._notice_a_dead_server()
            due_ns = min(signs.values(), default=now_ns) + self._timeout_ns
            # Not at each possible deadline: with many requests that would be a wake-up a token.
            await self._clock.sleep_until(max(due_ns, now_ns + self._timeout_ns // 50 + SHORTEST_WATCH_NS))

    def _signs_of_life(self) -> dict[int, int]:
        """Of each request in flight that may still go on, the time of its last token, or of its start."""
        if self._whole is None:
            return {row: ns for row, ns in self._recorder.last_sign_ns.items() if row not in self._hung}
        signs = {row: answer.last_sign_ns() for row, answer in self._answers.items()}
        self._recorder.last_read_ns = max(
            [self._recorder.last_read_ns,
             *(ns for row, ns in signs.items() if ns > self._answers[row].sent_ns)])
        return signs

    async def _drain_steps(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now_ns() + STEP_LOG_PERIOD_NS)
            self._keep_steps()

    def _keep_steps(self) -> None:
        self._recorder.add_steps(self._engine.step_log())

    def _engine_failed(self, error: EngineError) -> None:
        self._recorder.engine_failure = self._recorder.engine_failure or error
        self._over.set()

    def _report(self, *, always: bool = False) -> None:
        now_ns = self._clock.now_ns()
        if self._on_progress is not None and (always or now_ns >= self._next_progress_ns):
            self._next_progress_ns = now_ns + PROGRESS_PERIOD_NS
            self._on_progress(self._recorder.progress(now_ns))


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=UNWIND_SECONDS)
