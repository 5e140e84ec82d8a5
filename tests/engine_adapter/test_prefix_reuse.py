"""What a plan says about shared prompts is what vLLM's own prefix cache finds."""

import asyncio
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from bench import play
from bench.server_watch import ServerWatch
from engine_adapter.clock import WallClock
from engine_adapter.embedded import EmbeddedVllm
from tests.engine_adapter.engines import needs_vllm, tiny_launch
from workloads.plan import Plan
from workloads.prompt_parts import PromptBlocks
from workloads.shared_blocks import found_again

pytestmark = [pytest.mark.engine, needs_vllm, pytest.mark.timeout(240)]

SIZE = 32
"""Tokens of a block, of the trace and of the engine."""


def tree_of_blocks(rows: int, rng: np.random.Generator) -> tuple[list[list[int]], list[int]]:
    """A trace of our own: each prompt begins as an earlier one and goes on by itself, or begins anew; keys
    of its blocks and its length, which may cut the last block. A cut block is never repeated, but the
    last prompt is the first one."""
    prompts: list[list[int]] = []
    lengths: list[int] = []
    fresh = 0
    for _ in range(rows):
        before = prompts[int(rng.integers(len(prompts)))] if prompts and rng.random() < 0.7 else []
        shared = before[:min(20, int(rng.integers(max(1, len(before)))))]
        added = int(rng.integers(1, 9))
        prompts.append([*shared, *range(fresh, fresh + added)])
        fresh += added
        lengths.append(len(prompts[-1]) * SIZE - int(rng.integers(SIZE)))
    prompts[-1], lengths[-1] = prompts[0], lengths[0]
    return prompts, lengths


def reuse_of(prompts: list[list[int]], lengths: list[int]) -> int:
    """Prompt tokens in leading blocks that an earlier prompt of the trace had."""
    seen: set[tuple[int, ...]] = set()
    found = 0
    for prompt, length in zip(prompts, lengths, strict=True):
        beginnings = list(accumulate((key,) for key in prompt))
        hits = sum(beginning in seen for beginning in beginnings)
        found += min(hits * SIZE, length)
        seen |= set(beginnings)
    return found


def plan_of(prompts: list[list[int]], lengths: list[int]) -> Plan:
    n = len(prompts)
    none = np.full(n, -1)
    return Plan(
        intended_ns=np.zeros(n), input_len=np.array(lengths), output_len=np.full(n, 2), component=np.zeros(n),
        prefix_group=none, session=none, turn=np.zeros(n), num_warmups=0, seed=8, rate_rps=float("inf"),
        component_names=("trace",), blocks=PromptBlocks(
            SIZE, np.array([key for prompt in prompts for key in prompt]),
            np.cumsum([0, *map(len, prompts)])))


def test_a_realised_trace_reuses_what_the_trace_reuses(tmp_path: Path) -> None:
    """Sent one after another to a cache that forgets nothing: vLLM's own count is within 1 % of the trace's
    reuse, of the tokens and of the reuse itself, and exactly what its rules leave of it: whole blocks, and
    the last token of a prompt computed anew."""
    prompts, lengths = tree_of_blocks(300, np.random.default_rng(4))
    plan = plan_of(prompts, lengths)

    async def hits() -> dict[str, int]:
        engine = EmbeddedVllm(tiny_launch(tmp_path / "model", block_size=SIZE, enable_prefix_caching=True))
        try:
            info = await engine.start()
            assert info.kv_block_size == SIZE
            watch = ServerWatch(engine)
            await watch.begin()
            run = await play(plan, engine, info, clock=WallClock(), salt="trace", max_concurrency=1)
            run = await watch.end(run, plan)
        finally:
            await engine.stop()
        assert run.ok.all()
        counted: dict[str, int] = run.meta["prefix_cache"]
        return counted

    counted, reuse = asyncio.run(hits()), reuse_of(prompts, lengths)
    tokens = int(plan.input_len.sum())
    assert 0.2 < reuse / tokens < 0.8
    assert counted["queries"] == tokens
    assert counted["hits"] == found_again(plan, SIZE).sum()
    assert abs(counted["hits"] - reuse) < 0.01 * min(tokens, reuse)
