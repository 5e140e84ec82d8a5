"""Whole runs against servers that misbehave: what is counted, what is left out, what is called invalid."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from bench import Outcome, Run, play, summarise
from engine_adapter.clock import WallClock
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.request_number import http_request_number
from engine_adapter.test_servers.fixture import A_B, Fixture, text
from engine_adapter.test_servers.fixtures import FIXTURES
from engine_adapter.test_servers.paced_process import PacedServer
from engine_adapter.test_servers.script import Hang, Reset, Script, Send, Until, Wait, stream_head, streamed
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import response
from workloads import Plan, Workload, build_plan

GOOD = streamed(A_B, gap_s=0)
PROBE = streamed([text("a", "length")], gap_s=0)
BUSY = (Send(response({"error": "later"}, status=429, headers={"retry-after": "1"})),)


def plan_of(requests: int, *, rate_rps: float = 1000.0, output_len: int = 2, seed: int = 0,
            **more: Any) -> Plan:
    return build_plan(Workload.from_lengths(4, output_len), rate_rps=rate_rps, num_prompts=requests,
                      seed=seed, **more)


def by_row(script_for: Callable[[int], Script]) -> Callable[[ScriptedRequest], Script]:
    """The script of each request of the run, by its row; the first request of all is the client's probe."""
    def choose(request: ScriptedRequest) -> Script:
        return PROBE if request.number == 0 else script_for(row_of(request))

    return choose


def row_of(request: ScriptedRequest) -> int:
    number = http_request_number(request.headers["x-request-id"])
    assert number is not None
    return number


@asynccontextmanager
async def engine_for(base_url: str) -> AsyncIterator[tuple[HttpEngine, Any]]:
    engine = HttpEngine(HttpTarget(base_url=base_url))
    try:
        yield engine, await engine.start()
    finally:
        await engine.stop()


async def played(base_url: str, plan: Plan, **more: Any) -> Run:
    async with engine_for(base_url) as (engine, info):
        return await play(plan, engine, info, clock=WallClock(), salt="x", **more)


def run_against(script_for: Callable[[int], Script], plan: Plan, **more: Any) -> tuple[Run, ScriptedServer]:
    async def run() -> tuple[Run, ScriptedServer]:
        async with ScriptedServer(by_row(script_for)) as server:
            return await played(server.base_url, plan, **more), server

    return asyncio.run(run())


def figures_of(run: Run) -> dict[str, Any]:
    """The summary as JSON, which must hold neither NaN nor infinity."""
    figures: dict[str, Any] = json.loads(json.dumps(summarise(run).as_dict(), allow_nan=False))
    return figures


SINGLE = [f for f in FIXTURES if f.before is None]
"""Fixtures that need no other request before them."""


def test_every_fixture_is_counted_for_what_it_is() -> None:
    """All fixtures in one run: each row ends as its answer did, nothing is lost, and figures are those of the
    successes alone."""
    def outcome_of(fixture: Fixture) -> Outcome:
        return Outcome[fixture.expect.failure.name] if fixture.expect.failure else Outcome.OK

    run, server = run_against(lambda row: SINGLE[row].scripts[0], plan_of(len(SINGLE)), request_timeout_s=0.4)
    assert {SINGLE[row].name: Outcome(code) for row, code in enumerate(run.outcome)} == {
        fixture.name: outcome_of(fixture) for fixture in SINGLE}
    assert run.num_tokens.tolist() == [sum(fixture.expect.tokens) for fixture in SINGLE]
    assert Counter(map(row_of, server.requests[1:])) == Counter(range(len(SINGLE)))
    assert run.status.tolist() == [fixture.expect.status or 0 for fixture in SINGLE]
    failed = [row for row, fixture in enumerate(SINGLE) if fixture.expect.failure]
    assert all(run.error[row] for row in failed)
    figures = figures_of(run)
    assert figures["completed"] == len(SINGLE) - len(failed)
    assert figures["failed"] == len(failed) == sum(figures["error_counts_by_kind"].values())
    assert figures["n"]["ttft"] == figures["completed"]
    # Every success had at least a token, after it was sent and before its end.
    ok = run.ok
    assert (run.sent_ns <= run.first_token_ns())[ok].all()
    assert (run.last_token_ns() <= run.end_ns)[ok].all()


