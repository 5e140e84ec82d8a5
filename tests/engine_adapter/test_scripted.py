"""The fake that ships with the package keeps the contract, and its faults look like an engine's."""

import asyncio
import itertools

import pytest

from engine_adapter.clock import VirtualClock
from engine_adapter.contract import EngineContract
from engine_adapter.errors import Crashed, OutOfMemory, StartFailed
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.scripted import Fault, ScriptedEngine
from engine_adapter.seam import Engine, GenerateRequest


class TestScriptedEngine(EngineContract):
    @classmethod
    def make_engine(cls) -> Engine:
        return ScriptedEngine(VirtualClock())


class TestScriptedEngineWithFixedKnobs(EngineContract):
    @classmethod
    def make_engine(cls) -> Engine:
        return ScriptedEngine(VirtualClock(), live_knobs=False)


async def _tokens(engine: ScriptedEngine, number: int, input_len: int, output_len: int) -> list[int]:
    stream = engine.generate(GenerateRequest(number, [5] * input_len, output_len))
    return [event.read_ns async for event in stream]


def test_a_long_prompt_stalls_the_streams_unless_the_budget_is_small() -> None:
    """The fake reproduces the project's subject: whole prefills stall decodes, chunks do not."""

    def longest_gap(budget: int) -> int:
        async def play() -> int:
            limits = KnobLimits(4096, 128, 8192)
            engine = ScriptedEngine(VirtualClock(), knobs=Knobs(budget, 16), limits=limits)
            await engine.start()
            reader = asyncio.create_task(_tokens(engine, 0, 10, 60))
            await engine.clock.sleep_until(engine.clock.now_ns() + 300_000_000)
            await _tokens(engine, 1, 1000, 1)
            times = await reader
            await engine.stop()
            return max(b - a for a, b in itertools.pairwise(times))

        return asyncio.run(play())

    assert longest_gap(2048) > 600_000_000
    assert longest_gap(64) < 100_000_000


def test_the_same_script_gives_the_same_times() -> None:
    """On a virtual clock two plays are equal to the nanosecond."""

    async def play() -> list[list[int]]:
        engine = ScriptedEngine(VirtualClock())
        await engine.start()
        times = await asyncio.gather(*[_tokens(engine, n, 50 * (n + 1), 5) for n in range(5)])
        await engine.stop()
        return times

    assert asyncio.run(play()) == asyncio.run(play())


def test_a_crash_reaches_every_stream() -> None:
    """When the engine dies, everything in flight and everything later raises Crashed."""

    async def play() -> None:
        engine = ScriptedEngine(VirtualClock(), faults=(Fault("crash", at_step=3),))
        await engine.start()
        streams = [_tokens(engine, n, 10, 50) for n in range(3)]
        results = await asyncio.gather(*streams, return_exceptions=True)
        assert [type(r) for r in results] == [Crashed] * 3
        with pytest.raises(Crashed):
            await _tokens(engine, 9, 10, 1)
        await engine.stop()

    asyncio.run(play())


@pytest.mark.parametrize(("kind", "error"), [("start_failed", StartFailed), ("out_of_memory", OutOfMemory)])
def test_a_failed_start_is_typed(kind: str, error: type[Exception]) -> None:
    """Why an engine did not start is told apart by type."""
    with pytest.raises(error):
        asyncio.run(ScriptedEngine(VirtualClock(), faults=(Fault(kind),)).start())  # type: ignore[arg-type]
