import asyncio
import os
import signal
from pathlib import Path

import pytest

from bench import worker_link
from bench.worker_link import WorkerDied, WorkerLink


def test_a_worker_that_fails_says_why_without_the_key(tmp_path: Path) -> None:
    """The last line that it printed is the reason, with the key blotted out."""

    async def go() -> None:
        link = WorkerLink(tmp_path / "log", secrets=["sk-secret"])
        try:
            await link.start({"plan": "/nowhere/sk-secret"})
            await link.reply(60)
        finally:
            await link.end()

    with pytest.raises(WorkerDied, match=r"FileNotFoundError: .*'/nowhere/\*\*\*'"):
        asyncio.run(go())


def test_a_worker_that_is_silent_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reply within the time is a death like any other; a process that will not go is killed."""
    monkeypatch.setattr(worker_link, "_ENDING_SECONDS", 0.1)

    async def go() -> int:
        link = WorkerLink(tmp_path / "log")
        await link.start({"plan": ""})
        pid = link.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerDied, match=r"no sign of life for 0\.1 s"):
            await link.reply(0.1)
        await link.end()
        await link.end()
        return pid

    pid = asyncio.run(go())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
