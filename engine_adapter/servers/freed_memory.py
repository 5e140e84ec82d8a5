"""Wait until the memory of processes that have ended is really free again."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable

from engine_adapter.machine import free_memory_bytes

_LOOK_EVERY_S = 0.1
_STILL_GROWING = 32 << 20
"""Growth between two looks, in bytes, that says that more is coming."""
_GPU_USED = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


async def until_memory_is_back(*, deadline_s: float = 10.0,
                               free_bytes: Callable[[], int | None] | None = None) -> None:
    """Return when free memory no longer grows, at the latest after `deadline_s`.

    Large mappings and a GPU's memory are torn down after a process has left the process table; an
    engine that is started too early would find less. `free_bytes` replaces the look at this machine.
    """
    look = free_bytes or _look_of_this_machine()
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    free = await asyncio.to_thread(look)
    while free is not None and loop.time() < end:
        await asyncio.sleep(_LOOK_EVERY_S)
        now = await asyncio.to_thread(look)
        if now is None or now - free < _STILL_GROWING:
            return
        free = now


def _look_of_this_machine() -> Callable[[], int | None]:
    if shutil.which("nvidia-smi") is None:
        return free_memory_bytes
    return _free_with_gpus


def _free_with_gpus() -> int | None:
    """Free bytes of the machine, less what its GPUs hold: it grows with either kind of memory."""
    free, used = free_memory_bytes(), _gpu_used_bytes()
    return free if free is None or used is None else free - used


def _gpu_used_bytes() -> int | None:
    try:
        answer = subprocess.run(_GPU_USED, capture_output=True, text=True, timeout=2.0, check=True)
        return sum(int(line) << 20 for line in answer.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
