import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from bench.dispatch import play
from bench.recorder import Progress, RunRecorder
from bench.run import NEVER, Outcome, Run
from engine_adapter.clock import Clock, VirtualClock, WallClock
from engine_adapter.errors import Rejected
from engine_adapter.scripted import Fault, ScriptedEngine
from engine_adapter.seam import EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.step_log import StepLog
from workloads import Plan

MS = 1_000_000
SECOND = 1_000 * MS


def plan_of(intended_ms: list[int], *, warmups: int = 0, output_len: int = 4, input_len: int = 16) -> Plan:
    n = len(intended_ms)
    none = np.full(n, -1, dtype=np.int32)
    return Plan(
        intended_ns=np.array(intended_ms, dtype=np.int64) * MS,
        input_len=np.full(n, input_len, dtype=np.int32),
        output_len=np.full(n, output_len, dtype=np.int32), component=np.zeros(n, dtype=np.int16),
        prefix_group=none, session=none, turn=np.zeros(n, dtype=np.int32), num_warmups=warmups, seed=3,
        rate_rps=10.0, component_names=("chat",),
    )


@dataclass
class Scene:
    """One plan on one scripted engine in virtual time."""

    plan: Plan
    faults: tuple[Fault, ...] = ()
    timeout_s: float = 5.0
    progress: list[Progress] = field(default_factory=list)

    def play(self) -> Run:
        return asyncio.run(self._play())

    async def _play(self) -> Run:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, faults=self.faults)
        info = await engine.start()
        try:
            return await play(self.plan, engine, info, clock=clock, salt="s",
                              request_timeout_s=self.timeout_s, on_progress=self.progress.append)
        finally:
            await engine.stop()


class Silent:
    """An engine whose requests named in `mute` never answer; the others give `reads` (times are gaps)."""

    def __init__(
        self, clock: Clock, *, mute: frozenset[int] = frozenset(), reads: tuple[TokenEvent, ...] = ()
    ) -> None:
        self.clock, self.mute, self.reads = clock, mute, reads
        self.prompts: dict[int, list[int]] = {}
        self.open = 0

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        self.prompts[request.number] = list(request.prompt_token_ids)
        self.open += 1
        try:
            if request.number in self.mute:
                await asyncio.Event().wait()
            for event in self.reads:
                await self.clock.sleep_until(self.clock.now_ns() + event.read_ns)
                yield TokenEvent(self.clock.now_ns(), event.num_tokens, event.finish_reason)
        finally:
            self.open -= 1

    def step_log(self) -> StepLog:
        return StepLog()


def info_of() -> EngineInfo:
    return asyncio.run(ScriptedEngine(clock=VirtualClock()).start())


def play_silent(plan: Plan, *, timeout_s: float = 5.0, **behaviour) -> tuple[Run, Silent]:
    async def go() -> tuple[Run, Silent]:
        clock = VirtualClock()
        engine = Silent(clock, **behaviour)
        run = await play(plan, engine, info_in_loop, clock=clock, salt="s", request_timeout_s=timeout_s)
        return run, engine

    info_in_loop = info_of()
    return asyncio.run(go())


def test_every_request_is_sent_on_the_absolute_schedule() -> None:
    """Sends happen exactly when planned, even while the engine is busy for longer than the gaps."""
    run = Scene(plan_of([10 * i for i in range(1, 41)], input_len=400), timeout_s=60).play()
    assert (run.sent_ns == run.intended_ns).all()
    assert np.diff(run.intended_ns).tolist() == [10 * MS] * 39
    assert run.outcome.tolist() == [Outcome.OK] * 40
    assert run.validity.valid, run


