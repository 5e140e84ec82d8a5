"""Looks at an engine's own counters before and after a run, and what those of a server say against it."""

from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np

from bench.run import NEVER, Int64, Run, Validity
from bench.server_metrics import Expected, findings
from engine_adapter.http.server_metrics import ServerMetrics, delta
from engine_adapter.seam import Engine
from workloads import Plan
from workloads.shared_blocks import found_again

_ASSUMED_BLOCK = 16
"""Tokens of a block of a prefix cache that does not tell them."""


class _Counting(Protocol):
    async def metrics(self) -> ServerMetrics | None: ...


class _CountingPrefixes(Protocol):
    def prefix_counts(self) -> tuple[int, int] | None: ...


class ServerWatch:
    """One run of one engine; does nothing for an engine without counters."""

    def __init__(self, engine: Engine) -> None:
        self._server = cast(_Counting, engine) if hasattr(engine, "metrics") else None
        self._own = cast(_CountingPrefixes, engine) if hasattr(engine, "prefix_counts") else None
        self._before: ServerMetrics | None = None
        self._counts_before: tuple[int, int] | None = None

    async def begin(self) -> None:
        """Look, right before the run."""
        if self._own is not None:
            self._counts_before = self._own.prefix_counts()
        if self._server is not None:
            self._before = await self._server.metrics()

    async def end(self, run: Run, plan: Plan) -> Run:
        """Look again: `run` of `plan` with the figures in its meta and the findings in its validity."""
        if self._own is not None and self._counts_before and (counts := self._own.prefix_counts()):
            queries, hits = (now - then for now, then in zip(counts, self._counts_before, strict=True))
            if queries:  # else it caches no prefixes
                run = replace(run, meta=run.meta | {"prefix_cache": {"queries": queries, "hits": hits}})
        if self._server is None:
            return run
        after = await self._server.metrics()
        found = findings(self._before, after, _expected(run, plan))
        reasons, notes = (*run.validity.reasons, *found.reasons), (*run.validity.notes, *found.notes)
        figures: dict[str, Any] = {"before": None, "after": None, "delta": None}
        if self._before is not None and after is not None:
            figures = {"before": self._before.as_dict(), "after": after.as_dict(),
                       "delta": delta(self._before, after).as_dict()}
        return replace(run, meta=run.meta | {"server_metrics": figures},
                       validity=Validity(not reasons, reasons, notes))


def _expected(run: Run, plan: Plan) -> Expected:
    sent = run.sent_ns != NEVER
    counted = run.prompt_tokens[sent].astype(int)
    counted[counted < 0] = run.input_len[sent][counted < 0]
    engine = run.meta.get("engine") or {}
    overhead = (engine.get("fingerprint") or {}).get("prompt_overhead_tokens") or 0
    shared = _shared_tokens(plan, engine.get("kv_block_size"))[run.index[sent]]
    return Expected(requests=int(sent.sum()), prompt_tokens=int(counted.sum()),
                    shared_prompt_tokens=int(shared.sum() + max(0, overhead) * sent.sum()))


def _shared_tokens(plan: Plan, block_size: int | None) -> Int64:
    """The most that a cache, empty at first, may find of each prompt of the plan."""
    if plan.blocks is None and not len(plan.prefix_lens) and not (plan.predecessor >= 0).any():
        return np.zeros(len(plan), dtype=np.int64)
    if block_size is not None:
        return found_again(plan, block_size)
    # Some servers find single tokens. Of every prompt the rest of a block is granted: to look at each
    # token would take a long plan too much memory.
    return found_again(plan, _ASSUMED_BLOCK) + _ASSUMED_BLOCK - 1
