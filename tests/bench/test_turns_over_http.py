"""Conversations with a server: what is repeated, what follows a failure, and several workers."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.dispatch import play
from bench.run import NEVER, Outcome, Run
from bench.shards import to_share_out, worker_shares
from bench.workers import play_sharded
from engine_adapter.clock import WallClock
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.request_number import http_request_number
from engine_adapter.test_servers.script import Script, Send, streamed
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import response
from workloads import Plan

MS = 1_000_000
NEW, ANSWER = 16, 2


def plan_of(sessions: list[int], *, think_ms: int = 5) -> Plan:
    turn = [sessions[:i].count(s) if s >= 0 else 0 for i, s in enumerate(sessions)]
    n = len(sessions)
    return Plan(
        intended_ns=np.arange(n) * MS, session=sessions, turn=turn, think_ns=np.full(n, think_ms * MS),
        input_len=NEW + (NEW + ANSWER) * np.array(turn), output_len=np.full(n, ANSWER),
        component=np.zeros(n), prefix_group=np.full(n, -1), num_warmups=0, seed=3, rate_rps=1000.0,
        component_names=("chat",))


def answer(request: ScriptedRequest) -> Script:
    """Two tokens with their ids, which name the request."""
    number = 20 + http_request_number(request.headers["x-request-id"])
    events = [{"choices": [{"index": 0, "text": "a", "token_ids": [number], "finish_reason": reason}]}
              for reason in (None, "length")]
    return streamed(events, gap_s=0)


def played(plan: Plan, server: ScriptedServer) -> Run:
    async def go() -> Run:
        async with server:
            engine = HttpEngine(HttpTarget(base_url=server.base_url), vocab_size=1000)
            try:
                info = await engine.start()
                server.requests.clear()   # the probes
                return await play(plan, engine, info, clock=WallClock(), salt="s")
            finally:
                await engine.stop()

    return asyncio.run(go())


def prompts_of(server: ScriptedServer) -> dict[int, list[int]]:
    return {http_request_number(request.headers["x-request-id"]): request.json()["prompt"]
            for request in server.requests}


def test_the_next_prompt_repeats_what_the_server_answered() -> None:
    """The ids that the server told with its answer come after the prompt before, then new ones; the turn is
    sent when its reader has thought."""
    server = ScriptedServer(answer)
    run = played(plan_of([0, -1, 0, 0]), server)
    assert run.outcome.tolist() == [Outcome.OK] * 4
    prompts = prompts_of(server)
    assert prompts[2][:18] == [*prompts[0], 20, 20]
    assert prompts[3][:36] == [*prompts[2], 22, 22]
    assert len(prompts[3]) == 52
    assert run.meta["history"] == "answers"
    assert (run.intended_ns[2:] == run.end_ns[[0, 2]] + 5 * MS).all()
    assert (run.sent_ns >= run.intended_ns).all()


def test_a_turn_after_a_refused_one_is_not_sent() -> None:
    """Nothing with its number reaches the server, and its outcome says why."""
    def choose(request: ScriptedRequest) -> Script:
        if http_request_number(request.headers["x-request-id"]) == 1:
            return (Send(response({"error": "busy"}, status=503)),)
        return answer(request)

    server = ScriptedServer(choose)
    run = played(plan_of([0, 1, 0, 1, 1]), server)
    failed = Outcome.PREDECESSOR_FAILED
    assert run.outcome.tolist() == [Outcome.OK, Outcome.HTTP_STATUS, Outcome.OK, failed, failed]
    assert sorted(prompts_of(server)) == [0, 1, 2]
    assert (run.sent_ns[3:] == NEVER).all()


def test_ids_that_no_vocabulary_has_are_not_repeated() -> None:
    """A server that tells nonsense gets the made-up answer instead."""
    def choose(request: ScriptedRequest) -> Script:
        choice = {"index": 0, "text": "a", "token_ids": [-4, 1 << 40], "finish_reason": "length"}
        return streamed([{"choices": [choice]}], gap_s=0)

    server, plan = ScriptedServer(choose), plan_of([0, 0])
    run = played(plan, server)
    assert run.ok.all()
    assert run.meta["history"] == "made-up"
    assert prompts_of(server)[1] == plan.prompt_token_ids(1, vocab_size=1000, salt="s")


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=40), st.integers(1, 9))
def test_one_worker_has_the_whole_conversation(sessions: list[int], workers: int) -> None:
    """Every request has one worker, all turns of a conversation the same, and no worker has nothing."""
    plan = plan_of(sessions)
    shares = [share.rows(plan) for share in worker_shares(to_share_out(plan), workers)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(plan)))
    assert all(len(rows) for rows in shares)
    for session in set(sessions) - {-1}:
        assert sum(bool((plan.session[rows] == session).any()) for rows in shares) == 1


def test_two_workers_send_the_prompts_of_one() -> None:
    """Sharing out conversations changes neither the prompts nor what is repeated in them."""
    plan = plan_of([0, 1, -1, 0, 1, 0])

    async def go(server: ScriptedServer) -> Run:
        async with server:
            target = HttpTarget(base_url=server.base_url)
            engine = HttpEngine(target, vocab_size=1000)
            info = await engine.start()
            await engine.stop()
            server.requests.clear()
            return await play_sharded(plan, target, info, workers=2, salt="s")

    alone, shared = ScriptedServer(answer), ScriptedServer(answer)
    played(plan, alone)
    run = asyncio.run(go(shared))
    assert run.ok.all()
    assert run.session.tolist() == plan.session.tolist()
    assert prompts_of(shared) == prompts_of(alone)
    assert run.meta["history"] == "answers"
