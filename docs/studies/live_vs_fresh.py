"""Does a live budget measure the same as an engine that was started with it?

Plays the CPU preset at one rate under budgets 128 and 512: in turns on one engine with live
knobs, and on freshly started engines. Every run has the same arrivals and fresh prompts.

    make study-live-fresh            about 9 minutes on two cores
"""

import asyncio
import sys
from dataclasses import replace

from bench import play, summarise
from engine_adapter.clock import WallClock
from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.knobs import Knobs
from engine_adapter.models import BUNDLED_MODEL, resolve_model
from engine_adapter.seam import Engine, EngineInfo
from engine_adapter.vllm_launch import VllmLaunch
from workloads import build_plan, load_workload

RATE_RPS, SECONDS, SEED = 2.5, 20.0, 7
LIVE_RUNS, FRESH_ENGINES, RUNS_PER_ENGINE = 6, 3, 2
SETTINGS = (Knobs(128, 64), Knobs(512, 64))
ARGS = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30, "max_model_len": 2048}


async def p99_tbt_ms(engine: Engine, info: EngineInfo, salt: str) -> float:
    """One run; what is asked for is its p99 TBT in milliseconds."""
    await engine.reset_caches()
    plan = build_plan(load_workload("cpu"), rate_rps=RATE_RPS, seed=SEED, duration_s=SECONDS, warmup_s=2)
    run = await play(plan, engine, info, clock=WallClock(), salt=salt)
    value = summarise(run).figure("tbt", "p99").value
    print(f"  {info.knobs.label()}, {salt}: p99 TBT {value / 1e6:.1f} ms"
          f"{'' if run.validity.valid else '  INVALID: ' + '; '.join(run.validity.reasons)}", flush=True)
    return value / 1e6


async def live() -> dict[Knobs, list[float]]:
    """All settings in turns on one engine."""
    engine = EmbeddedVllm(VllmLaunch(resolve_model(BUNDLED_MODEL), ARGS))
    found: dict[Knobs, list[float]] = {knobs: [] for knobs in SETTINGS}
    try:
        info = await engine.start()
        for turn in range(LIVE_RUNS):
            for knobs in SETTINGS:
                applied = await engine.apply(knobs)
                in_force = replace(info, knobs=applied.knobs)
                found[knobs].append(await p99_tbt_ms(engine, in_force, f"live {turn}"))
    finally:
        await engine.stop()
    return found


async def fresh() -> dict[Knobs, list[float]]:
    """Each setting on engines of its own."""
    found: dict[Knobs, list[float]] = {knobs: [] for knobs in SETTINGS}
    for start in range(FRESH_ENGINES):
        for knobs in SETTINGS:
            engine = EmbeddedVllm(VllmLaunch(resolve_model(BUNDLED_MODEL), ARGS, knobs=knobs))
            try:
                info = await engine.start()
                for turn in range(RUNS_PER_ENGINE):
                    found[knobs].append(await p99_tbt_ms(engine, info, f"fresh {start}.{turn}"))
            finally:
                await engine.stop()
    return found


def main() -> None:
    """Print both spreads for each budget."""
    lively, freshly = asyncio.run(live()), asyncio.run(fresh())
    print("\n| budget | live: median (min to max) | fresh: median (min to max) |\n|---|---|---|")
    for knobs in SETTINGS:
        cells = [f"{sorted(v)[len(v) // 2]:.0f} ms ({min(v):.0f} to {max(v):.0f}, {len(v)} runs)"
                 for v in (lively[knobs], freshly[knobs])]
        print(f"| {knobs.token_budget} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    sys.exit(main())
