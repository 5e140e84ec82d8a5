"""Conversations against the scripted engine: when later turns are sent, and what they repeat."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.dispatch import play
from bench.recorder import Progress, RunRecorder
from bench.run import NEVER, Outcome, Run
from bench.store import load_run, save_run
from engine_adapter.clock import VirtualClock
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.scripted import Fault, LinearStep, ScriptedEngine
from engine_adapter.seam import EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.step_log import StepLog
from workloads import Plan

MS = 1_000_000
STEP = LinearStep(fixed_ns=10 * MS, prefill_token_ns=0, decode_ns=0, attention_ns=0)
"""Ten milliseconds a step: an answer of 4 tokens takes 40 ms where it need not wait for a step to end."""
ANSWER_TOKENS = 4


def plan_of(rows: Sequence[tuple[int, int, int, int]], *, rate: float = 10.0, warmups: int = 0) -> Plan:
    """Rows of (intended ms, session, turn, think ms), each with 16 new tokens."""
    intended_ms, session, turn, think_ms = (list(column) for column in zip(*rows, strict=True))
    n = len(rows)
    return Plan(
        intended_ns=np.array(intended_ms) * MS, session=np.array(session), turn=np.array(turn),
        think_ns=np.array(think_ms) * MS, input_len=16 + (16 + ANSWER_TOKENS) * np.array(turn),
        output_len=np.full(n, ANSWER_TOKENS), component=np.zeros(n), prefix_group=np.full(n, -1),
        num_warmups=warmups, seed=3, rate_rps=rate, component_names=("chat",))


def played(plan: Plan, *, faults: tuple[Fault, ...] = (), max_len: int = 8192, **how: Any) -> Run:
    async def go() -> Run:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, knobs=Knobs(2048, 64), limits=KnobLimits(2048, 128, max_len),
                                step_cost=STEP, faults=faults)
        info = await engine.start()
        try:
            return await play(plan, engine, info, clock=clock, salt="s", **how)
        finally:
            await engine.stop()

    return asyncio.run(go())


def since_start_ms(run: Run, times: np.ndarray[Any, Any]) -> list[float]:
    return [(t - run.start_ns) / MS if t != NEVER else NEVER for t in times.tolist()]


def test_a_later_turn_is_sent_when_its_predecessor_has_ended_and_its_reader_has_thought() -> None:
    """The answer ends at 50 ms and is thought about for 100 ms: the next turn is meant for and sent at 150,
    and the third, whose planned time is later than that, at its planned time."""
    run = played(plan_of([(10, 0, 0, 0), (110, 0, 1, 100), (900, 0, 2, 100)]))
    assert since_start_ms(run, run.end_ns) == [50, 190, 940]
    assert since_start_ms(run, run.sent_ns) == [10, 150, 900]
    assert run.intended_ns.tolist() == run.due_ns.tolist() == run.sent_ns.tolist()
    assert run.validity.valid, run.validity


def test_other_requests_are_sent_while_a_turn_waits() -> None:
    """Neither an answer nor a reader that takes its time keeps anybody else waiting, and a turn that becomes
    due before the next planned request goes before it."""
    run = played(plan_of([(10, 0, 0, 0), (11, 0, 1, 500), (12, -1, 0, 0), (300, -1, 0, 0), (5000, -1, 0, 0)]))
    sent = since_start_ms(run, run.sent_ns)
    assert (sent[0], sent[2], sent[3], sent[4]) == (10, 12, 300, 5000)
    assert sent[1] == since_start_ms(run, run.end_ns)[0] + 500


def test_a_turn_whose_predecessor_failed_is_never_sent() -> None:
    """All turns after a refused one fail with it, count as attempted, and others go on."""
    plan = plan_of([(10, 0, 0, 0), (20, 1, 0, 0), (30, 0, 1, 5), (40, 1, 1, 5), (50, 0, 2, 5)])
    seen: list[Progress] = []
    run = played(plan, faults=(Fault("reject", request=0),), on_progress=seen.append)
    failed = Outcome.PREDECESSOR_FAILED
    assert run.outcome.tolist() == [Outcome.REJECTED, Outcome.OK, failed, Outcome.OK, failed]
    assert run.attempted.all()
    assert run.sent_ns[[2, 4]].tolist() == run.end_ns[[2, 4]].tolist() == [NEVER, NEVER]
    assert since_start_ms(run, run.intended_ns)[2] == 30
    last = seen[-1]
    assert (last.planned, last.sent, last.finished, last.failed, last.in_flight) == (5, 3, 5, 3, 0)
    assert any("2 predecessor_failed" in note for note in run.validity.notes)


def test_a_turn_that_hangs_ends_its_conversation() -> None:
    """A request that brings nothing is ended as hung, and the turn after it is not sent."""
    class HalfMute(_Telling):
        async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
            if request.number == 0:
                await asyncio.Event().wait()
            async for event in super().generate(request):
                yield event

    rows = [(0, 0, 0, 0), (1, 0, 1, 0)] + [(500 * i, -1, 0, 0) for i in range(1, 20)]
    run, _ = told(plan_of(rows), HalfMute, request_timeout_s=2.0)
    assert run.outcome[:2].tolist() == [Outcome.HUNG, Outcome.PREDECESSOR_FAILED]
    assert (run.outcome[2:] == Outcome.OK).all()


def test_a_turn_whose_predecessor_was_already_late_is_judged_from_its_own_due_time() -> None:
    """A slow answer is no lateness of this client: the run of a conversation on a slow engine is valid."""
    run = played(plan_of([(0, 0, 0, 0), *((1, 0, turn, 0) for turn in range(1, 40))]))
    assert run.ok.all()
    assert run.validity.valid, run.validity
    assert run.sent_ns[39] - run.start_ns == 39 * 4 * 10 * MS


def test_under_a_cap_whoever_is_due_first_gets_the_place() -> None:
    """Of those who wait for a place the one with the earliest due time goes, a later turn among them."""
    rows = [(10, 0, 0, 0), (20, -1, 0, 0), (45, 0, 1, 0), (60, -1, 0, 0)]
    run = played(plan_of(rows), max_concurrency=1)
    assert since_start_ms(run, run.sent_ns) == [10, 50, 90, 130]
    assert since_start_ms(run, run.intended_ns) == [10, 20, 50, 60]
    assert since_start_ms(run, run.due_ns) == [10, 50, 90, 130]


def test_nobody_holds_a_place_while_he_thinks() -> None:
    """A conversation in thought leaves its place to others, also where there is but one."""
    rows = [(0, 0, 0, 0), (1, 0, 1, 1000), (2, -1, 0, 0)]
    run = played(plan_of(rows), max_concurrency=1)
    assert since_start_ms(run, run.sent_ns) == [0, 1040, 40]


def test_in_a_closed_loop_a_later_turn_is_meant_for_its_place() -> None:
    """It joins behind those who are due before it, and counts from when it could be sent."""
    run = played(plan_of([(0, 0, 0, 0), (0, -1, 0, 0), (0, -1, 0, 0), (0, 0, 1, 15)], rate=math.inf),
                 max_concurrency=1)
    assert since_start_ms(run, run.sent_ns) == [0, 40, 80, 120]
    assert (run.intended_ns == run.sent_ns).all()
    assert run.validity.valid


def test_turns_that_come_after_the_last_moment_are_not_sent() -> None:
    """Nothing is sent later than `dispatch_for_s`, and nobody waits for a thinker until then."""
    run = played(plan_of([(0, 0, 0, 0), (1, 0, 1, 50), (2, 0, 2, 10_000), (3, -1, 0, 0)]), dispatch_for_s=0.2)
    assert run.outcome.tolist() == [Outcome.OK, Outcome.OK, Outcome.NOT_SENT, Outcome.OK]
    assert run.end_ns.max() < run.start_ns + 300 * MS


def test_a_run_that_is_cancelled_leaves_later_turns_unsent() -> None:
    """What waited for a predecessor when the run was cut short was not sent, and has not failed."""
    async def go() -> Run:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, step_cost=STEP)
        info = await engine.start()
        recorder = RunRecorder(plan_of([(0, 0, 0, 0), (1, 0, 1, 50)]))
        playing = asyncio.create_task(play(recorder.plan, engine, info, clock=clock, salt="s",
                                           recorder=recorder))
        await clock.sleep_until(clock.now_ns() + 35 * MS)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await engine.stop()
        return recorder.run(cut_short="Ctrl-C")

    assert asyncio.run(go()).outcome.tolist() == [Outcome.CUT_SHORT, Outcome.NOT_SENT]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_turn_is_early_and_none_is_lost(data: st.DataObject) -> None:
    """Whatever the plan and the cap: every turn comes once, in order, at its due time or when its place
    became free, and never before its predecessor has ended and its reader has thought."""
    sessions = data.draw(st.integers(1, 4))
    rows, turns = [], [0] * sessions
    for at_ms in sorted(data.draw(st.lists(st.integers(0, 200), min_size=1, max_size=14))):
        session = data.draw(st.integers(-1, sessions - 1))
        think = data.draw(st.sampled_from([0, 7, 60]))
        rows.append((at_ms, session, turns[session] if session >= 0 else 0, think))
        turns[session] += session >= 0
    cap = data.draw(st.sampled_from([None, 1, 3]))
    plan = plan_of(rows)
    run = played(plan, max_concurrency=cap)
    assert run.ok.all()
    assert (run.sent_ns == run.due_ns).all()
    later = np.flatnonzero(plan.predecessor >= 0)
    thought = run.end_ns[plan.predecessor[later]] + plan.think_ns[later]
    assert (run.intended_ns[later]
            == np.maximum(thought, run.start_ns + plan.intended_ns[later])).all()
    firsts = plan.predecessor < 0
    assert (run.intended_ns[firsts] == run.start_ns + plan.intended_ns[firsts]).all()
    assert cap is None or run.peak_in_flight() <= cap


class _Telling:
    """Answers at once with tokens of its own, and tells them where they are wanted."""

    tells = True

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.requests: dict[int, GenerateRequest] = {}

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        self.requests[request.number] = request
        answer = [1000 + request.number] * ANSWER_TOKENS
        await self.clock.sleep_until(self.clock.now_ns() + MS)
        told = answer if request.wants_token_ids and self.tells else ()
        yield TokenEvent(self.clock.now_ns(), ANSWER_TOKENS, "length", told)

    def step_log(self) -> StepLog:
        return StepLog()


def told(plan: Plan, kind: type[_Telling] = _Telling, fingerprint: dict[str, Any] | None = None,
         **how: Any) -> tuple[Run, _Telling]:
    async def go() -> tuple[Run, _Telling]:
        clock = VirtualClock()
        engine = kind(clock)
        info = EngineInfo(
            name="telling", version="1", model="m", max_model_len=None, vocab_size=500, knobs=None,
            default_knobs=None, limits=None, num_kv_blocks=None, kv_block_size=None, live_knobs=False,
            live_knobs_note="no", start_seconds=0.0, fingerprint=fingerprint or {})
        return await play(plan, engine, info, clock=clock, salt="s", **how), engine   # type: ignore[arg-type]

    return asyncio.run(go())


THREE_TURNS = plan_of([(0, 0, 0, 0), (1, 0, 1, 5), (2, -1, 0, 0), (3, 0, 2, 5)])


def test_later_turns_repeat_what_was_really_answered() -> None:
    """The prompt of a turn is the one before it, the answer's own tokens, then new ones."""
    run, engine = told(THREE_TURNS)
    first, second, third = (list(engine.requests[row].prompt_token_ids) for row in (0, 1, 3))
    assert second[:20] == [*first, *[1000] * 4]
    assert third[:40] == [*second, *[1001] * 4]
    assert [len(prompt) for prompt in (first, second, third)] == [16, 36, 56]
    assert run.meta["history"] == "answers"
    assert [engine.requests[row].wants_token_ids for row in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("fingerprint", [{}, {"prompts": "text"}])
def test_answers_that_are_not_told_or_cannot_be_repeated_are_made_up(fingerprint: dict[str, str]) -> None:
    """Where the engine tells no tokens, or takes prompts as words, the plan's made-up answer stands in, the
    same in every later turn, and the run says so."""
    class Silent(_Telling):
        tells = bool(fingerprint)

    run, engine = told(THREE_TURNS, Silent, fingerprint)
    for row in (0, 1, 3):
        assert list(engine.requests[row].prompt_token_ids) == THREE_TURNS.prompt_token_ids(
            row, vocab_size=500, salt="s")
    assert run.meta["history"] == "made-up"
    assert not (fingerprint and engine.requests[0].wants_token_ids)


def test_a_run_without_later_turns_says_nothing_of_histories() -> None:
    """`history` is there only where there was one."""
    run, engine = told(plan_of([(0, 0, 0, 0), (1, -1, 0, 0)]))
    assert "history" not in run.meta
    assert not engine.requests[0].wants_token_ids


def test_a_worker_plays_turns_without_their_predecessors_as_first_ones() -> None:
    """Of `rows` a turn whose predecessor is not among them waits for nobody."""
    run, engine = told(THREE_TURNS, rows=np.array([1, 3]))
    assert run.outcome.tolist() == [Outcome.NOT_SENT, Outcome.OK, Outcome.NOT_SENT, Outcome.OK]
    assert run.sent_ns[1] - run.start_ns == MS
    assert len(engine.requests[3].prompt_token_ids) == 56


def test_runs_keep_session_and_turn(tmp_path: Any) -> None:
    """The columns are those of the plan, and stay through saving and loading."""
    run, _ = told(THREE_TURNS)
    again = load_run(save_run(run, tmp_path / "run"))
    assert again.session.tolist() == run.session.tolist() == [0, 0, -1, 0]
    assert again.turn.tolist() == run.turn.tolist() == [0, 1, 0, 2]
