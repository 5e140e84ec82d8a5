import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recorder import Progress
from bench.run import NEVER, Outcome, Run
from bench.shards import ShardRecorder, worker_shares
from bench.workers import play_sharded
from engine_adapter.errors import StartFailed
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.request_number import http_request_number
from engine_adapter.seam import EngineInfo
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog
from engine_adapter.test_servers.paced_process import PacedServer
from engine_adapter.test_servers.script import Hang, Script, Send, stream_head, streamed
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from workloads import Plan, UsageError, Workload, build_plan

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "sk-not-for-everybody"


def _plan(requests: int, *, rate: float = 100.0, tokens: int = 4) -> Plan:
    return build_plan(Workload.from_lengths(16, tokens), rate_rps=rate, seed=3, num_prompts=requests,
                      burstiness=math.inf)


def _workers(parent: int | None = None) -> list[int]:
    """Process numbers of the workers that `parent` (default: this process) has started and not yet buried."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            line, fields = (stat.parent / "cmdline").read_bytes(), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"bench.worker_process" in line and int(fields[1]) == (parent or os.getpid()):
            found.append(int(stat.parent.name))
    return found


def _answer(request: ScriptedRequest) -> Script:
    event = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
    last = {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]}
    return streamed([event, last], gap_s=0)


async def _info(target: HttpTarget) -> EngineInfo:
    engine = HttpEngine(target)
    try:
        return await engine.start()
    finally:
        await engine.stop()


async def _waited_for(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@given(st.integers(0, 60), st.integers(1, 70), st.one_of(st.none(), st.integers(1, 70)))
def test_every_request_has_one_worker_and_the_cap_is_shared_out(
    requests: int, workers: int, cap: int | None
) -> None:
    """Shares are disjoint and complete, their caps add up, and nobody is without request or place."""
    shares = worker_shares(requests, workers, cap)
    assert len(shares) <= workers
    plan = _plan(max(1, requests))
    rows = np.concatenate([share.rows(plan) for share in shares])
    assert sorted(rows.tolist()) == list(range(len(plan)))
    assert all(len(share.rows(plan)) for share in shares)
    if cap is not None:
        assert sum(share.max_concurrency or 0 for share in shares) == cap
        assert min(share.max_concurrency or 0 for share in shares) >= 1


def test_fewer_than_one_worker_is_refused() -> None:
    """The user is told by the flag's name."""
    with pytest.raises(UsageError, match="--workers must be at least 1; got 0"):
        worker_shares(5, 0)


def test_four_workers_send_the_prompts_of_one_each_once_and_show_the_key_to_nobody() -> None:
    """40 distinct prompts, those of the plan; the key is in the requests and in no command line, environment
    or file that the workers have."""
    places: list[str] = []

    async def look(server: ScriptedServer) -> None:
        server.requests.clear()   # the probes
        for pid in _workers():
            folder = Path(f"/proc/{pid}")
            places.append((folder / "cmdline").read_text() + (folder / "environ").read_text())
            files = os.readlink(folder / "fd/2")
            places.extend(path.read_bytes().decode("latin-1") for path in Path(files).parent.iterdir())

    async def go() -> tuple[Run, list[ScriptedRequest], int, list[Progress]]:
        progress: list[Progress] = []
        async with ScriptedServer(_answer) as server:
            target = HttpTarget(base_url=server.base_url, api_key=KEY)
            info = await _info(target)
            run = await play_sharded(plan, target, info, workers=4, salt="s", on_progress=progress.append,
                                     before_start=lambda: look(server), meta={"label": "x"})
        return run, server.requests, info.vocab_size, progress

    plan = _plan(40)
    run, requests, vocab_size, progress = asyncio.run(go())
    assert run.outcome.tolist() == [Outcome.OK] * 40
    prompts = [tuple(request.json()["prompt"]) for request in requests]
    assert len(set(prompts)) == 40
    assert set(prompts) == {
        tuple(plan.prompt_token_ids(row, vocab_size=vocab_size, salt="s")) for row in range(40)}
    assert {request.headers["authorization"] for request in requests} == {f"Bearer {KEY}"}
    assert len(places) >= 4
    assert not [place for place in places if KEY in place]
    assert KEY not in str(run.meta)
    assert (run.meta["label"], run.meta["plan_digest"]) == ("x", plan.digest())
    assert [worker["requests"] for worker in run.meta["workers"]] == [10] * 4
    assert (progress[-1].planned, progress[-1].sent, progress[-1].finished) == (40, 40, 40)
    assert _workers() == []


