"""A server that we start answers before anything is asked of it, and leaves nothing when it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine_adapter.engine_home import EngineHome
from engine_adapter.errors import StartFailed
from engine_adapter.processes import marked_processes
from engine_adapter.servers import process as server_process
from engine_adapter.servers.freed_memory import until_memory_is_back
from engine_adapter.servers.process import ServerProcess, free_port
from engine_adapter.start_failure import PortInUse
from tests.engine_adapter.small_servers import children_of, small_server

ROOT = str(Path(__file__).resolve().parents[3])


def assert_nothing_is_left(process: ServerProcess) -> None:
    assert marked_processes(process.home.id) == []
    assert not process.home.directory.exists()


@pytest.mark.parametrize("how", ["plain", "loading", "healthless"])
def test_it_is_started_when_it_answers_and_asked_to_end_before_it_is_killed(how: str, tmp_path: Path) -> None:
    """503 is not ready, 404 on /health means /v1/models; SIGTERM comes first; the log stays."""
    async def play() -> ServerProcess:
        process = small_server(how, log_path=tmp_path / "log")
        await process.start()
        assert len(marked_processes(process.home.id)) == 2
        await process.stop()
        await process.stop()
        return process

    process = asyncio.run(play())
    assert_nothing_is_left(process)
    assert (tmp_path / "log").read_text() == "asked to end\n"
    assert process.how_it_ended() == "its process ended with status 0"


def test_an_early_end_is_noticed_at_once_and_its_reason_quoted() -> None:
    """Nobody waits for the deadline of a server that has ended."""
    process = small_server("crash", deadline_s=600)
    with pytest.raises(StartFailed, match="ValueError: no such thing as crash"):
        asyncio.run(asyncio.wait_for(process.start(), 60))
    assert_nothing_is_left(process)


def test_a_server_that_is_never_ready_is_ended_at_its_deadline() -> None:
    """The message has the deadline, the flag that moves it, and what the server said last."""
    process = small_server("silent", deadline_s=1.0)
    with pytest.raises(StartFailed, match=r"not ready after 1 s.*--server-ready-timeout.*still loading"):
        asyncio.run(process.start())
    assert_nothing_is_left(process)


def test_a_cancelled_start_leaves_nothing() -> None:
    """As with Ctrl-C while a model loads."""
    process = small_server("silent")

    async def play() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.start(), 0.5)

    asyncio.run(play())
    assert_nothing_is_left(process)


def test_a_port_that_somebody_listens_on_is_refused_before_the_start() -> None:
    """A server left over from before would answer in place of ours."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = small_server("plain", port=other.getsockname()[1])
        with pytest.raises(PortInUse, match="something answers at http"):
            asyncio.run(process.start())
    assert_nothing_is_left(process)


def test_a_command_that_goes_to_the_background_is_told_to_stay() -> None:
    """A launcher that returns at once leaves nobody to watch and to end."""
    home = EngineHome()
    process = ServerProcess(["true"], home=home, environment=home.environment(),
                            base_url="http://127.0.0.1:1", deadline_s=10)
    with pytest.raises(StartFailed, match="status 0; a server's command must stay in the foreground"):
        asyncio.run(process.start())
    assert_nothing_is_left(process)


def test_a_command_that_does_not_exist_is_named() -> None:
    """A slip of the pen in the command is told in one line."""
    home = EngineHome()
    process = ServerProcess(["no-such-program"], home=home, environment=home.environment(),
                            base_url="http://127.0.0.1:1", deadline_s=10)
    with pytest.raises(StartFailed, match="no-such-program cannot be started: No such file"):
        asyncio.run(process.start())
    assert_nothing_is_left(process)


def test_what_ignores_the_request_to_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server and its child in another session, both deaf to SIGTERM, are gone after stop()."""
    monkeypatch.setattr(server_process, "_STOP_DEADLINE_S", 0.2)
    process = small_server("stubborn child")

    async def play() -> None:
        await process.start()
        assert len(marked_processes(process.home.id)) == 3
        await process.stop()

    asyncio.run(play())
    assert_nothing_is_left(process)


def test_a_killed_server_takes_its_children_along_and_its_end_is_known() -> None:
    """kill -9 of the server alone: its orphan goes at once, and the signal is named."""
    process = small_server("child")

    async def play() -> None:
        await process.start()
        guard = process._process.pid
        os.kill(children_of(guard)[0], signal.SIGKILL)
        assert await process.has_ended(within_s=5)
        assert "SIGKILL" in process.how_it_ended()
        for _ in range(200):
            if marked_processes(process.home.id) == [guard]:
                break
            await asyncio.sleep(0.02)
        assert marked_processes(process.home.id) == [guard]
        await process.stop()

    asyncio.run(play())
    assert_nothing_is_left(process)


def test_a_killed_guard_takes_its_server_along() -> None:
    """kill -9 of what watches over the server is no way to lose it."""
    process = small_server("plain child")

    async def play() -> None:
        await process.start()
        os.kill(process._process.pid, signal.SIGKILL)
        assert await process.has_ended(within_s=5)
        await process.stop()

    asyncio.run(play())
    assert_nothing_is_left(process)


_STARTER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from tests.engine_adapter.small_servers import small_server

async def main():
    process = small_server("stubborn child")
    await process.start()
    print(process.home.id, process.home.directory, process._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("crashed", [False, True], ids=["while it serves", "after it crashed"])
def test_a_starter_killed_with_sigkill_takes_its_server_along(crashed: bool) -> None:
    """Nobody is left to clean up, so the guard notices and does."""
    starter = subprocess.Popen([sys.executable, "-c", _STARTER, ROOT], stdout=subprocess.PIPE, text=True)
    engine_id, directory, guard = starter.stdout.readline().split()
    try:
        assert len(marked_processes(engine_id)) == 3
        if crashed:
            os.kill(children_of(int(guard))[0], signal.SIGKILL)
    finally:
        starter.kill()
        starter.wait()
        starter.stdout.close()
    deadline = time.monotonic() + 10
    while (marked_processes(engine_id) or Path(directory).exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert marked_processes(engine_id) == []
    assert not Path(directory).exists()


def test_the_command_does_not_inherit_where_our_modules_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of another Python must find its own packages, not ours."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    home = EngineHome()
    assert "PYTHONPATH" not in home.environment()
    assert home.environment(ours=True)["PYTHONPATH"] == ROOT
    home.remove()


def test_a_free_port_can_be_listened_on() -> None:
    """The port is really free right after it was chosen."""
    with socket.create_server(("127.0.0.1", free_port())):
        pass


@pytest.mark.parametrize(
    ("readings", "used"),
    [([1 << 30, 2 << 30, 3 << 30, 3 << 30, 9 << 30], 4), ([5, 5, 9], 2), ([None, 5], 1)],
    ids=["grows, then still", "still at once", "no figure"],
)
def test_memory_is_waited_for_while_it_grows(readings: list[int | None], used: int) -> None:
    """As long as one look finds more free than the one before, memory is still being given back."""
    left = list(readings)
    asyncio.run(until_memory_is_back(free_bytes=lambda: left.pop(0)))
    assert len(readings) - len(left) == used
