"""The arithmetic of two introductions to chunked prefill, from sheets instead of by hand.

The numbers are those of "Ending the great stall" (a 7B and a 13B model on an A100 that sustains
280 TFLOP/s and 2 TB/s) and of "Chunked prefill and the unified token budget".
"""

from math import ceil

import numpy as np
import pytest

from engine_adapter.simulator.scheduler import Scheduler
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.sheets import adjusted, hardware_sheet, model_sheet, roofline_cost
from engine_adapter.simulator.step_cost import StepCost

SHEET = hardware_sheet("a100-sxm-80gb")
A100 = adjusted(SHEET, fixed_ns=0, mfu=280 / SHEET.computing("bf16").peak_tflops, bandwidth=2e12)
SMALL, MIDDLE = model_sheet("llama-2-7b"), model_sheet("llama-2-13b")
CLOSE = 0.05
"""A 7B model has 6.74 billion parameters."""


def _prefill_ms(model_name: str, tokens: int) -> float:
    return model_sheet(model_name).prefill_flops(tokens) / A100.flops_per_ns("bf16") / 1e6


def test_a_prompt_of_4096_tokens_takes_a_fifth_of_a_second() -> None:
    """5.7e13 operations, 205 ms at 280 TFLOP/s, about 50 us for a token; 380 ms in a 13B model."""
    assert A100.flops_per_ns("bf16") == pytest.approx(280e3)
    assert SMALL.prefill_flops(4096) == pytest.approx(5.7e13, rel=CLOSE)
    assert _prefill_ms("llama-2-7b", 4096) == pytest.approx(205, rel=CLOSE)
    assert _prefill_ms("llama-2-7b", 4096) / 4096 * 1e3 == pytest.approx(50, rel=CLOSE)
    assert MIDDLE.prefill_flops(4096) == pytest.approx(1.07e14, rel=CLOSE)
    assert _prefill_ms("llama-2-13b", 4096) == pytest.approx(380, rel=CLOSE)
    assert _prefill_ms("llama-2-7b", 128) == pytest.approx(6, rel=0.1)


def test_the_roofline_of_a_whole_step_agrees_with_the_product_of_its_parameters() -> None:
    """Tiles, norms and embeddings that are only looked up change the 205 ms and 13 ms by little."""
    small = roofline_cost(A100, SMALL, most_tokens=4096)
    assert small.step_ns(4096) / 1e6 == pytest.approx(205, rel=0.08)
    middle = roofline_cost(A100, MIDDLE, most_tokens=4096)
    assert middle.step_ns(4096) / 1e6 == pytest.approx(380, rel=0.08)
    assert middle.step_ns(1, decode_contexts=[1]) / 1e6 == pytest.approx(13, rel=CLOSE)


def test_a_decode_step_is_the_reading_of_the_weights() -> None:
    """26 GB at 2 TB/s are 13 ms, a fifteenth of a 4K prefill."""
    assert MIDDLE.weight_bytes() == pytest.approx(26e9, rel=CLOSE)
    reading_ms = MIDDLE.weight_bytes() / A100.bytes_per_ns / 1e6
    assert reading_ms == pytest.approx(13, rel=CLOSE)
    assert round(_prefill_ms("llama-2-7b", 4096) / reading_ms) == 15


def test_caches_can_outweigh_the_weights() -> None:
    """0.8 MB for a token in a 13B model, 51 GB for 32 requests of 2K tokens."""
    assert MIDDLE.kv_bytes_per_token() == 40 * 5120 * 2 * 2
    assert MIDDLE.kv_bytes_per_token() == pytest.approx(0.8e6, rel=CLOSE)
    assert 32 * 2000 * MIDDLE.kv_bytes_per_token() == pytest.approx(51e9, rel=CLOSE)
    cost = roofline_cost(A100, MIDDLE, most_tokens=64)
    with_caches, without = (cost.step_ns(32, decode_contexts=[context] * 32) for context in (2000, 0))
    assert with_caches - without == pytest.approx(51e9 / 2e3, rel=CLOSE)
    assert with_caches > 2 * without
    assert with_caches < 100e6   # still tens of milliseconds


def test_a_chunk_of_512_tokens_lies_well_above_the_ridge() -> None:
    """Ridge 156; 7.2e12 operations in 25 ms over 14 GB of weights are 514 operations per byte."""
    assert A100.ridge() == pytest.approx(156)
    assert SMALL.prefill_flops(512) == pytest.approx(7.2e12, rel=CLOSE)
    assert _prefill_ms("llama-2-7b", 512) == pytest.approx(25, rel=CLOSE)
    intensity = SMALL.prefill_flops(512) / SMALL.weight_bytes()
    assert intensity == pytest.approx(514, rel=CLOSE)
    assert intensity > 3 * A100.ridge()


