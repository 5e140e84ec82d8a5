"""Plays a plan against an engine: open loop on an absolute schedule, or closed loop under a cap."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from bench.agenda import Agenda
from bench.decoding import DecodeQueue
from bench.hang_watch import HangWatch
from bench.loop_health import LagTicker, quiet_gc
from bench.prompts import Prompts
from bench.recorder import Progress, RunRecorder
from bench.run import Int64, Outcome, Run
from bench.run_meta import run_meta
from bench.slots import Slots
from engine_adapter.answer import Answer, AnswersWhole, DecodedAnswer, FailureKind
from engine_adapter.clock import Clock, VirtualClock
from engine_adapter.errors import Crashed, EngineError, Hung, Rejected
from engine_adapter.seam import Engine, EngineInfo, GenerateRequest
from workloads import Plan

LEAD_NS = 20_000_000
"""From the call to the start of the schedule: the first request must not be late already."""
STEP_LOG_PERIOD_NS = 1_000_000_000
PROGRESS_PERIOD_NS = 250_000_000
_FOREVER_NS = 1 << 61
UNWIND_SECONDS = 10.0
"""Cancelled requests get this long to leave a dead engine; then they are left behind."""
READY_CONNECTIONS = 8
"""Opened before the first request, so that opening them is in nobody's time to first token."""


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
    request is meant for the moment its place became free.

    A later turn of a conversation is sent when the turn before has ended and its reader has thought
    (`Plan.think_ns`), or at its intended time if that is later; that moment counts as the intended one.
    It repeats the tokens that were really answered, where the engine tells them. When the turn before
    failed it is not sent, and fails with it. Nothing is sent later than
    `dispatch_for_s` after the start; what is left then was not sent. `rows` plays only these rows
    of the plan (one worker's share); `start` is awaited when everything is ready and returns the
    start of the schedule on the clock.

    On cancellation every request is cancelled and awaited before CancelledError goes on; pass a
    `recorder` made for `plan` and call its `run(cut_short=...)` to keep what was measured by then.
    `on_progress` is called at most four times a second and must return at once.
    """
    recorder = recorder or RunRecorder(plan)
    recorder.meta = run_meta(plan, info, salt, {"max_concurrency": max_concurrency, **(meta or {})})
    chosen = (np.arange(len(plan)) if rows is None else rows).tolist()
    prompts = Prompts(plan, chosen, vocab_size=info.vocab_size, salt=salt)
    playing = _Playing(plan, engine, info, clock, recorder, int(request_timeout_s * 1e9), on_progress,
                       prompts=prompts, max_concurrency=max_concurrency,
                       dispatch_for_ns=_FOREVER_NS if dispatch_for_s is None else int(dispatch_for_s * 1e9))
    await playing.open_connections(len(chosen))
    with quiet_gc():
        await playing.through(start)
    failure = recorder.engine_failure
    return recorder.run(cut_short=str(failure) if failure else "")


class _Playing:
    """The tasks of one run: one dispatches, one watches, one task a request."""

    def __init__(
        self, plan: Plan, engine: Engine, info: EngineInfo, clock: Clock, recorder: RunRecorder,
        timeout_ns: int, on_progress: Callable[[Progress], None] | None, *,
        prompts: Prompts, max_concurrency: int | None, dispatch_for_ns: int,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._whole = cast(AnswersWhole, engine) if hasattr(engine, "compose") else None
        self._clock = clock
        self._recorder = recorder
        self._on_progress = on_progress
        self._prompts = prompts
        self._agenda = Agenda(plan, prompts.rows)
        # The answer's tokens mean nothing in a prompt of words.
        self._tells_tokens = info.fingerprint.get("prompts") != "text"
        self._composed: dict[int, tuple[GenerateRequest, Answer | None]] = {}
        self._max_concurrency = max_concurrency
        self._closed_loop = max_concurrency is not None and math.isinf(plan.rate_rps)
        self._dispatch_for_ns = dispatch_for_ns
        self._next_progress_ns = 0
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, Answer] = {}
        self._slots = Slots(None, free_since_ns=0)
        self._undecoded = DecodeQueue(recorder, self._decoded)
        self._watch = HangWatch(clock, recorder, timeout_ns, self._answers if self._whole else None,
                                self._requests, self._engine_failed, self._notice_a_dead_server)
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    async def open_connections(self, requests: int) -> None:
        """As many as surely will be needed at once."""
        if self._whole is not None:
            cap = requests if self._max_concurrency is None else self._max_concurrency
            at_once = int((self._plan.intended_ns == self._plan.intended_ns[0]).sum())
            await self._whole.connect(min(cap, requests, max(at_once, READY_CONNECTIONS)))

    async def through(self, start: Callable[[], Awaitable[int]] | None) -> None:
        """Play it all; whatever happens, no task is left and what the engine logged is kept."""
        ticker = LagTicker(self._clock)
        self._recorder.start_ns = self._clock.now_ns() + LEAD_NS if start is None else await start()
        self._agenda.start_ns = self._recorder.start_ns
        self._engine.step_log()  # forget the steps before this run
        self._slots = Slots(self._max_concurrency, free_since_ns=self._recorder.start_ns)
        helpers = [self._spawn(self._dispatch()), self._spawn(self._watch.watch_forever())]
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
            if (history := self._prompts.history) is not None:
                self._recorder.meta["history"] = history
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

    async def _dispatch(self) -> None:
        agenda, last_ns = self._agenda, self._recorder.start_ns + self._dispatch_for_ns
        while (upcoming := await agenda.next()) is not None:
            due_ns, row = upcoming
            # Before the wait, not after it: the request is ready when its time comes.
            self._compose(row)
            if not await agenda.until(min(due_ns, last_ns + 1), self._clock):
                continue
            free_ns = await self._slots.take()
            if self._clock.now_ns() > last_ns:
                break
            due_ns, row = agenda.take()   # who waited for a place may have been overtaken by an earlier one
            self._send(row, due_ns, free_ns)
        agenda.close()
        while self._requests:
            await asyncio.wait(self._requests.values())
        self._over.set()

    def _compose(self, row: int) -> None:
        if row not in self._composed:
            request = GenerateRequest(
                row, self._prompts.take(row), int(self._plan.output_len[row]),
                wants_token_ids=self._tells_tokens and self._prompts.is_repeated(row))
            self._composed[row] = request, None if self._whole is None else self._whole.compose(request)

    def _send(self, row: int, due_ns: int, free_ns: int) -> None:
        self._compose(row)
        request, answer = self._composed.pop(row)
        if self._max_concurrency is not None or self._agenda.is_later_turn(row):
            intended_ns = max(due_ns, free_ns) if self._closed_loop else due_ns
            self._recorder.due(row, intended_ns, max(intended_ns, free_ns))
        if answer is None:
            self._requests[row] = self._spawn(self._ask(row, request))
        else:
            answer.send()
            self._recorder.sent(row, answer.sent_ns)
            self._answers[row] = answer
            self._requests[row] = self._spawn(self._take(row, answer))
        self._report()

    def _turn_over(self, row: int, end_ns: int, token_ids: Sequence[int]) -> None:
        """What the end of `row` means for the turns after it."""
        if self._agenda.after(row) is None:
            return
        outcome = self._recorder.outcome(row)
        if outcome is Outcome.OK:
            self._prompts.answered(row, token_ids if self._tells_tokens else ())
            self._agenda.over(row, end_ns)
        elif outcome is not Outcome.CUT_SHORT:
            self._prompts.forget(row)
            for never in self._agenda.failed(row):
                self._recorder.dropped(never)

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
            self._undecoded.put(row, answer, cut_short=cut_short, first=self._agenda.after(row) is not None)

    def _decoded(self, row: int, answer: Answer, decoded: DecodedAnswer) -> None:
        self._turn_over(row, answer.end_ns, decoded.token_ids or ())
        self._report()

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
        ended_ns: int | None = None
        token_ids: Sequence[int] = ()
        try:
            async for event in self._engine.generate(request):
                if event.num_tokens:
                    self._recorder.read(row, event.read_ns, event.num_tokens)
                if event.finish_reason is not None:
                    outcome = Outcome.OK if event.finish_reason in ("length", "stop") else Outcome.ERROR
                    ended_ns, token_ids = event.read_ns, event.token_ids
        except Rejected:
            outcome = Outcome.REJECTED
        except (Crashed, Hung) as error:
            outcome = Outcome.CRASHED if isinstance(error, Crashed) else Outcome.HUNG
            self._engine_failed(error)
        except EngineError:
            outcome = Outcome.ERROR
        except asyncio.CancelledError:
            outcome = Outcome.HUNG if row in self._watch.hung else Outcome.CUT_SHORT
            raise
        finally:
            ended_ns = ended_ns or self._clock.now_ns()
            self._recorder.ended(row, ended_ns, outcome)
            self._slots.free(ended_ns)
            self._requests.pop(row, None)
            self._turn_over(row, ended_ns, token_ids)
            self._report()

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