def test_reads_carry_the_engines_own_time_stamps() -> None:
    """Each read keeps its time and tokens; time to first token and the gaps add up to the end."""
    reads = (TokenEvent(30 * MS, 2), TokenEvent(20 * MS, 1), TokenEvent(50 * MS, 1, "length"))
    run, _ = play_silent(plan_of([5, 7]), reads=reads)
    assert run.read_tokens.tolist() == [2, 1, 1] * 2
    assert (run.read_ns[:3] - run.sent_ns[0]).tolist() == [30 * MS, 50 * MS, 100 * MS]
    assert run.num_tokens.tolist() == [4, 4]
    assert (run.end_ns == run.last_token_ns()).all()


def test_prompts_depend_on_the_salt_and_are_those_of_the_plan() -> None:
    """What is sent is the plan's prompt for the run's salt."""
    plan = plan_of([1, 2])
    _, engine = play_silent(plan, reads=(TokenEvent(MS, 4, "length"),))
    assert engine.prompts[1] == plan.prompt_token_ids(1, vocab_size=info_of().vocab_size, salt="s")


def test_warm_up_rows_are_labelled_and_the_run_knows_itself() -> None:
    """The plan's first rows are warm-up; meta names knobs, seed, digest, salt and token counting."""
    scene = Scene(plan_of([1, 2, 3], warmups=1))
    run = scene.play()
    assert run.warmup.tolist() == [True, False, False]
    assert run.meta["plan_digest"] == scene.plan.digest()
    assert {"knobs", "engine", "seed", "rate_rps", "salt", "token_count_source", "versions"} <= set(run.meta)
    assert len(run.steps) > 0
    assert run.steps.first_scheduled()[0].tolist() == [0, 1, 2]


def test_a_refused_request_is_a_row_and_the_others_go_on() -> None:
    """Rejection becomes the outcome of its row only."""
    run = Scene(plan_of([1, 2, 3]), faults=(Fault("reject", request=1),)).play()
    assert run.outcome.tolist() == [Outcome.OK, Outcome.REJECTED, Outcome.OK]
    assert run.engine_failure is None
    assert run.end_ns[1] != NEVER


def test_a_crash_ends_the_run_and_is_said() -> None:
    """After the engine died nothing more is sent; the run names the failure and is invalid."""
    run = Scene(plan_of([1, 2, 4_000]), faults=(Fault("crash", at_step=2),)).play()
    assert run.outcome[2] == Outcome.NOT_SENT
    assert set(run.outcome[:2].tolist()) <= {Outcome.CRASHED, Outcome.CUT_SHORT}
    assert Outcome.CRASHED in run.outcome
    assert "died at step 2" in str(run.engine_failure)
    assert not run.validity.valid
    assert "died at step 2" in run.validity.reasons[0]
    assert run.outcome_counts()["not_sent"] == 1


def test_an_engine_that_stops_answering_is_noticed_by_the_deadline() -> None:
    """When no request in flight gets a token in time, the engine is hung and the run ends."""
    scene = Scene(plan_of([1, 2, 60_000]), faults=(Fault("hang", at_step=2),), timeout_s=5)
    run = scene.play()
    assert run.outcome.tolist() == [Outcome.HUNG, Outcome.HUNG, Outcome.NOT_SENT]
    assert "no token for 5 s" in str(run.engine_failure)
    assert run.end_ns.max() - run.sent_ns[0] < 6 * SECOND


def test_one_silent_request_is_hung_and_the_others_are_not() -> None:
    """A request without any token for the time limit is cancelled alone while others get theirs."""
    slow = (*(TokenEvent(SECOND, 1) for _ in range(7)), TokenEvent(SECOND, 1, "length"))
    run, engine = play_silent(plan_of([1, 2]), mute=frozenset({0}), reads=slow)
    assert run.outcome.tolist() == [Outcome.HUNG, Outcome.OK]
    assert run.engine_failure is None
    assert engine.open == 0


