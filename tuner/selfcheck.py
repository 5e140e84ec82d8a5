"""What the client itself adds to the figures: a load played against a server whose times are known."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import Progress, Run, play
from bench.client_error import ClientError, Compared, client_error
from bench.workers import play_sharded
from engine_adapter.clock import WallClock
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.test_servers.paced_process import PacedServer
from workloads import Plan

INVALID = 3
ERROR_FLOOR_NS = 1_000_000
ERROR_SHARE = 0.05
"""The client's error in p50 TTFT, and in p99 TBT, may be the larger of these: that floor, and this share of
the true figure."""
EARLY_NS = 100_000
"""More than 1 % of the tokens so much before they were sent: the kernel's stamps cannot be used."""
_JUDGED = (("ttft", "p50"), ("tbt", "p99"))
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """One load, played against the paced server by the client that measures real ones."""

    run: Run
    error: ClientError
    server: dict[str, Any]
    """The server's own figures; see truth.Truth.summary."""
    ttft_ms: float
    interval_ms: float
    workers: int

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the figures of such a run could not be trusted; none where they can."""
        reasons = list(self.run.validity.reasons)
        late = self.server["late_ms"]
        if late is not None and late["p50"] > self.interval_ms:
            reasons.append(f"the paced server fell behind its own pace ({late['p50']:.1f} ms late, p50), so "
                           f"the load was lighter than asked: check a lower load, or on more cores")
        if failed := int((self.run.attempted & ~self.run.ok).sum()):
            reasons.append(f"{failed} requests failed against a server that never fails")
        if self.error.mismatched:
            reasons.append(f"{self.error.mismatched} answers have another number of messages than were sent")
        if (early := self.error.lateness["p1"]) is not None and early < -EARLY_NS:
            reasons.append(f"tokens seem to come {-early / 1e6:.2f} ms before they were sent (p1): the times "
                           f"at which this machine's kernel receives cannot be used")
        for name, stat in _JUDGED:
            compared: Compared = getattr(self.error, name)
            error, true = compared.difference(stat), compared.true[stat]
            if error is None or true is None:
                continue
            if abs(error) > (limit := max(ERROR_FLOOR_NS, ERROR_SHARE * true)):
                reasons.append(f"the client's error in {stat} {name.upper()} is {error / 1e6:+.2f} ms "
                               f"(limit {limit / 1e6:.2f} ms): give it a CPU core of its own, more "
                               f"--workers, or a lower load")
        return tuple(reasons)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of a valid check too."""
        if not self.server["saturated"]:
            return self.run.validity.notes
        uneven = (f"the paced server was {self.server['late_ms']['p99']:.1f} ms late itself (p99): the load "
                  f"was less even than asked; its times are true all the same")
        return (*self.run.validity.notes, uneven)

    @property
    def exit_code(self) -> int:
        """0 valid, 3 not."""
        return INVALID if self.reasons else 0

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; times in milliseconds."""
        run = self.run
        return {
            "schema_version": 1, "valid": not self.reasons, "invalid_reasons": list(self.reasons),
            "paced": {"ttft_ms": self.ttft_ms, "interval_ms": self.interval_ms},
            "load": {
                "requests": len(run), "request_rate": run.meta.get("rate_rps"),
                "max_concurrency": run.meta.get("max_concurrency"), "workers": self.workers,
                "peak_in_flight": run.peak_in_flight(), "plan_digest": run.meta.get("plan_digest"),
            },
            "client_error": self.error.as_dict(),
            "resolution_ms": {f"{stat}_{name}": _ms(getattr(self.error, name).resolution(stat))
                              for name in ("ttft", "tbt") for stat in ("p50", "p99")},
            "server": self.server,
            "token_count_source": run.meta.get("token_count_source"),
            "notes": list(self.notes),
        }


async def check_client(
    plan: Plan, *, ttft_ms: float, interval_ms: float, workers: int = 1, max_concurrency: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> SelfCheck:
    """Play `plan` against a paced server in a process of its own, and compare. No process is left."""
    timeout_s = _TIMEOUT_S + (ttft_ms + interval_ms) / 1e3
    salt = f"selfcheck {plan.seed}"
    async with PacedServer(ttft_ms=ttft_ms, interval_ms=interval_ms) as server:
        target = HttpTarget(base_url=server.base_url)
        engine = HttpEngine(target)
        try:
            info = await engine.start()
            if workers == 1:
                await server.reset_truth()  # of the requests with which the engine tried it
                run = await play(
                    plan, engine, info, clock=WallClock(), salt=salt, max_concurrency=max_concurrency,
                    request_timeout_s=timeout_s, on_progress=on_progress)
            else:
                run = await play_sharded(
                    plan, target, info, workers=workers, salt=salt, max_concurrency=max_concurrency,
                    request_timeout_s=timeout_s, on_progress=on_progress,
                    before_start=server.reset_truth)
        finally:
            await engine.stop()
        figures, arrays = await server.truth(), await server.truth_arrays()
    error = await asyncio.to_thread(client_error, run, arrays)
    return SelfCheck(run, error, figures, ttft_ms, interval_ms, workers)


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else round(value_ns / 1e6, 6)
