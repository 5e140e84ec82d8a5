"""One worker: `python -m bench.worker_process` plays its share of a plan and hands over what it measured.

Its starter (bench.worker_link) speaks to it in lines of JSON. On standard input come the job, then
`go` with the start of the schedule, or `stop` with the reason; when it ends, the starter is gone,
and so is the worker. Out go `ready`, `progress`, an `alive` every second, and at last `done`, with
the run in the job's directory, or `failed`.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.dispatch import play
from bench.recorder import RunRecorder
from bench.run import Run
from bench.select import select_rows
from bench.shards import Share
from bench.store import save_run
from engine_adapter.clock import WallClock
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from workloads import Plan, StallfreeError

_LONGEST_LINE = 64 * 1024 * 1024   # a job holds the server's extra body, and that may be long
_ALIVE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Entry of the process; see the module."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Whatever else prints must not come between the lines that the starter reads.
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(_serve(lambda **reply: _write_all(replies, json.dumps(reply).encode() + b"\n")))


async def _serve(say: Callable[..., None]) -> None:
    orders = asyncio.StreamReader(limit=_LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await _Worker(json.loads(await orders.readline()), say).work(orders)


class _Worker:
    def __init__(self, job: dict[str, Any], say: Callable[..., None]) -> None:
        self._job, self._say = job, say
        self._plan = Plan.from_bytes(Path(job["plan"]).read_bytes())
        self._rows = Share(job["first_row"], job["every"], job["max_concurrency"]).rows(self._plan)
        self._recorder = RunRecorder(self._plan)
        self._start_ns: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._stopped = ""

    async def work(self, orders: asyncio.StreamReader) -> None:
        """Play, however it ends, and hand over."""
        playing = asyncio.create_task(self._play())
        helpers = [asyncio.create_task(self._follow(orders, playing)), asyncio.create_task(self._beat())]
        try:
            run = await playing
        except asyncio.CancelledError:
            run = self._recorder.run(cut_short=self._stopped)
        except StallfreeError as error:
            self._say(op="failed", kind=type(error).__name__, message=str(error))
            return
        finally:
            for helper in helpers:
                helper.cancel()
        save_run(select_rows(run, np.isin(run.index, self._rows)), self._job["directory"])
        self._say(op="done")

    async def _play(self) -> Run:
        job = self._job
        engine = HttpEngine(HttpTarget.from_secret_dict(job["target"]), vocab_size=job["vocab_size"])
        try:
            # Every worker's prompts are those of one vocabulary, whatever the probes of each found.
            info = replace(await engine.start(), vocab_size=job["vocab_size"])
            return await play(
                self._plan, engine, info, clock=WallClock(), salt=job["salt"], rows=self._rows,
                request_timeout_s=job["request_timeout_s"], max_concurrency=job["max_concurrency"],
                dispatch_for_s=job["dispatch_for_s"], recorder=self._recorder, start=self._ready,
                on_progress=lambda progress: self._say(op="progress", **asdict(progress)))
        finally:
            await engine.stop()

    async def _ready(self) -> int:
        self._say(op="ready")
        return await self._start_ns

    async def _follow(self, orders: asyncio.StreamReader, playing: asyncio.Task[Run]) -> None:
        while line := await orders.readline():
            order = json.loads(line)
            if order["op"] == "go":
                self._start_ns.set_result(order["start_ns"])
            else:
                self._stopped = order["why"]
                playing.cancel()
        os._exit(1)   # the starter is gone: nobody is left to hand anything to

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_SECONDS)
            self._say(op="alive")


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data):]


if __name__ == "__main__":
    main()
