"""Looks at a server's own counters before and after a run, and what they say against it."""

from dataclasses import replace
from typing import Any, Protocol, cast

from bench.run import NEVER, Run, Validity
from bench.server_metrics import Expected, findings
from engine_adapter.http.server_metrics import ServerMetrics, delta
from engine_adapter.seam import Engine


class _Counting(Protocol):
    async def metrics(self) -> ServerMetrics | None: ...


class ServerWatch:
    """One run of one engine; does nothing for an engine that is no server."""

    def __init__(self, engine: Engine) -> None:
        self._server = cast(_Counting, engine) if hasattr(engine, "metrics") else None
        self._before: ServerMetrics | None = None

    async def begin(self) -> None:
        """Look, right before the run."""
        if self._server is not None:
            self._before = await self._server.metrics()

    async def end(self, run: Run) -> Run:
        """Look again: `run` with the figures in its meta and the findings in its validity."""
        if self._server is None:
            return run
        after = await self._server.metrics()
        found = findings(self._before, after, _expected(run))
        reasons, notes = (*run.validity.reasons, *found.reasons), (*run.validity.notes, *found.notes)
        figures: dict[str, Any] = {"before": None, "after": None, "delta": None}
        if self._before is not None and after is not None:
            figures = {"before": self._before.as_dict(), "after": after.as_dict(),
                       "delta": delta(self._before, after).as_dict()}
        return replace(run, meta=run.meta | {"server_metrics": figures},
                       validity=Validity(not reasons, reasons, notes))


def _expected(run: Run) -> Expected:
    sent = run.sent_ns != NEVER
    counted = run.prompt_tokens[sent].astype(int)
    counted[counted < 0] = run.input_len[sent][counted < 0]
    engine = run.meta.get("engine") or {}
    overhead = (engine.get("fingerprint") or {}).get("prompt_overhead_tokens") or 0
    return Expected(requests=int(sent.sum()), prompt_tokens=int(counted.sum()),
                    shared_prompt_tokens=int(max(0, overhead) * sent.sum()))
