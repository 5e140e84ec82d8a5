"""Servers that we start keep the engine's contract, report their failures by type, and leave nothing."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from engine_adapter.contract import EngineContract
from engine_adapter.errors import Crashed, OutOfMemory, StartFailed
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.processes import marked_processes
from engine_adapter.seam import Engine, GenerateRequest
from engine_adapter.servers import managed as managed_server
from engine_adapter.servers.command_template import CommandTemplate
from engine_adapter.servers.live import LiveServer
from engine_adapter.servers.managed import ManagedCommand, ManagedVllm
from engine_adapter.start_failure import PortInUse
from engine_adapter.vllm_launch import VllmLaunch
from tests.engine_adapter.engines import engine_directories, needs_vllm, tiny_launch
from tests.engine_adapter.small_servers import children_of
from workloads.errors import UsageError

ROOT = str(Path(__file__).resolve().parents[3])
with_engine = [pytest.mark.engine, needs_vllm, pytest.mark.timeout(300)]


def assert_nothing_is_left(engine: ManagedVllm | ManagedCommand) -> None:
    home = engine._process.home
    assert marked_processes(home.id) == []
    assert not home.directory.exists()
    assert [segment for segment in home._segments if segment.exists()] == []


class TestManagedVllm(EngineContract):
    """One start serves all of these."""

    pytestmark = with_engine
    directory: Path

    @classmethod
    def make_engine(cls) -> Engine:
        cls.directory = Path(tempfile.mkdtemp())
        return ManagedVllm(tiny_launch(cls.directory), log_path=cls.directory / "log")

    @classmethod
    def teardown_class(cls) -> None:
        super().teardown_class()
        assert_nothing_is_left(cls.engine)
        shutil.rmtree(cls.directory)

    def test_knobs_are_live_on_this_vllm(self) -> None:
        """The plug-in works on the installed vLLM; a new version that breaks it fails here first."""
        assert self.info.live_knobs, self.info.live_knobs_note

    def test_it_says_what_vllm_would_have_chosen(self) -> None:
        """Defaults, vocabulary and versions come from the server itself."""
        assert self.info.name == "vllm-server"
        assert (self.info.vocab_size, self.info.max_model_len) == (4096, 1024)
        assert self.info.default_knobs == self.info.knobs
        assert self.info.fingerprint["vllm"] == self.info.version
        assert self.info.num_kv_blocks > 0
        assert self.info.token_count_source == "token_ids"

    def test_the_prefix_cache_is_really_reset(self) -> None:
        """A repeated prompt is computed anew after a reset, and not before."""
        request = self.request(300, 2)

        async def computed() -> int:
            self.engine.step_log()
            async for _ in self.engine.generate(request):
                pass
            return int(self.engine.step_log().chunks["tokens"].sum())

        assert self.run(computed()) == 300
        assert self.run(computed()) < 300
        self.run(self.engine.reset_caches())
        assert self.run(computed()) == 300

    def test_a_server_that_is_already_there_has_live_knobs_through_its_block(self) -> None:
        """--base-url with --control-block: knobs change, and are put back by stop()."""
        async def play() -> None:
            other = LiveServer(HttpTarget(base_url=self.engine.target.base_url),
                               self.engine._process.home.block_path)
            info = await other.start()
            assert info.live_knobs
            small = Knobs(64, 8)
            assert (await other.apply(small)).knobs == small
            async for _ in other.generate(self.request(200, 2)):
                pass
            assert other.step_log().steps["num_tokens"].max() == 64
            await other.stop()

        self.run(play())
        assert self.engine._process.home.block.effective() == self.info.knobs
        assert self.run(self.engine.death()) is None


def vllm_processes(engine: ManagedVllm) -> tuple[int, int]:
    """The API server and EngineCore."""
    (server,) = children_of(engine._process._process.pid)
    return server, engine._process.home.block.plugin_pid


@pytest.mark.parametrize("victim", [0, 1], ids=["the API server", "EngineCore"])
@pytest.mark.engine
@needs_vllm
def test_a_killed_part_of_the_server_is_a_crash_and_leaves_nothing(tmp_path: Path, victim: int) -> None:
    """kill -9 in mid-answer: the stream raises Crashed with the log's name, the server is not alive,
    stop() clears the rest."""
    engine = ManagedVllm(tiny_launch(tmp_path / "model"), log_path=tmp_path / "engine.log")

    async def long_answer() -> None:
        async for _ in engine.generate(GenerateRequest(1, [11] * 20, 900)):
            pass

    async def play() -> None:
        await engine.start()
        assert engine._process.home._segments, "vLLM's message queues were not found"
        processes = vllm_processes(engine)
        # A stopped engine cannot finish the answer, however late this test comes to its kill.
        os.kill(processes[1], signal.SIGSTOP)
        reading = asyncio.create_task(long_answer())
        await asyncio.sleep(0.2)
        os.kill(processes[victim], signal.SIGKILL)
        with pytest.raises(Crashed, match=r"engine\.log"):
            await asyncio.wait_for(reading, 60)
        assert await engine.death() is not None
        with pytest.raises(Crashed):
            await asyncio.wait_for(long_answer(), 60)
        await engine.stop()

    asyncio.run(play())
    assert_nothing_is_left(engine)


@pytest.mark.parametrize(
    ("more", "error", "part"),
    [
        ({"kv_cache_memory_bytes": 4096}, OutOfMemory, "KV cache"),
        ({"no_such_flag": 3}, StartFailed, "unrecognized arguments: --no-such-flag 3"),
    ],
    ids=["no memory for KV", "bad flag"],
)
@pytest.mark.engine
@needs_vllm
def test_a_failed_start_says_why_in_one_line(tmp_path: Path, more: dict[str, object],
                                             error: type[StartFailed], part: str) -> None:
    """The server's own reason is quoted, typed, on one line, and no process stays."""
    engine = ManagedVllm(tiny_launch(tmp_path / "model", **more))
    with pytest.raises(error) as caught:
        asyncio.run(engine.start())
    assert type(caught.value) is error
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert_nothing_is_left(engine)