@pytest.mark.parametrize(
    ("reads", "outcome"),
    [
        ((TokenEvent(MS, 1),), Outcome.TRUNCATED),
        ((), Outcome.TRUNCATED),
        ((TokenEvent(MS, 0, "stop"),), Outcome.EMPTY),
        ((TokenEvent(MS, 2), TokenEvent(MS, 0, "abort")), Outcome.ERROR),
        ((TokenEvent(MS, 1, "stop"),), Outcome.OK),
        ((TokenEvent(MS, 2), TokenEvent(MS, 0, "length")), Outcome.OK),
    ],
)
def test_success_needs_a_finish_reason_a_token_and_no_error(
    reads: tuple[TokenEvent, ...], outcome: Outcome
) -> None:
    """A stream that just stops, brings nothing, or is aborted has failed."""
    run, _ = play_silent(plan_of([1]), reads=reads)
    assert Outcome(run.outcome[0]) is outcome


def test_an_empty_plan_gives_an_empty_run() -> None:
    """Nothing to send is no error, but no evidence either."""
    run, _ = play_silent(plan_of([]))
    assert len(run) == 0
    assert not run.validity.valid


def test_progress_counts_and_ends_complete() -> None:
    """The last report has every request finished and none in flight."""
    scene = Scene(plan_of([1, 2, 3]), faults=(Fault("reject", request=0),))
    scene.play()
    last = scene.progress[-1]
    assert (last.planned, last.sent, last.finished, last.failed, last.in_flight) == (3, 3, 3, 1, 0)
    assert last.tokens == 8


def test_cancelling_leaves_nothing_open_and_keeps_what_was_measured() -> None:
    """On cancellation all requests are closed; the recorder still gives the run, marked cut short."""

    async def go() -> tuple[Run, Silent]:
        clock = VirtualClock()
        engine = Silent(clock, mute=frozenset({1}), reads=(TokenEvent(10 * MS, 4, "length"),))
        plan = plan_of([1, 2, 900_000])
        recorder = RunRecorder(plan)
        playing = asyncio.create_task(play(plan, engine, info, clock=clock, salt="s", recorder=recorder))
        await clock.sleep_until(200 * MS)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return recorder.run(cut_short="interrupted"), engine

    info = info_of()
    run, engine = asyncio.run(go())
    assert engine.open == 0
    assert run.outcome.tolist() == [Outcome.OK, Outcome.CUT_SHORT, Outcome.NOT_SENT]
    assert run.validity.reasons[0] == "the run was cut short: interrupted"
    assert run.attempted.tolist() == [True, False, False]


def test_a_defect_is_raised_not_recorded() -> None:
    """An exception that is no engine error is a defect: it surfaces, after everything is closed."""

    class Broken(Silent):
        async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
            raise ZeroDivisionError("defect")
            yield TokenEvent(0, 0)

    async def go() -> None:
        clock = VirtualClock()
        await play(plan_of([1, 2]), Broken(clock), info, clock=clock, salt="s")

    info = info_of()
    with pytest.raises(ZeroDivisionError, match="defect"):
        asyncio.run(go())


def test_garbage_collection_is_back_after_a_run() -> None:
    """The collector is off while measuring and restored afterwards, also when the run fails."""
    seen = []

    class Watching(Silent):
        async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
            seen.append(gc.isenabled())
            raise Rejected("no")
            yield TokenEvent(0, 0)

    async def go() -> None:
        clock = VirtualClock()
        await play(plan_of([1]), Watching(clock), info, clock=clock, salt="s")

    info = info_of()
    asyncio.run(go())
    assert seen == [False]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_on_the_wall_clock_the_loop_lag_is_measured() -> None:
    """A real run carries loop-lag figures; a virtual one has none to carry."""

    async def go() -> Run:
        clock = WallClock()
        engine = Silent(clock, reads=(TokenEvent(30 * MS, 4, "length"),))
        return await play(plan_of([1, 20]), engine, info, clock=clock, salt="s")

    info = info_of()
    run = asyncio.run(go())
    assert run.client.loop_lag_max_ns is not None
    assert (run.sent_ns >= run.intended_ns).all()
    assert Scene(plan_of([1])).play().client.loop_lag_max_ns is None
