"""Plays a plan against an engine: open loop, on an absolute schedule."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from bench.loop_health import LagTicker, quiet_gc
from bench.recorder import Progress, RunRecorder
from bench.run import Int32, Outcome, Run
from bench.run_meta import run_meta
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


async def play(
    plan: Plan, engine: Engine, info: EngineInfo, *, clock: Clock, salt: str,
    request_timeout_s: float = 120.0, recorder: RunRecorder | None = None,
    on_progress: Callable[[Progress], None] | None = None, meta: Mapping[str, Any] | None = None,
) -> Run:
    """Send every request of `plan` at its time, whatever the engine does, and return what was measured.

    `info.knobs` must be the knobs in force. `salt` makes the prompts: another salt, other prompts.
    A request that brings no token for `request_timeout_s` is cancelled as hung. A failed request
    is a row, not an exception; only an engine that crashed or hung for good ends the run, which
    then says so in `engine_failure` and in its validity. `meta` is added to what the run knows
    about itself (see Run.meta).

    On cancellation every request is cancelled and awaited before CancelledError goes on; pass a
    `recorder` made for `plan` and call its `run(cut_short=...)` to keep what was measured by then.
    `on_progress` is called at most four times a second and must return at once.
    """
    recorder = recorder or RunRecorder(plan)
    recorder.meta = run_meta(plan, info, salt, meta or {})
    playing = _Playing(plan, engine, info, clock, recorder, int(request_timeout_s * 1e9), on_progress)
    # Building a long prompt takes longer than an event loop may be busy, so all are built first.
    prompts = [np.array(plan.prompt_token_ids(row, vocab_size=info.vocab_size, salt=salt), dtype=np.int32)
               for row in range(len(plan))]
    with quiet_gc():
        await playing.through(prompts)
    failure = recorder.engine_failure
    return recorder.run(cut_short=str(failure) if failure else "")


class _Playing:
    """The tasks of one run: one dispatches, one watches, one task a request."""

    def __init__(
        self, plan: Plan, engine: Engine, info: EngineInfo, clock: Clock, recorder: RunRecorder,
        timeout_ns: int, on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._clock = clock
        self._recorder = recorder
        self._timeout_ns = timeout_ns
        self._on_progress = on_progress
        self._next_progress_ns = 0
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._hung: set[int] = set()
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    async def through(self, prompts: list[Int32]) -> None:
        """Play it all; whatever happens, no task is left and what the engine logged is kept."""
        ticker = LagTicker(self._clock)
        self._engine.step_log()  # forget the steps before this run
        self._recorder.start_ns = self._clock.now_ns() + LEAD_NS
        helpers = [self._spawn(self._dispatch(prompts)), self._spawn(self._watch())]
        if not isinstance(self._clock, VirtualClock):  # virtual time has no lag
            helpers += [self._spawn(ticker.tick_forever()), self._spawn(self._drain_steps())]
        try:
            await self._over.wait()
        finally:
            await _cancelled([*helpers, *self._requests.values()])
            self._recorder.client = ticker.health()
            self._keep_steps()
        if self._error is not None:
            raise self._error
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

    async def _dispatch(self, prompts: list[Int32]) -> None:
        for row, intended_ns in enumerate((self._plan.intended_ns + self._recorder.start_ns).tolist()):
            # Before the wait, not after it: the list is ready when its time comes.
            request = GenerateRequest(row, prompts[row].tolist(), int(self._plan.output_len[row]))
            await self._clock.sleep_until(intended_ns)
            self._requests[row] = self._spawn(self._ask(row, request))
            self._report()
        while self._requests:
            await asyncio.wait(self._requests.values())
        self._over.set()

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
            self._recorder.ended(row, ended_ns or self._clock.now_ns(), outcome)
            self._requests.pop(row, None)
            self._report()

    async def _watch(self) -> None:
        """Cancel requests that bring nothing; when none brings anything, the engine itself is hung."""
        while True:
            now_ns = self._clock.now_ns()
            signs = {row: ns for row, ns in self._recorder.last_sign_ns.items() if row not in self._hung}
            silent = [row for row, sign_ns in signs.items() if now_ns - sign_ns >= self._timeout_ns]
            # New arrivals are no sign of life: only tokens are.
            if silent and now_ns - self._recorder.last_read_ns >= self._timeout_ns:
                self._engine_failed(Hung(
                    f"the engine gave no token for {self._timeout_ns / 1e9:g} s to any of the {len(signs)} "
                    f"requests in flight; restart it, or allow more with a longer request timeout"
                ))
            for row in silent:
                self._hung.add(row)
                self._requests[row].cancel()
                del signs[row]
            due_ns = min(signs.values(), default=now_ns) + self._timeout_ns
            # Not at each possible deadline: with many requests that would be a wake-up a token.
            await self._clock.sleep_until(max(due_ns, now_ns + self._timeout_ns // 50 + 1))

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
