"""Find and end every process of one engine, by the mark that it and its descendants inherit."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARK_NAME = "STALLFREE_ENGINE_ID"
"""Environment variable set for the engine's first process; children inherit it."""

_SEGMENT = "/dev/shm/psm_"
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


def shared_memory_of(engine_id: str) -> set[Path]:
    """Segments in /dev/shm that this engine's processes have mapped under Python's names for them.

    vLLM's message queues lie there. A killed creator cannot remove its segment, and not every one
    is known to a resource tracker, so whoever ends an engine must look before and remove after.
    """
    found = set()
    for pid in marked_processes(engine_id):
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            continue
        found |= {Path(line.split()[-1]) for line in lines if _SEGMENT in line and "(deleted)" not in line}
    return found


def end_marked(engine_id: str, *, but_not: Iterable[int] = (), deadline_s: float = 5.0) -> list[int]:
    """Kill every process of this engine and wait until none is left; returns those that would not go.

    Python's resource trackers go last and by themselves: they remove the shared memory that
    the killed processes left behind. What they do not know of is removed here.
    """
    segments = shared_memory_of(engine_id)
    end = time.monotonic() + deadline_s
    grace = time.monotonic() + deadline_s / 2
    killed: set[int] = set()
    while True:
        found = marked_processes(engine_id, but_not=but_not)
        # A dying process has lost its environment already, but not yet its memory and its core.
        left = sorted({*found, *(pid for pid in killed if is_running(pid))})
        now = time.monotonic()
        if not left or now > end:
            break
        for pid in found:
            if now > grace or not _is_tracker(pid):
                _kill(pid)
                killed.add(pid)
        time.sleep(0.02)
    for segment in segments:
        segment.unlink(missing_ok=True)
    return left


def is_running(pid: int) -> bool:
    """Whether this process still exists, be it on its way out; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _is_tracker(pid: int) -> bool:
    try:
        return _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
