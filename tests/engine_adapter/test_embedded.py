"""The real vLLM engine keeps the contract, reports its failures by type, and leaves nothing behind."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from engine_adapter.contract import EngineContract
from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.errors import Crashed, OutOfMemory, StartFailed
from engine_adapter.processes import marked_processes
from engine_adapter.seam import Engine, GenerateRequest
from tests.engine_adapter.engines import engine_directories, needs_vllm, tiny_launch

pytestmark = [pytest.mark.engine, needs_vllm, pytest.mark.timeout(300)]


class TestEmbeddedVllm(EngineContract):
    """One start serves all of these."""

    directory: Path

    @classmethod
    def make_engine(cls) -> Engine:
        cls.directory = Path(tempfile.mkdtemp())
        cls.before = engine_directories()
        return EmbeddedVllm(tiny_launch(cls.directory))

    @classmethod
    def teardown_class(cls) -> None:
        engine_id = cls.engine._host._id
        super().teardown_class()
        shutil.rmtree(cls.directory)
        assert marked_processes(engine_id) == []
        assert engine_directories() <= cls.before

    def test_knobs_are_live_on_this_vllm(self) -> None:
        """The plug-in works on the installed vLLM; a new version that breaks it fails here first."""
        assert self.info.live_knobs, self.info.live_knobs_note

    def test_every_process_of_the_engine_carries_its_mark(self) -> None:
        """Host, EngineCore and worker are found, also after vLLM has renamed them."""
        marked = marked_processes(self.engine._host._id)
        assert {self.engine._host._process.pid, self.engine._host.block.plugin_pid} < set(marked)
        assert len(marked) >= 3

    def test_the_step_log_is_cheap(self) -> None:
        """Writing the log stays small even beside a two-layer toy's steps, which last a millisecond."""
        self.engine.step_log()

        async def load() -> None:
            await asyncio.gather(*[self.answer(64, 60) for _ in range(16)])

        self.run(load())
        log = self.engine.step_log()
        assert len(log) > 50
        print(f"step log: {log.overhead_ns / log.duration_ns().sum():.2%} of the steps")
        assert log.overhead_ns < 0.1 * log.duration_ns().sum()


def _end_is_clean(engine: EmbeddedVllm, before: set[str]) -> None:
    assert marked_processes(engine._host._id) == []
    assert engine_directories() <= before


def test_an_engine_killed_in_mid_run_is_a_crash_and_leaves_nothing(tmp_path: Path) -> None:
    """kill -9 of EngineCore: every stream raises Crashed, stop() clears the rest."""
    before = engine_directories()

    async def play() -> None:
        engine = EmbeddedVllm(tiny_launch(tmp_path / "model"))
        await engine.start()

        async def long_answer() -> None:
            async for event in engine.generate(GenerateRequest(1, [11] * 20, 900)):
                if event.read_ns:
                    os.kill(engine._host.block.plugin_pid, signal.SIGKILL)

        with pytest.raises(Crashed):
            await asyncio.wait_for(long_answer(), 60)
        with pytest.raises(Crashed):
            async for _ in engine.generate(GenerateRequest(2, [11] * 20, 2)):
                pass
        await engine.stop()
        _end_is_clean(engine, before)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("more", "error"),
    [({"kv_cache_memory_bytes": 4096}, OutOfMemory), ({"dtype": "no-such-dtype"}, StartFailed)],
    ids=["no memory for KV", "bad argument"],
)
def test_a_failed_start_says_why_in_one_line(tmp_path: Path, more: dict[str, object],
                                             error: type[StartFailed]) -> None:
    """The engine's own reason is quoted, typed, on one line, and no process stays."""
    before = engine_directories()
    engine = EmbeddedVllm(tiny_launch(tmp_path / "model", **more))
    with pytest.raises(error) as caught:
        asyncio.run(engine.start())
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    _end_is_clean(engine, before)


_PARENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from engine_adapter.embedded import EmbeddedVllm
from tests.engine_adapter.engines import tiny_launch

async def main():
    engine = EmbeddedVllm(tiny_launch(Path(sys.argv[1])))
    await engine.start()
    print(engine._host._id, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_parent_killed_with_sigkill_takes_its_engine_along(tmp_path: Path) -> None:
    """Nobody is left to clean up, so the engine's own processes notice and go."""
    before = engine_directories()
    root = str(Path(__file__).resolve().parents[2])
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path / "model"), root],
                              stdout=subprocess.PIPE, text=True)
    engine_id = parent.stdout.readline().strip()
    try:
        assert len(marked_processes(engine_id)) >= 2
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    deadline = time.monotonic() + 20
    while (left := marked_processes(engine_id)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert engine_directories() <= before
