"""One plan played by several processes, as one run: for rates that are too much for one of them."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bench.dispatch import PROGRESS_PERIOD_NS, STEP_LOG_PERIOD_NS
from bench.recorder import Progress
from bench.run import Run
from bench.run_meta import run_meta
from bench.shards import ShardRecorder, to_share_out, worker_shares
from bench.store import load_run
from bench.worker_link import WorkerDied, WorkerLink
from engine_adapter import errors as engine_errors
from engine_adapter.clock import WallClock
from engine_adapter.http.target import HttpTarget
from engine_adapter.seam import EngineInfo
from engine_adapter.step_log import StepLog
from workloads import EvidenceError, Plan, StallfreeError
from workloads import errors as user_errors

READY_SECONDS = 300.0
"""All workers build their prompts and open their connections within this."""
SILENCE_SECONDS = 120.0
"""A worker shows a sign of life every second, but not while it takes apart the answers at the end."""
STOP_SECONDS = 30.0
"""Workers that are stopped hand over what they have within this."""
START_LEAD_NS = 300_000_000
"""From the last `ready` to the start of the schedule: `go` must have reached every worker by then."""


async def play_sharded(
    plan: Plan, target: HttpTarget, info: EngineInfo, *, workers: int, salt: str,
    max_concurrency: int | None = None, request_timeout_s: float = 120.0,
    dispatch_for_s: float | None = None, recorder: ShardRecorder | None = None,
    on_progress: Callable[[Progress], None] | None = None, meta: Mapping[str, Any] | None = None,
    before_start: Callable[[], Awaitable[None]] | None = None,
    step_log: Callable[[], StepLog] | None = None,
) -> Run:
    """What `bench.play` does for `plan` on the server `target`, by up to `workers` processes.

    `info` is what an engine of this target showed at its start. Every worker connects, builds the
    prompts of its rows (those that one process would send) and says ready; then `before_start` is
    awaited, and all start on one schedule. Each has its part of `max_concurrency`, whose places
    stay empty once its own requests are sent. `step_log` is read once a second, where there is one.

    A worker that dies ends the run, which is invalid and says which one and why; EngineError or
    EvidenceError when one cannot begin at all. On cancellation the workers stop and hand over: pass
    a `recorder` and call its `run(cut_short=...)`. No process is left in any case.
    """
    recorder = recorder or ShardRecorder(plan)
    recorder.meta = run_meta(plan, info, salt, {"max_concurrency": max_concurrency, **(meta or {})})
    recorder.shares = worker_shares(to_share_out(plan), workers, max_concurrency)
    with tempfile.TemporaryDirectory(prefix="stallfree-workers-") as directory:
        plan_path = Path(directory) / "plan"
        plan_path.write_bytes(plan.to_bytes())
        job = {"plan": str(plan_path), "target": target.as_secret_dict(), "vocab_size": info.vocab_size,
               "salt": salt, "request_timeout_s": request_timeout_s, "dispatch_for_s": dispatch_for_s}
        playing = _Playing(recorder, Path(directory), target.secrets(), on_progress)
        try:
            await playing.get_ready(job)
            if before_start is not None:
                await before_start()
            await playing.through(step_log)
        finally:
            await playing.end()
    return recorder.run()


class _Playing:
    """The workers of one run, and a task for each that listens to it."""

    def __init__(self, recorder: ShardRecorder, directory: Path, secrets: list[str],
                 on_progress: Callable[[Progress], None] | None) -> None:
        self._recorder = recorder
        self._directory = directory
        self._on_progress = on_progress
        self._clock = WallClock()
        self._links = [WorkerLink(directory / f"worker-{number}.log", secrets=secrets)
                       for number in range(len(recorder.shares))]
        self._listeners: list[asyncio.Task[None]] = []
        self._progress: dict[int, Progress] = {}
        self._next_progress_ns = 0

    async def get_ready(self, job: Mapping[str, Any]) -> None:
        """Start all of them and wait until the last is ready."""
        for number, share in enumerate(self._recorder.shares):
            await self._links[number].start(
                {**job, **asdict(share), "directory": str(self._handed_over(number))})
        try:
            async with asyncio.timeout(READY_SECONDS):
                for number in range(len(self._links)):
                    await self._until_ready(number)
        except TimeoutError:
            raise EvidenceError(f"the workers were not ready within {READY_SECONDS:g} s: plan fewer or "
                                f"shorter requests, or give the client more CPU") from None

    async def through(self, step_log: Callable[[], StepLog] | None) -> None:
        """Until every worker has handed over; once one fails, the others are stopped."""
        self._recorder.start_ns = self._clock.now_ns() + START_LEAD_NS
        for link in self._links:
            link.order(op="go", start_ns=self._recorder.start_ns)
        self._listeners = [asyncio.create_task(self._listen(number)) for number in range(len(self._links))]
        async with self._draining(step_log):
            await asyncio.wait(self._listeners)
        for listener in self._listeners:
            listener.result()   # raises what is a defect
        self._report(always=True)

    async def end(self) -> None:
        """Whoever still plays hands over, within a bounded time; then no process is left."""
        try:
            if any(not listener.done() for listener in self._listeners):
                self._stop("the run was stopped")
                await asyncio.wait(self._listeners, timeout=STOP_SECONDS)
        finally:
            for listener in self._listeners:
                listener.cancel()
            await asyncio.gather(*self._listeners, *(link.end() for link in self._links),
                                 return_exceptions=True)

    async def _until_ready(self, number: int) -> None:
        name = self._name(number)
        try:
            while (reply := await self._links[number].reply(READY_SECONDS))["op"] != "ready":
                if reply["op"] == "failed":
                    raise _error_named(reply["kind"])(f"{name}: {reply['message']}")
        except WorkerDied as why:
            raise EvidenceError(f"{name} ended before the run began: {why}") from None

    async def _listen(self, number: int) -> None:
        try:
            while (reply := await self._links[number].reply(SILENCE_SECONDS))["op"] != "done":
                if reply.pop("op") == "progress":
                    self._progress[number] = Progress(**reply)
                    self._report()
        except WorkerDied as why:
            self._recorder.failure = self._recorder.failure or f"{self._name(number)} died: {why}"
            self._stop(self._recorder.failure)
            return
        part = await asyncio.to_thread(load_run, self._handed_over(number))
        self._recorder.parts[number] = part
        if part.engine_failure is not None:
            self._stop(str(part.engine_failure))

    def _stop(self, why: str) -> None:
        for link in self._links:
            link.order(op="stop", why=why)

    def _report(self, *, always: bool = False) -> None:
        now_ns = self._clock.now_ns()
        if self._on_progress is not None and (always or now_ns >= self._next_progress_ns):
            self._next_progress_ns = now_ns + PROGRESS_PERIOD_NS
            sums = {field.name: sum(getattr(progress, field.name) for progress in self._progress.values())
                    for field in fields(Progress)}
            self._on_progress(Progress(**{**sums, "planned": len(self._recorder.plan),
                                          "elapsed_ns": now_ns - self._recorder.start_ns}))

    @contextlib.asynccontextmanager
    async def _draining(self, step_log: Callable[[], StepLog] | None) -> AsyncIterator[None]:
        if step_log is None:
            yield
            return
        step_log()   # forget the steps before this run
        task = asyncio.create_task(self._drain(step_log))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._recorder.add_steps(step_log())

    async def _drain(self, step_log: Callable[[], StepLog]) -> None:
        while True:
            await asyncio.sleep(STEP_LOG_PERIOD_NS / 1e9)
            self._recorder.add_steps(step_log())

    def _name(self, number: int) -> str:
        return f"worker {number + 1} of {len(self._links)}"

    def _handed_over(self, number: int) -> Path:
        return self._directory / f"worker-{number}"


def _error_named(kind: str) -> Any:
    """The class of a worker's error, which its own process has raised under that name."""
    return getattr(engine_errors, kind, None) or getattr(user_errors, kind, StallfreeError)
