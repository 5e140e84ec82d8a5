"""What every engine that we start gets of its own: a mark on its processes, a directory,
a control block, a log."""

import asyncio
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from engine_adapter.control_block import ENVIRONMENT_NAME, ControlBlock
from engine_adapter.processes import MARK_NAME, end_marked, shared_memory_of

OUR_ROOT = str(Path(__file__).resolve().parent.parent)
"""Where our modules are imported from."""

_LOG_TAIL_BYTES = 200_000


class EngineHome:
    """Made before the engine's first process, removed after its last.

    `log_path` is appended to and stays; without it the log lies in the directory and goes with it.
    """

    def __init__(self, log_path: Path | None = None) -> None:
        self.id = uuid.uuid4().hex
        self.directory = Path(tempfile.mkdtemp(prefix="stallfree-", dir=_shared_memory_directory()))
        self.log_path = log_path or self.directory / "engine.log"
        self.block_path = self.directory / "control"
        self.block = ControlBlock.create(self.block_path)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._segments: set[Path] = set()

    def environment(self, *, ours: bool = False, offline: bool = False) -> dict[str, str]:
        """Our own environment with what marks the engine's processes and keeps their traces here.

        `ours` lets them import our modules: only for processes of our own Python, since another one
        would find our packages instead of its own. `offline` keeps them from asking a model hub.
        """
        environment = dict(os.environ)
        environment.update({
            MARK_NAME: self.id,
            ENVIRONMENT_NAME: str(self.block_path),
            "PYTHONUNBUFFERED": "1",
            # vLLM renames its processes; without this setproctitle writes the name over the environment
            # that /proc shows, and the mark would be gone.
            "SPT_NOENV": "1",
            # Sockets of the engine's processes lie beside the control block and go with it.
            "VLLM_RPC_BASE_PATH": str(self.directory),
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        })
        if ours:
            search = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{OUR_ROOT}{os.pathsep}{search}" if search else OUR_ROOT
        if offline:
            environment["HF_HUB_OFFLINE"] = "1"
        return environment

    def log_text(self) -> str:
        """What this engine has logged so far, its last 200 kB."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    async def note_shared_memory(self) -> None:
        """Remember the segments that the processes have mapped now.

        A killed process cannot remove its own, and when all that mapped one are gone it has no finder.
        """
        self._segments |= await asyncio.to_thread(shared_memory_of, self.id)

    async def end_processes(self) -> list[int]:
        """Kill every marked process and remove their shared memory; returns those that would not go."""
        await self.note_shared_memory()
        left = await asyncio.to_thread(end_marked, self.id)
        for segment in self._segments:
            segment.unlink(missing_ok=True)
        return left

    def remove(self) -> None:
        """Remove the directory; idempotent."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _shared_memory_directory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
