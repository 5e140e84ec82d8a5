"""The simulated engine keeps the contract, on every kind of scheduling, and shares prefixes by token ids."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from engine_adapter.clock import Clock, VirtualClock, WallClock
from engine_adapter.contract import EngineContract
from engine_adapter.errors import NeedsRestart, Rejected
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Engine, GenerateRequest
from engine_adapter.simulator.engine import SimulatedEngine
from engine_adapter.simulator.prefix_keys import PrefixKeys
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost

MS = 1_000_000
T = TypeVar("T")
SETTINGS = SchedulerSettings(token_budget=512, max_seqs=16, max_model_len=2048, num_kv_blocks=400)
COST = StepCost.linear(token_ns=20_000, fixed_ns=3 * MS, decode_ns=5_000, chunk_pair_ns=2.0, host_ns=100_000,
                       host_request_ns=3_000, arrival_ns=40_000, arrival_token_ns=70, delivery_ns=90_000)


class TestSimulatedEngine(EngineContract):
    @classmethod
    def make_engine(cls) -> Engine:
        return SimulatedEngine(VirtualClock(), SETTINGS, COST)


class TestSimulatedEngineWithSmallWays(EngineContract):
    @classmethod
    def make_engine(cls) -> Engine:
        bare = replace(COST, host_ns=0, host_request_ns=0, arrival_ns=0, arrival_token_ns=0, delivery_ns=0)
        return SimulatedEngine(VirtualClock(), replace(SETTINGS, prefix_caching=True), bare)


class TestSimulatedEngineAhead(EngineContract):
    @classmethod
    def make_engine(cls) -> Engine:
        settings = replace(SETTINGS, async_scheduling=True, prefix_caching=True, pipeline_parallel=2)
        return SimulatedEngine(VirtualClock(), settings, replace(COST, transfer_ns=20_000))


class TestSimulatedEngineOnTheWallClock(EngineContract):
    @classmethod
    def make_engine(cls) -> Engine:
        quick = StepCost.linear(token_ns=100, fixed_ns=200_000)
        return SimulatedEngine(WallClock(), SETTINGS, quick)


def run_on(engine: SimulatedEngine, work: Coroutine[Any, Any, T]) -> T:
    async def whole() -> T:
        await engine.start()
        try:
            return await work
        finally:
            await engine.stop()

    return asyncio.run(whole())


async def first_token_ns(engine: SimulatedEngine, clock: Clock, number: int, prompt: list[int]) -> int:
    sent_ns = clock.now_ns()
    times = [event.read_ns async for event in engine.generate(GenerateRequest(number, prompt, 1))]
    return times[0] - sent_ns


def test_a_known_prompt_is_answered_from_the_cache_until_it_is_reset() -> None:
    """Equal token ids share KV blocks; a prompt that differs in its first token shares none."""
    clock = VirtualClock()
    engine = SimulatedEngine(clock, replace(SETTINGS, prefix_caching=True), COST)
    prompt, other = list(range(10, 490)), [9, *range(11, 490)]

    async def play() -> list[int]:
        times = [await first_token_ns(engine, clock, number, ids)
                 for number, ids in enumerate((prompt, prompt, other))]
        await engine.reset_caches()
        return [*times, await first_token_ns(engine, clock, 3, prompt)]

    fresh, again, changed, forgotten = run_on(engine, play())
    assert again < fresh / 2
    assert changed == fresh == forgotten


def test_what_the_start_decides_cannot_be_applied() -> None:
    """The queue's order is no live knob, as in vLLM."""
    engine = SimulatedEngine(VirtualClock(), SETTINGS, COST)

    async def refused() -> str:
        with pytest.raises(NeedsRestart) as error:
            await engine.apply(Knobs(128, 8, policy="priority"))
        return str(error.value)

    assert "priority cannot change" in run_on(engine, refused())


def test_what_can_never_run_is_refused_when_it_is_sent() -> None:
    """More KV blocks than there are: the reason comes at once, and time does not pass."""
    clock = VirtualClock()
    engine = SimulatedEngine(clock, replace(SETTINGS, num_kv_blocks=20), COST)

    async def refused() -> str:
        with pytest.raises(Rejected) as error:
            await first_token_ns(engine, clock, 0, [5] * 600)
        return str(error.value)

    assert "KV blocks" in run_on(engine, refused())
    assert clock.now_ns() == 0


def test_an_engine_says_that_it_is_simulated() -> None:
    """Name, version and fingerprint tell it; another cost is another fingerprint."""

    def started(cost: StepCost) -> dict[str, Any]:
        engine = SimulatedEngine(VirtualClock(), SETTINGS, cost, model="m")

        async def info() -> dict[str, Any]:
            told = await engine.start()
            await engine.stop()
            assert (told.name, told.model, told.version) == ("simulator", "m", "vLLM 0.32 rules")
            return told.fingerprint

        return asyncio.run(info())

    named = StepCost.linear(token_ns=1, provenance={"hardware": "h", "model": "m"})
    assert started(named)["simulated"] == {"hardware": "h", "model": "m", "rule": "vllm-v1"}
    assert started(named)["cost_digest"] == started(replace(named, provenance={}))["cost_digest"]
    assert started(named)["cost_digest"] != started(COST)["cost_digest"]


def test_prefix_keys_are_equal_for_equal_blocks_behind_equal_blocks() -> None:
    """The same block behind another one is other content; an unfinished block has no key."""
    keys = PrefixKeys(block_size=4)
    first = keys.of([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert len(first) == 2
    assert keys.of([1, 2, 3, 4, 9, 9, 9, 9]) == [first[0], 2]
    assert keys.of([5, 6, 7, 8]) == [3]
    assert keys.of([1, 2, 3]) == []
    keys.forget()
    assert keys.of([1, 2, 3, 4]) == [4]


def test_requests_of_one_moment_do_not_push_one_another_out_for_ever() -> None:
    """Equals under the priority policy are told apart by who came first, where vLLM would go in circles."""
    settings = SchedulerSettings(token_budget=3, max_seqs=2, max_model_len=17, num_kv_blocks=5, block_size=5,
                                 long_prefill_token_threshold=2, priority=True, reserve_full_isl=False)
    bare = StepCost.linear(fixed_ns=1000.0, token_ns=10.0)
    engine = SimulatedEngine(VirtualClock(), settings, bare)

    async def answer(number: int, input_len: int, output_len: int) -> int:
        request = GenerateRequest(number, [11] * input_len, output_len)
        return sum([event.num_tokens async for event in engine.generate(request)])

    async def both() -> list[int]:
        return await asyncio.wait_for(asyncio.gather(answer(0, 8, 8), answer(1, 1, 16)), timeout=60)

    assert run_on(engine, both()) == [8, 16]
