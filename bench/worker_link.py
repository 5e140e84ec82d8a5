"""The starter's end of one worker process, from its start to its certain end."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ENDING_SECONDS = 2.0


class WorkerDied(Exception):
    """A worker ended, or fell silent, without having handed over its run; the message says why."""


class WorkerLink:
    """One process of bench.worker_process. What it prints besides its replies goes to `log_path`."""

    def __init__(self, log_path: Path, *, secrets: Iterable[str] = ()) -> None:
        self._log_path = log_path
        self._secrets = tuple(secrets)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process's number, once it is started."""
        return None if self._process is None else self._process.pid

    async def start(self, job: Mapping[str, Any]) -> None:
        """Start the process and give it its job. The job, which holds the key, goes through the pipe only."""
        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                # -P: a folder called bench where the user stands must not be taken for ours.
                sys.executable, "-P", "-m", "bench.worker_process", stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, stderr=log, env=_environment(),
                # Ctrl-C at a terminal reaches us alone, and we stop the worker in order.
                process_group=0)
        self.order(**job)

    def order(self, **order: Any) -> None:
        """Send it a line; without effect when it is gone, which `reply` then says."""
        assert self._process is not None
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def reply(self, timeout_s: float) -> dict[str, Any]:
        """Its next line; WorkerDied when there is none, or none within the time."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise WorkerDied(f"no sign of life for {timeout_s:g} s") from None
        if not line.endswith(b"\n"):
            raise WorkerDied(await self._why_it_ended())
        reply: dict[str, Any] = json.loads(line)
        return reply

    async def end(self) -> None:
        """The process is gone afterwards; idempotent. One that has handed over ends by itself."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        try:
            process.stdin.close()
            async with asyncio.timeout(_ENDING_SECONDS):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _why_it_ended(self) -> str:
        assert self._process is not None
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            return "it closed its output"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), f"exit status {code}")
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return said


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    search = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{search}" if search else root}
