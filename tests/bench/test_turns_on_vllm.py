"""A conversation on a real engine: what was answered is in its prefix cache, and is found there."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from bench.dispatch import play
from bench.run import Outcome, Run
from engine_adapter.clock import WallClock
from engine_adapter.embedded import EmbeddedVllm
from tests.engine_adapter.engines import needs_vllm, tiny_launch
from workloads import Plan

NEW, ANSWER, TURNS = 70, 90, 3
MS = 1_000_000


def conversation() -> Plan:
    turn = np.arange(TURNS)
    return Plan(
        intended_ns=turn * MS, session=np.zeros(TURNS), turn=turn, think_ns=np.full(TURNS, 20 * MS),
        input_len=NEW + (NEW + ANSWER) * turn, output_len=np.full(TURNS, ANSWER), component=np.zeros(TURNS),
        prefix_group=np.full(TURNS, -1), num_warmups=0, seed=3, rate_rps=10.0, component_names=("chat",))


@pytest.mark.engine
@pytest.mark.timeout(300)
@needs_vllm
def test_later_turns_find_the_answers_before_them_in_the_prefix_cache(tmp_path: Path) -> None:
    """By vLLM's own count every full block of the prompt and the answer before is found, all but the
    answer's last token, which the engine never computed; a made-up answer would not be found."""
    async def go() -> tuple[Run, int, tuple[int, int]]:
        engine = EmbeddedVllm(tiny_launch(tmp_path / "model", block_size=32))
        try:
            info = await engine.start()
            before = engine.prefix_counts()
            run = await play(conversation(), engine, info, clock=WallClock(), salt="s")
            after = engine.prefix_counts()
        finally:
            await engine.stop()
        assert before is not None
        assert after is not None
        assert info.kv_block_size is not None
        return run, info.kv_block_size, (after[0] - before[0], after[1] - before[1])

    run, block, (queries, hits) = asyncio.run(go())
    assert run.outcome.tolist() == [Outcome.OK] * TURNS
    assert run.meta["history"] == "answers"
    history = run.input_len[:-1] + ANSWER - 1
    assert queries == run.input_len.sum()
    assert hits == (history // block * block).sum()
    print(f"{hits} of {queries} prompt tokens found again, in blocks of {block}")
