"""Does the simulator say what the engine does, on a load that it was not calibrated on?

    python docs/studies/simulator_accuracy.py measure DIR     plays the runs on the real engine
    python docs/studies/simulator_accuracy.py compare DIR     calibrates, simulates, and prints the tables
    make study-simulator-accuracy                             both, about 30 minutes on two cores

One engine plays calibration runs (another workload, other settings), then seeks the capacity of the
CPU preset under one setting, then plays that preset twice at 50, 80 and 95 % of it. The calibration
runs come again between and after: the machine's speed drifts, and all sides shall see the same of it.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from bench import Run, load_run, play, save_run, summarise, sustainable
from engine_adapter.clock import WallClock
from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.knobs import Knobs
from engine_adapter.models import BUNDLED_MODEL, resolve_model
from engine_adapter.seam import Engine, EngineInfo
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.vllm_launch import VllmLaunch
from tuner.calibration import Calibration, calibrate, compare
from tuner.calibration.compare import settings_of, simulate_like
from tuner.ladder import Ladder, highest_level
from workloads import Component, Plan, Uniform, Workload, build_plan, load_workload

ARGS = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30, "max_model_len": 2048}
SETTING = Knobs(256, 64)
P99_TBT_LIMIT_MS, P99_TTFT_LIMIT_MS = 250.0, 2000.0
LADDER = Ladder(2.0, 1.06)
START_LEVEL, LOWEST, HIGHEST, MOST_RUNS = 14, 2, 30, 8
SHARES, ROUNDS = (50, 80, 95), 2
RUN_SECONDS = 60
CALIBRATION_SECONDS = 25
CALIBRATION = Path(__file__).with_name("simulator_calibration.yaml")
FIGURES = (("tbt", "p50"), ("tbt", "p90"), ("tbt", "p99"), ("ttft", "p50"), ("ttft", "p90"), ("ttft", "p99"),
           ("tpot", "p50"), ("e2e", "p50"))


def calibration_plans(turn: int) -> dict[str, tuple[Knobs, Plan]]:
    """Large and small chunks, and a large decode batch, none of them under the judged setting."""
    any_length = load_workload(CALIBRATION)
    plans = {
        f"calibration-{turn}-{budget}": (Knobs(budget, 64), build_plan(
            any_length, rate_rps=0.9, seed=100 * turn + budget, duration_s=CALIBRATION_SECONDS))
        for budget in (2048, 512, 192)
    }
    batch = build_plan(_short_prompts(), rate_rps=float("inf"), seed=100 * turn, num_prompts=64)
    return plans | {f"calibration-{turn}-batch": (Knobs(512, 64), batch)}


def _short_prompts() -> Workload:
    """Answers that all decode together."""
    answers = Component(name="answers", weight=1.0, input=Uniform(low=8, high=48),
                        output=Uniform(low=40, high=160))
    return load_workload(CALIBRATION).model_copy(update={"components": (answers,)})


def judged_plan(rate_rps: float, seconds: float, seed: int) -> Plan:
    """The CPU preset."""
    return build_plan(load_workload("cpu"), rate_rps=rate_rps, seed=seed, duration_s=seconds, warmup_s=3)


async def _play(engine: Engine, info: EngineInfo, knobs: Knobs, plan: Plan, name: str, to: Path) -> Run:
    await engine.reset_caches()
    applied = await engine.apply(knobs)
    run = await play(plan, engine, replace(info, knobs=applied.knobs), clock=WallClock(), salt=name,
                     meta={"label": name})
    figures = summarise(run)
    save_run(run, to / name, summary=figures.as_dict())
    shown = ", ".join(f"{m} {s} {(figures.figure(m, s).value or 0) / 1e6:.1f} ms"
                      for m, s in (("tbt", "p50"), ("tbt", "p99"), ("ttft", "p50")))
    print(f"  {name}: {len(plan)} requests, {shown}"
          f"{'' if run.validity.valid else '  INVALID: ' + '; '.join(run.validity.reasons)}", flush=True)
    return run


def holds(run: Run) -> bool:
    """The rule of the capacity, for the measured and for the simulated run alike."""
    figures = summarise(run)
    return all(observed is not None and observed <= limit_ms * 1e6 for observed, limit_ms in (
        (figures.figure("tbt", "p99").value, P99_TBT_LIMIT_MS),
        # Without it a queue that grows through the whole of a minute's run would pass.
        (figures.figure("ttft", "p99").value, P99_TTFT_LIMIT_MS),
    )) and sustainable(run).sustainable


async def seek(holds_at: Callable[[int], Awaitable[bool]]) -> int | None:
    """The search of the capacity, the same for both."""
    return await highest_level(holds_at, start=START_LEVEL, floor=LOWEST, ceiling=HIGHEST,
                               max_runs=MOST_RUNS, downwards=True)


async def measure(to: Path) -> None:
    """All runs of the study, from one engine."""
    engine = EmbeddedVllm(VllmLaunch(resolve_model(BUNDLED_MODEL), ARGS))
    try:
        info = await engine.start()

        async def calibration(turn: int) -> None:
            for name, (knobs, plan) in calibration_plans(turn).items():
                await _play(engine, info, knobs, plan, name, to)

        async def holds_at(level: int) -> bool:
            plan = judged_plan(LADDER.rate_rps(level), RUN_SECONDS, 21)
            return holds(await _play(engine, info, SETTING, plan, f"ladder-{level:02d}", to))

        await calibration(1)
        level = await seek(holds_at)
        if level is None:
            raise SystemExit("no rate of the ladder holds on this machine")
        capacity = LADDER.rate_rps(level)
        print(f"capacity {capacity} requests/s", flush=True)
        await calibration(2)
        for turn in range(1, ROUNDS + 1):
            for share in SHARES:
                plan = judged_plan(capacity * share / 100, RUN_SECONDS, 31)
                await _play(engine, info, SETTING, plan, f"judged-{share}-{turn}", to)
        await calibration(3)
        (to / "capacity.json").write_text(json.dumps(
            {"level": level, "rate_rps": capacity, "seconds": RUN_SECONDS}))
    finally:
        await engine.stop()


def compare_all(of: Path) -> None:
    """Calibrate on the calibration runs alone, simulate the others, print what came out."""
    measured = json.loads((of / "capacity.json").read_text())
    runs = {folder.name: load_run(folder) for folder in sorted(of.iterdir()) if folder.is_dir()}
    sources = {name: run for name, run in runs.items() if name.startswith("calibration")}
    calibration = calibrate(list(sources.values()), list(sources))
    print_errors(calibration)
    for share in SHARES:
        print_judged(share, {name: run for name, run in runs.items() if name.startswith(f"judged-{share}")},
                     calibration)
    ladder = next(run for name, run in runs.items() if name.startswith("ladder"))
    simulated = simulated_capacity(ladder, calibration, measured["seconds"])
    capacity = float(measured["rate_rps"])
    print(f"\nCapacity: measured {capacity:.2f} requests/s, simulated "
          + ("none" if simulated is None else f"{simulated:.2f} ({simulated / capacity - 1:+.1%})"))
    print_drift(runs)


def print_errors(calibration: Calibration) -> None:
    """Of the calibration on its own held-out steps."""
    print("| held-out steps | n | median | p90 | bias |\n|---|---|---|---|---|")
    for error in calibration.errors:
        if error.group in ("all", "kind"):
            print(f"| {error.name} | {error.n:,} | {error.median_abs:.1%} | {error.p90_abs:.1%} "
                  f"| {error.bias:+.1%} |")
    for warning in calibration.warnings:
        print(f"Warning: {warning}")


def print_judged(share: int, runs: dict[str, Run], calibration: Calibration) -> None:
    """Each figure of the runs of one load, its simulation, and the error against their mean."""
    compared = [compare(run, name, calibration) for name, run in runs.items()]
    print(f"\n{share} % of capacity, ms\n\n| figure | measured | simulated | off by |\n|---|---|---|---|")
    for metric, stat in FIGURES:
        figures = [one.figure(metric, stat) for one in compared]
        seen = [figure.measured for figure in figures if figure.measured is not None]
        told = [figure.simulated for figure in figures if figure.simulated is not None]
        mean = sum(seen) / len(seen)
        print(f"| {stat} {metric.upper()} | {', '.join(f'{value / 1e6:,.1f}' for value in seen)} "
              f"| {told[0] / 1e6:,.1f} | {told[0] / mean - 1:+.1%} |")
    for warning in {warning for one in compared for warning in one.warnings}:
        print(f"Warning: {warning}")
    like = next(iter(runs.values()))
    shift = simulated_ttft(like, slower(calibration.cost)) / simulated_ttft(like, calibration.cost) - 1
    print(f"With steps 1 % longer the simulated median TTFT is {shift:+.1%}.")


def slower(cost: StepCost) -> StepCost:
    """The same with every part of a step 1 % longer."""
    parts = ("fixed_ns", "chunk_ns", "chunk_pair_ns", "chunk_kv_ns", "decode_ns", "decode_kv_ns", "linear_ns")
    return replace(cost, **{name: getattr(cost, name) * 1.01 for name in parts})


def simulated_ttft(like: Run, cost: StepCost) -> float:
    """Median of the requests of `like`, in nanoseconds."""
    return summarise(simulate_like(like, cost)).figure("ttft", "p50").value or float("nan")


def simulated_capacity(like: Run, calibration: Calibration, seconds: float) -> float | None:
    """Requests per second that the same search finds on the simulator."""
    from bench.simulated import simulate_run

    async def holds_at(level: int) -> bool:
        plan = judged_plan(LADDER.rate_rps(level), seconds, 21)
        return holds(simulate_run(plan, settings_of(like), calibration.cost))

    level = asyncio.run(seek(holds_at))
    return None if level is None else LADDER.rate_rps(level)


def print_drift(runs: dict[str, Run]) -> None:
    """How much faster or slower than one cost for all of them each run was: what no calibration can know."""
    together = calibrate(list(runs.values()), list(runs))
    speeds = {error.name: error.bias for error in together.errors if error.group == "run"}
    ordered = sorted(speeds.items(), key=lambda item: item[1])
    print("\nAgainst one cost fitted to all runs the steps of each were: "
          + ", ".join(f"{name} {-bias:+.1%}" for name, bias in ordered))


if __name__ == "__main__":
    command, directory = sys.argv[1], Path(sys.argv[2])
    if command == "measure":
        asyncio.run(measure(directory))
    else:
        compare_all(directory)