def test_one_schedule_and_one_cap_hold_over_all_workers() -> None:
    """All intended times come from one start; never are more in flight than the whole cap allows."""

    async def go() -> tuple[Run, Run]:
        async with PacedServer(ttft_ms=5, interval_ms=5) as server:
            target = HttpTarget(base_url=server.base_url)
            info = await _info(target)
            opened = await play_sharded(plan, target, info, workers=2, salt="s", step_log=steps)
            closed = await play_sharded(burst, target, info, workers=2, salt="t", max_concurrency=5)
        return opened, closed

    def steps() -> StepLog:
        return StepLog({n: np.arange(2) for n in STEP_COLUMNS}, {n: np.arange(1) for n in CHUNK_COLUMNS})

    plan, burst = _plan(30), _plan(30, rate=math.inf)
    opened, closed = asyncio.run(go())
    assert (opened.intended_ns - opened.start_ns).tolist() == plan.intended_ns.tolist()
    assert (opened.sent_ns >= opened.intended_ns).all()
    assert opened.num_tokens.tolist() == [4] * 30
    assert opened.client.loop_lag_max_ns is not None
    assert len(opened.steps) >= 2
    assert closed.outcome.tolist() == [Outcome.OK] * 30
    assert closed.peak_in_flight() <= 5
    assert [worker["max_concurrency"] for worker in closed.meta["workers"]] == [3, 2]
    assert closed.meta["max_concurrency"] == 5


def test_a_worker_that_dies_ends_the_run_which_says_so() -> None:
    """Its rows are not sent, what the others measured is kept, the run is invalid; nothing is left."""

    async def go() -> Run:
        async with PacedServer(ttft_ms=1, interval_ms=1) as server:
            target = HttpTarget(base_url=server.base_url)
            playing = asyncio.create_task(play_sharded(
                _plan(2000, rate=20), target, await _info(target), workers=2, salt="s",
                on_progress=progress.append))
            await _waited_for(lambda: progress and progress[-1].finished >= 4)
            os.kill(max(_workers()), signal.SIGKILL)
            return await playing

    progress: list[Progress] = []
    run = asyncio.run(go())
    assert run.validity.reasons[0] in {
        f"the run was cut short: worker {k} of 2 died: killed by SIGKILL" for k in (1, 2)}
    assert len(run) == 2000
    dead = 0 if run.meta["workers"][0]["client"] is None else 1
    assert run.meta["workers"][1 - dead]["client"] is not None
    assert set(run.outcome[dead::2].tolist()) == {Outcome.NOT_SENT}
    assert Outcome.OK in run.outcome[1 - dead::2]
    assert _workers() == []


def test_a_stopped_run_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On cancellation the workers hand over: finished, cut short and unsent requests are told apart."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def some(request: ScriptedRequest) -> Script:
        number = http_request_number(request.headers["x-request-id"])
        return (Send(stream_head()), Hang()) if begun and number in (4, 5) else _answer(request)

    async def go() -> Run:
        async with ScriptedServer(some) as server:
            target = HttpTarget(base_url=server.base_url)
            recorder = ShardRecorder(plan)
            playing = asyncio.create_task(play_sharded(
                plan, target, await _info(target), workers=2, salt="s", recorder=recorder,
                on_progress=progress.append, before_start=begin))
            await _waited_for(lambda: progress and progress[-1].finished >= 8)
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
        return recorder.run(cut_short="interrupted")

    async def begin() -> None:
        begun.append(True)

    begun: list[bool] = []
    progress: list[Progress] = []
    plan = _plan(3000, rate=30)
    run = asyncio.run(go())
    assert run.validity.reasons[0] == "the run was cut short: interrupted"
    assert run.outcome[[4, 5]].tolist() == [Outcome.CUT_SHORT] * 2
    assert run.outcome[:4].tolist() == [Outcome.OK] * 4
    assert run.outcome[-1] == Outcome.NOT_SENT
    assert (run.sent_ns[[4, 5]] != NEVER).all()
    assert _workers() == []
    assert list(tmp_path.iterdir()) == []


def test_workers_that_cannot_begin_raise_what_hinders_them() -> None:
    """A server that is gone is the engine's error, in one line that names the worker."""

    async def go() -> None:
        async with ScriptedServer(_answer) as server:
            target = HttpTarget(base_url=server.base_url)
            info = await _info(target)
        await play_sharded(_plan(4), target, info, workers=2, salt="s")

    with pytest.raises(StartFailed, match="worker 1 of 2: ") as failure:
        asyncio.run(go())
    assert "\n" not in str(failure.value)
    assert _workers() == []


def test_no_worker_outlives_its_starter() -> None:
    """When the process that plays is killed, its workers end, and its requests with them."""
    script = textwrap.dedent("""
        import asyncio, sys
        from bench.workers import play_sharded
        from engine_adapter.http.engine import HttpEngine
        from engine_adapter.http.target import HttpTarget
        from workloads import Workload, build_plan

        async def go():
            target = HttpTarget(base_url=sys.argv[1])
            plan = build_plan(Workload.from_lengths(8, 2), rate_rps=1, seed=0, num_prompts=500)
            async def started():
                print("started", flush=True)
            await play_sharded(plan, target, await HttpEngine(target).start(), workers=2, salt="s",
                               before_start=started)

        asyncio.run(go())
    """)

    async def go() -> list[int]:
        async with ScriptedServer(_answer) as server:
            starter = await asyncio.create_subprocess_exec(
                sys.executable, "-c", script, server.base_url, cwd=ROOT, stdout=subprocess.PIPE)
            assert starter.stdout is not None
            assert await starter.stdout.readline() == b"started\n"
            workers = _workers(starter.pid)
            starter.kill()
            await starter.wait()
            await _waited_for(lambda: not [pid for pid in workers if _is_alive(pid)])
            return workers

    assert len(asyncio.run(go())) == 2


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