def test_all_failed() -> None:
    """No figure and no crash: the run is invalid and says what the server said."""
    run, server = run_against(lambda row: (Send(response(b"out of order", status=500)),), plan_of(10))
    assert not run.validity.valid
    assert any("not one request succeeded" in why and "out of order" in why for why in run.validity.reasons)
    figures = figures_of(run)
    assert (figures["completed"], figures["failed"]) == (0, 10)
    assert figures["error_counts_by_kind"] == {"http_status": 10}
    assert figures["mean_ttft_ms"] is figures["p99_tbt_ms"] is None
    assert len(server.requests) == 11  # a refusal is final


def test_failures_stay_out_of_the_figures_and_in_the_count() -> None:
    """Every second request is refused, every tenth reset, every tenth empty: figures are of the others."""
    def script_for(row: int) -> Script:
        if row % 2:
            return BUSY
        return (Wait(0.001), Reset()) if row % 10 == 0 else streamed([]) if row % 10 == 2 else GOOD

    run, _ = run_against(script_for, plan_of(40))
    figures = figures_of(run)
    # A reset before the answer is tried once more where the connection had been used before.
    assert figures["error_counts_by_kind"] == {"http_status": 20, "truncated": 4, "empty": 4}
    assert (figures["completed"], figures["failed"], figures["n"]["ttft"]) == (12, 28, 12)
    assert figures["error_rate"] == pytest.approx(0.7)
    assert figures["mean_ttft_ms"] > 0
    assert any("28 of 40 requests failed" in note for note in run.validity.notes)


def test_a_request_that_hangs_does_not_hold_up_the_others() -> None:
    """It ends at its time limit with the tokens it had; the limit counts from its last token."""
    def script_for(row: int) -> Script:
        return (*GOOD[:3], Hang()) if row == 3 else GOOD

    run, server = run_against(script_for, plan_of(10, rate_rps=20.0), request_timeout_s=0.2)
    assert Counter(run.outcome.tolist()) == {Outcome.OK: 9, Outcome.TIMEOUT_READ: 1}
    assert run.outcome[3] == Outcome.TIMEOUT_READ
    assert run.num_tokens[3] == 1
    assert run.end_ns[3] - run.last_token_ns()[3] >= 0.2e9
    hanging = next(request for request in server.requests[1:] if row_of(request) == 3)
    assert hanging.client_left_ns is not None
    assert run.engine_failure is None


def test_a_thousand_and_more_in_flight() -> None:
    """Nothing in the client caps concurrency: 1,100 requests are under way before the first is answered."""
    many = 1100

    async def run() -> tuple[Run, ScriptedServer]:
        all_there = asyncio.Event()

        def script_for(row: int) -> Script:
            if len(server.requests) == many + 1:
                all_there.set()
            return (Until(all_there), *GOOD)

        async with ScriptedServer(by_row(script_for)) as server:
            return await played(server.base_url, plan_of(many, rate_rps=float("inf"))), server

    measured, server = asyncio.run(run())
    assert server.peak_in_flight == measured.peak_in_flight() == many
    assert (measured.outcome == Outcome.OK).all()
    assert len({tuple(request.json()["prompt"]) for request in server.requests[1:]}) == many


def test_rates_below_one() -> None:
    """0.5 requests a second are sent at their times, neither rounded to none nor refused."""
    seed = next(seed for seed in range(1000) if plan_of(2, rate_rps=0.5, seed=seed).intended_ns[-1] < 4e8)
    run, _ = run_against(lambda row: GOOD, plan_of(2, rate_rps=0.5, seed=seed))
    assert run.rate_rps == 0.5
    assert (run.outcome == Outcome.OK).all()
    assert (run.sent_ns >= run.intended_ns).all()


def test_a_cap_on_concurrency_does_not_hide_the_wait_behind_it() -> None:
    """One place, 20 ms an answer, 200 a second: from the intended time the wait grows with every request."""
    answer = (Send(stream_head()), Wait(0.02), *GOOD[1:])
    run, server = run_against(lambda row: answer, plan_of(10, rate_rps=200.0), max_concurrency=1)
    assert server.peak_in_flight == run.peak_in_flight() == 1
    waits = run.sent_ns - run.intended_ns
    assert waits[-1] >= 9 * 20e6 - (run.intended_ns[-1] - run.intended_ns[0])
    figures = figures_of(run)
    assert figures["mean_ttft_from_intended_ms"] > figures["mean_ttft_ms"] > 0