@pytest.mark.engine
@needs_vllm
def test_a_configuration_file_alone_starts_the_same_server(tmp_path: Path) -> None:
    """What is handed to the user as recommended.yaml is read by vLLM itself; its knobs are in force."""
    launch, knobs = tiny_launch(tmp_path / "model"), Knobs(512, 16, 128)
    config = tmp_path / "recommended.yaml"
    config.write_text(json.dumps(launch.serve_config(knobs)))
    engine = ManagedVllm(VllmLaunch(launch.model, config_file=config))

    async def play() -> None:
        info = await engine.start()
        assert info.knobs == knobs
        assert info.default_knobs.token_budget > 512
        assert info.limits.refusal(Knobs(513, 16)) is not None
        await engine.stop()

    asyncio.run(play())


_STARTER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from engine_adapter.servers.managed import ManagedVllm
from tests.engine_adapter.engines import tiny_launch

async def main():
    engine = ManagedVllm(tiny_launch(Path(sys.argv[1])))
    await engine.start()
    print(engine._process.home.id, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.engine
@needs_vllm
def test_a_starter_killed_with_sigkill_takes_its_server_along(tmp_path: Path) -> None:
    """Nobody is left to clean up, so the server's own processes notice and go."""
    before = engine_directories()
    starter = subprocess.Popen([sys.executable, "-c", _STARTER, str(tmp_path / "model"), ROOT],
                               stdout=subprocess.PIPE, text=True)
    engine_id = starter.stdout.readline().strip()
    try:
        assert len(marked_processes(engine_id)) >= 4
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()
    deadline = time.monotonic() + 20
    while (marked_processes(engine_id) or not engine_directories() <= before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked_processes(engine_id) == []
    assert engine_directories() <= before


# A server of another make; it ends with its standard input, so that is kept open.
PACED = (f"sh -c 'sleep 600 | {sys.executable} -m engine_adapter.test_servers.paced --port {{port}} "
         "--ttft-ms 1 --interval-ms 1 --tokens-per-message {max_seqs}'")


def test_any_command_is_started_with_its_fields_filled_and_leaves_nothing(tmp_path: Path) -> None:
    """Port and knobs go into the command; the answers come from that server; both ends of its pipe go."""
    engine = ManagedCommand(CommandTemplate(PACED), knobs=Knobs(64, 2), log_path=tmp_path / "log")

    async def play() -> None:
        info = await engine.start()
        assert info.knobs is None, "the command does not set all that Knobs say"
        assert not info.live_knobs
        assert "its command sets: max_seqs" in info.live_knobs_note
        tokens = [event.num_tokens async for event in engine.generate(GenerateRequest(1, [11] * 5, 6))]
        assert tokens == [2, 2, 2]
        assert await engine.death() is None
        assert len(engine.step_log()) == 0
        await engine.stop()
        with pytest.raises(Crashed, match="stopped"):
            await anext(engine.generate(GenerateRequest(2, [11] * 5, 6)))

    asyncio.run(play())
    assert_nothing_is_left(engine)


def test_a_port_that_was_taken_in_between_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between choosing a free port and listening on it somebody may be quicker."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        choices = [other.getsockname()[1], managed_server.free_port()]
        monkeypatch.setattr(managed_server, "free_port", lambda: choices.pop(0))
        engine = ManagedCommand(CommandTemplate(PACED), knobs=Knobs(64, 2))

        async def play() -> None:
            await engine.start()
            await engine.stop()

        asyncio.run(play())
    assert choices == []


def test_a_fixed_port_in_use_is_told(tmp_path: Path) -> None:
    """A command without {port} has one address only, so there is nothing else to try."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        engine = ManagedCommand(CommandTemplate("sleep 600"), log_path=tmp_path / "log", target=HttpTarget(
            base_url=f"http://127.0.0.1:{other.getsockname()[1]}"))
        with pytest.raises(PortInUse):
            asyncio.run(engine.start())


def test_a_server_that_has_no_such_endpoint_is_ended_again() -> None:
    """It answers /health, but not what is asked of it then: the start fails and leaves nothing."""
    script = ("import http.server, sys; H = http.server.SimpleHTTPRequestHandler; "
              "H.translate_path = lambda self, path: \"/dev/null\"; H.log_message = lambda *a: None; "
              "H.do_POST = lambda self: self.send_error(404); "
              "http.server.HTTPServer((\"127.0.0.1\", int(sys.argv[1])), H).serve_forever()")
    engine = ManagedCommand(CommandTemplate(f"{sys.executable} -c '{script}' {{port}}"),
                            target=HttpTarget(base_url="http://127.0.0.1", model="m"))
    with pytest.raises(UsageError, match="the server has no /v1/completions"):
        asyncio.run(engine.start())
    assert_nothing_is_left(engine)