def test_chunking_reads_the_cache_four_and_a_half_times() -> None:
    """4,096 tokens in chunks of 512 read 18,432 tokens of cache, whole they read 4,096."""
    reads = StepCost(linear_ns=np.zeros(2), chunk_kv_ns=1)
    whole = reads.step_ns(4096, [(4096, 0)])
    chunked = sum(reads.step_ns(512, [(512, prefix)]) for prefix in range(0, 4096, 512))
    assert (chunked, whole) == (18_432, 4_096)
    assert chunked / whole == 4.5


def test_a_mixed_step_stays_far_below_a_whole_prefill() -> None:
    """A chunk of 512 beside eight decodes takes 30 to 40 ms where a whole prompt takes 200, and eight of
    them stretch the first token by 1.4."""
    cost = roofline_cost(A100, SMALL, most_tokens=4200)
    decodes = [1000] * 8
    mixed = [cost.step_ns(520, [(512, prefix)], decodes) / 1e6 for prefix in range(0, 4096, 512)]
    assert all(30 < step < 40 for step in mixed)
    assert cost.step_ns(8, [], decodes) / 1e6 < 15
    whole = cost.step_ns(4104, [(4096, 0)], decodes) / 1e6
    assert whole == pytest.approx(215, rel=0.1)
    assert sum(mixed) / (cost.step_ns(4096, [(4096, 0)]) / 1e6) == pytest.approx(1.4, abs=0.1)


def test_the_stretch_of_the_first_token() -> None:
    """Chunks times the mixed step over the whole prefill: 8 x 35 ms / 200 ms is 1.4; 2 x 35 is 70 ms."""
    mixed_ms, whole_ms = 35, 200
    steps = {budget: len(_chunks(4096, budget)) for budget in (512, 2048)}
    assert steps == {512: 8, 2048: 2}
    assert steps[512] * mixed_ms / whole_ms == 1.4
    assert steps[2048] * mixed_ms == 70


def test_a_fixed_cost_and_a_cost_by_tokens_make_the_timeline() -> None:
    """4,000 tokens in one step take about nine decode steps; chunks of 512 about two each, and the
    first token comes about seven decode steps later."""
    cost = StepCost.linear(fixed_ns=1000, token_ns=2)
    decode = cost.step_ns(8)
    whole = cost.step_ns(4008) / decode
    chunks = [cost.step_ns(8 + tokens) / decode for tokens in _chunks(4000, 512)]
    assert whole == pytest.approx(9, rel=0.02)
    assert chunks[0] == pytest.approx(2, rel=0.02)
    assert round(sum(chunks) - whole) == 7


def _settings(budget: int) -> SchedulerSettings:
    return SchedulerSettings(token_budget=budget, max_seqs=64, max_model_len=8192, num_kv_blocks=10_000)


def _next(scheduler: Scheduler) -> dict[int, int]:
    """Row to tokens of one step, its outputs taken back."""
    step = scheduler.schedule()
    packed = dict(zip(step.rows.tolist(), step.tokens.tolist(), strict=True))
    scheduler.update(step)
    return packed


def _chunks(prompt: int, budget: int) -> list[int]:
    scheduler = Scheduler(_settings(budget))
    row = scheduler.add(prompt, 1)
    chunks = []
    while scheduler.has_work:
        chunks.append(_next(scheduler)[row])
    return chunks


def test_4000_tokens_are_seven_chunks_and_a_tail_of_416() -> None:
    """A budget cuts a prompt by itself; 3,488 tokens are left after the first chunk."""
    chunks = _chunks(4000, 512)
    assert chunks == [512] * 7 + [416]
    assert 4000 - chunks[0] == 3488
    assert len(chunks) == ceil(4000 / 512)


def test_a_budget_of_2048_is_drawn_down_to_600_and_to_nothing() -> None:
    """Eight decodes, R's remaining 1,440, then 600 of W1's 900; W2 gets nothing."""
    scheduler = Scheduler(_settings(2048))
    decodes = [scheduler.add(10, 100) for _ in range(8)]
    _next(scheduler)
    long = scheduler.add(2040 + 1440, 10)
    assert _next(scheduler) == dict.fromkeys(decodes, 1) | {long: 2040}
    first, second = scheduler.add(900, 10), scheduler.add(500, 10)
    packed = _next(scheduler)
    assert packed == dict.fromkeys(decodes, 1) | {long: 1440, first: 600}
    assert second not in packed
    assert sum(packed.values()) == 2048


def test_three_prompts_drain_in_four_steps_of_2048() -> None:
    """A 3,072, B 2,486 and C 2,580 beside twelve decodes, which A and B join as they complete."""
    scheduler = Scheduler(_settings(2048))
    decodes = [scheduler.add(10, 100) for _ in range(12)]
    _next(scheduler)
    a, b, c = scheduler.add(3072, 10), scheduler.add(2486, 10), scheduler.add(2580, 10)
    running = dict.fromkeys(decodes, 1)
    assert _next(scheduler) == running | {a: 2036}
    assert _next(scheduler) == running | {a: 1036, b: 1000}
    assert _next(scheduler) == running | {a: 1, b: 1486, c: 549}
    assert _next(scheduler) == running | {a: 1, b: 1, c: 2031}
    assert _next(scheduler) == running | {a: 1, b: 1, c: 1}