def test_a_server_that_goes_away() -> None:
    """Refused connections are failures with their kind; the run says that the server is gone."""
    async def run() -> Run:
        async with ScriptedServer(PROBE) as server:
            engine = HttpEngine(HttpTarget(base_url=server.base_url))
            info = await engine.start()
        try:
            return await play(plan_of(5), engine, info, clock=WallClock(), salt="x")
        finally:
            await engine.stop()

    measured = asyncio.run(run())
    assert figures_of(measured)["error_counts_by_kind"] == {"connect": 5}
    assert "no longer takes connections" in str(measured.engine_failure)
    assert not measured.validity.valid


def test_a_long_run_does_not_go_on_against_a_server_that_is_gone() -> None:
    """Minutes of planned load end soon after nobody takes connections any more; the rest was never sent,
    and what was measured is kept."""
    async def run() -> Run:
        server = ScriptedServer(by_row(lambda row: GOOD))
        await server.__aenter__()
        engine = HttpEngine(HttpTarget(base_url=server.base_url))
        info = await engine.start()

        async def go_away() -> None:
            while len(server.requests) < 10:
                await asyncio.sleep(0.01)
            await server.__aexit__(None, None, None)

        leaving = asyncio.create_task(go_away())
        try:
            return await asyncio.wait_for(play(
                plan_of(20_000, rate_rps=100.0), engine, info, clock=WallClock(), salt="x",
                request_timeout_s=10), 60)
        finally:
            await leaving
            await engine.stop()

    measured = asyncio.run(run())
    assert measured.ok.sum() >= 8
    assert "no longer takes connections" in str(measured.engine_failure)
    assert (measured.outcome == Outcome.NOT_SENT).sum() > 15_000
    assert any("cut short" in why for why in measured.validity.reasons)


def test_a_blocked_client_says_so_and_still_reads_true_times() -> None:
    """The client's loop stands still for 200 ms, of which the server in its own process knows nothing: late
    sends make the run invalid, but no wait of the client gets into TTFT."""
    async def run() -> tuple[Run, dict[str, Any]]:
        async with PacedServer(ttft_ms=50) as server, engine_for(server.base_url) as (engine, info):
            await server.reset_truth()
            # The first requests have been sent by then, and the block outlasts their first tokens.
            asyncio.get_running_loop().call_later(0.06, time.sleep, 0.2)
            plan = plan_of(30, rate_rps=200.0, output_len=1, burstiness=float("inf"))
            measured = await play(plan, engine, info, clock=WallClock(), salt="x")
            return measured, await server.truth_arrays()

    measured, truth = asyncio.run(run())
    assert (measured.outcome == Outcome.OK).all()
    assert (measured.sent_ns - measured.intended_ns).max() > 100e6
    assert not measured.validity.valid
    assert any("late" in why for why in measured.validity.reasons)
    rows = [http_request_number(name.decode()) for name in truth["x_request_id"].tolist()]
    first, end = truth["send_ns"][truth["offset"][:-1]], truth["sent_ns"][truth["offset"][:-1]]
    read = measured.first_token_ns()[rows]
    assert (read >= first).all()
    # Without the kernel's stamps the first of them would be 150 ms late.
    assert np.percentile(read - end, 90) < 50e6


def test_progress_never_shows_more_in_flight_than_the_cap() -> None:
    """A stream that is over is not in flight, even while nobody has looked into it yet."""
    seen: list[int] = []

    async def run() -> None:
        server = ScriptedServer(by_row(lambda row: GOOD))
        async with server, engine_for(server.base_url) as (engine, info):
            await play(plan_of(300, rate_rps=float("inf")), engine, info, clock=WallClock(), salt="x",
                       max_concurrency=7, on_progress=lambda progress: seen.append(progress.in_flight))

    asyncio.run(run())
    assert seen
    assert max(seen) <= 7
