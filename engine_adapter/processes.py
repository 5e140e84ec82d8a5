"""Find and end every process of one engine, by the mark that it and its descendants inherit."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARK_NAME = "STALLFREE_ENGINE_ID"
"""Environment variable set for the engine's first process; children inherit it."""

_TRACKER = b"multiprocessing.resource_tracker"


def marked_processes(engine_id: str, *, but_not: Iterable[int] = ()) -> list[int]:
    """Process ids whose environment carries this engine's mark; zombies are left out."""
    mark = f"{MARK_NAME}={engine_id}".encode()
    spared = set(but_not)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it ended, or belongs to somebody else
            continue
    return found


def end_marked(engine_id: str, *, but_not: Iterable[int] = (), deadline_s: float = 5.0) -> list[int]:
    """Kill every process of this engine and wait until none is left; returns those that would not go.

    Python's resource trackers go last and by themselves: they remove the shared memory that
    the killed processes left behind.
    """
    end = time.monotonic() + deadline_s
    grace = time.monotonic() + deadline_s / 2
    while left := marked_processes(engine_id, but_not=but_not):
        now = time.monotonic()
        if now > end:
            return left
        for pid in left:
            if now > grace or not _is_tracker(pid):
                _kill(pid)
        time.sleep(0.02)
    return []


def _is_tracker(pid: int) -> bool:
    try:
        return _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
