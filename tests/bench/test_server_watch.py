"""What an engine's own counters say of a run, and what the plan explains of it."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.recorder import RunRecorder
from bench.run import Outcome, Run
from bench.server_watch import ServerWatch
from engine_adapter.http.server_metrics import ServerMetrics
from workloads import Plan
from workloads.prompt_parts import PromptBlocks

BEFORE = ServerMetrics("vllm", running=0, waiting=0, prompt_tokens=0, prefix_queries=0, prefix_hits=0,
                       finished={"length": 0})


class Counting:
    """An engine that only has counters, which two looks read."""

    def __init__(self, *looks: Any, own: bool = False) -> None:
        self._looks = list(looks)
        setattr(self, "prefix_counts" if own else "metrics", self._own if own else self._of_server)

    async def _of_server(self) -> Any:
        return self._looks.pop(0)

    def _own(self) -> Any:
        return self._looks.pop(0)


def plan_of(**shared: Any) -> Plan:
    """100 prompts of 320 tokens."""
    none = np.full(100, -1)
    columns = {"input_len": np.full(100, 320), "prefix_group": none, "session": none, "turn": np.zeros(100)}
    return Plan(
        intended_ns=np.arange(100), output_len=np.full(100, 40), component=np.zeros(100), num_warmups=0,
        seed=1, rate_rps=1.0, component_names=("a",), **{**columns, **shared})


SHARING = {
    "prefixes": plan_of(prefix_group=np.zeros(100), prefix_lens=[165]),
    "blocks": plan_of(blocks=PromptBlocks(165, np.full(100, 7), np.arange(101))),
    "turns": plan_of(session=np.arange(100) // 2, turn=np.arange(100) % 2, input_len=[125, 320] * 50),
}


def watched(plan: Plan, engine: Any, *, block_size: int | None = 16) -> Run:
    """A run of `plan`, all of it sent and answered, between two looks at `engine`."""
    recorder = RunRecorder(plan, meta={"engine": {"kv_block_size": block_size}})
    for row in range(len(plan)):
        recorder.sent(row, 10 + row)
        recorder.read(row, 500 + row, 40)
        recorder.ended(row, 500 + row, Outcome.OK)

    async def work() -> Run:
        watch = ServerWatch(engine)
        await watch.begin()
        return await watch.end(recorder.run(), plan)

    return asyncio.run(work())


def warm_reasons(plan: Plan, hits: int, block_size: int | None) -> list[str]:
    after = replace(BEFORE, prompt_tokens=32_000, prefix_queries=32_000, prefix_hits=hits,
                    finished={"length": 100})
    run = watched(plan, Counting(BEFORE, after), block_size=block_size)
    return [reason for reason in run.validity.reasons if "cache was warm" in reason]


@pytest.mark.parametrize(("what", "hits"),
                         [("prefixes", 99 * 160), ("blocks", 99 * 160), ("turns", 50 * 160)])
def test_what_the_plan_shares_is_no_sign_of_a_warm_cache(what: str, hits: int) -> None:
    """Whole blocks of prefixes, of a trace's blocks and of earlier turns with their answers may all be found,
    and no more than that; with single tokens where the server does not tell its blocks."""
    plan = SHARING[what]
    assert warm_reasons(plan, hits, 16) == []
    assert len(warm_reasons(plan, hits + 800, 16)) == 1
    assert warm_reasons(plan, hits + hits // 160 * 5, None) == []
    assert len(warm_reasons(plan, hits + 100 * 15 + 800, None)) == 1


def test_nothing_is_granted_where_nothing_is_shared() -> None:
    """A hit is then one that an earlier run left behind."""
    assert len(warm_reasons(plan_of(), 1600, None)) == 1


def test_an_engine_that_counts_by_itself_is_read_before_and_after() -> None:
    """What it gained between the two is kept; nothing where it looked nothing up, or does not count."""
    assert watched(plan_of(), Counting((100, 10), (32_100, 4010), own=True)).meta["prefix_cache"] == {
        "queries": 32_000, "hits": 4000}
    for looks in (((7, 0), (7, 0)), (None, None), (None, (3, 0))):
        run = watched(plan_of(), Counting(*looks, own=True))
        assert "prefix_cache" not in run.meta
