"""An engine that stops answering is noticed by its silence, not by an empty queue."""

import asyncio

from bench import Outcome, play
from engine_adapter.clock import VirtualClock
from engine_adapter.errors import Hung
from engine_adapter.scripted import Fault, ScriptedEngine
from workloads import build_plan, load_workload


def test_a_hang_is_noticed_while_requests_keep_arriving() -> None:
    """New arrivals are no sign of life: the run ends one time limit after the last token."""
    async def run_it() -> tuple[object, int]:
        clock = VirtualClock()
        engine = ScriptedEngine(clock, faults=(Fault("hang", at_step=40),))
        info = await engine.start()
        plan = build_plan(load_workload("cpu"), rate_rps=2, seed=1, duration_s=300)
        run = await play(plan, engine, info, clock=clock, salt="s", request_timeout_s=10)
        silent_ns = clock.now_ns() - int(run.read_ns.max())
        await engine.stop()
        assert isinstance(run.engine_failure, Hung)
        assert (run.outcome == Outcome.NOT_SENT).sum() > 400
        return run, silent_ns

    _, silent_ns = asyncio.run(run_it())
    assert silent_ns < 12_000_000_000
