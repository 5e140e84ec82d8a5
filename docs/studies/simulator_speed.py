"""How long does the simulator take, and how long do others for the same trace?

    python docs/studies/simulator_speed.py [--peer NAME=PYTHON]… [--turns 7]

NAME is one of the files in peers/ (dynamo, fleet_sim, sched_sim, vidur), PYTHON an interpreter with that
simulator installed; without any only ours is timed. Each turn starts one process of every simulator, in
an order that turns, all on one core: it loads the trace, and times what is between the loaded requests
and the finished metrics. Compiled ones run it twice and the first does not count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
REQUESTS, MEAN_INPUT, MEAN_OUTPUT, SIGMA = 10_000, 1000, 200, 0.8
LOAD = 0.8
MAX_SEQS, BUDGET = 128, 2048
GRID_RATES, GRID_REQUESTS, TBT_MS = (2, 3, 4, 5, 6, 7, 8, 9), 1000, 100
HARDWARE, MODEL = "a100-sxm-80gb", "llama-3.1-8b"
PEERS = {
    "dynamo": ("NVIDIA Dynamo offline replay", "ai-dynamo-runtime, Rust: vLLM's scheduler, steps"),
    "fleet_sim": ("vllm-sr-sim", "Python: no steps, one formula a request"),
    "sched_sim": ("sched-sim", "Python: chunked prefill, steps"),
    "vidur": ("Vidur", "Python: Sarathi scheduler, steps"),
}


@cache
def plan(rate_rps: float, requests: int = REQUESTS) -> Any:
    from workloads import Component, LogNormal, Workload, build_plan

    def lengths(mean: float, most: int) -> LogNormal:
        return LogNormal(median=mean * np.exp(-SIGMA**2 / 2), sigma=SIGMA, low=1, high=most)

    one = Component(name="one", weight=1.0, input=lengths(MEAN_INPUT, 6000),
                    output=lengths(MEAN_OUTPUT, 2000))
    workload = Workload(name="speed", description="", components=(one,), max_model_len=8192, slo=(),
                        decode_deadline_ms=50, run_seconds=60, warmup_seconds=0)
    return build_plan(workload, rate_rps=rate_rps, seed=1, num_prompts=requests)


@cache
def target() -> Any:
    from tuner.simulation import target_from

    return target_from(hardware=HARDWARE, model=MODEL, prefix_caching=False)


def saturation_rps() -> float:
    """Requests a second when all are there from the beginning."""
    from bench.simulated import simulate_run
    from engine_adapter.knobs import Knobs

    aimed, everything = target(), plan(float("inf"))
    run = simulate_run(everything, aimed.settings(Knobs(BUDGET, MAX_SEQS)), aimed.cost, keep_steps=False)
    return len(everything) / (float(run.end_ns.max() - run.sent_ns.min()) / 1e9)


def ours(rate_rps: float) -> dict[str, Any]:
    """One counted run in this process: its steps alone, and with the run, its validity and all metrics."""
    from bench import summarise
    from bench.simulated import load_of, simulate_run
    from engine_adapter.knobs import Knobs
    from engine_adapter.simulator.play import play

    aimed, offered = target(), plan(rate_rps)
    settings = aimed.settings(Knobs(BUDGET, MAX_SEQS))
    for _ in range(2):
        begin = time.perf_counter()
        figures = summarise(simulate_run(offered, settings, aimed.cost)).as_dict()
        wall_s = time.perf_counter() - begin
    begin = time.perf_counter()
    played = play(load_of(offered), settings, aimed.cost, keep_steps=False)
    play_s = time.perf_counter() - begin
    first, last = played.read_ns[played.reads_offset[:-1]], played.read_ns[played.reads_offset[1:] - 1]
    gaps = np.maximum(offered.output_len - 1, 1)
    return {"version": "this", "wall_s": wall_s, "play_s": play_s, "steps": played.num_steps,
            "done": REQUESTS, "mean_batch": float(np.sum(last - played.sent_ns) / played.simulated_ns),
            "mean_ttft_ms": float(np.mean(first - played.sent_ns)) / 1e6,
            "mean_tpot_ms": float(np.mean(((last - first) / gaps)[offered.output_len > 1])) / 1e6,
            "metrics": len(figures)}


def started(arguments: list[str], folder: Path, **environment: str) -> tuple[str, float]:
    """What a process prints, and how long it was there."""
    begin = time.perf_counter()
    done = subprocess.run(arguments, cwd=folder, env=os.environ | environment, capture_output=True, text=True,
                          timeout=900, check=False)
    wall_s = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout, wall_s


def compare(peers: dict[str, str], turns: int, folder: Path) -> None:
    rate = LOAD * saturation_rps()
    offered, trace = plan(rate), folder / "trace.json"
    trace.write_text(json.dumps([
        {"timestamp": at / 1e9, "prompt_tokens": asked, "output_tokens": answer}
        for at, asked, answer in zip(offered.intended_ns.tolist(), offered.input_len.tolist(),
                                     offered.output_len.tolist(), strict=True)]))
    commands = {"ours": [sys.executable, __file__, "--one", str(rate)]} | {
        name: [python, str(HERE / "peers" / f"{name}_trace.py"), str(trace)]
        for name, python in peers.items()}
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    whole: list[float] = []
    for turn in range(turns):
        order = list(commands) if turn % 2 == 0 else list(reversed(commands))
        for name in order:
            printed, wall_s = started(commands[name], folder)
            results[name].append(json.loads(printed.strip().splitlines()[-1]))
            if name == "ours":
                whole.append(wall_s)
    print(f"{REQUESTS:,} requests at {rate:.2f}/s: {LOAD:.0%} of what saturates {MODEL} on {HARDWARE}, "
          f"{MAX_SEQS} requests, {BUDGET:,} tokens, one core, {turns} turns")
    print("| simulator | version | seconds: median (min to max) | requests done | requests at once, mean "
          "| mean TTFT, TPOT (ms) | of what kind |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in results.items():
        called, kind = PEERS.get(name, ("Stallfree, with all metrics", "numba: vLLM's scheduler, steps"))
        row = rows[-1]
        seconds = _spread([one["wall_s"] for one in rows])
        print(f"| {called} | {row['version']} | {seconds} | {_shown(row, 'done')} "
              f"| {_shown(row, 'mean_batch')} | {_shown(row, 'mean_ttft_ms')}, {_shown(row, 'mean_tpot_ms')} "
              f"| {kind} |")
    print(f"Stallfree's steps alone {_spread([row['play_s'] for row in results['ours']])} s, "
          f"{results['ours'][-1]['steps']:,} of them; whole process with start, plan and three runs "
          f"{_spread(whole)} s")


def _shown(row: dict[str, Any], key: str) -> str:
    return f"{row[key]:,.0f}" if row.get(key, 0) >= 1000 else f"{row[key]:.3g}" if key in row else "-"


def _spread(seconds: list[float]) -> str:
    return f"{median(seconds):.3g} ({min(seconds):.3g} to {max(seconds):.3g})"


def cold_start(turns: int, folder: Path) -> None:
    """`tune simulate` from a shell: with the compiled kernel on disk, and with nothing compiled."""
    tune = Path(sys.executable).with_name("tune")
    command = [str(tune), "simulate", "--workload", "cpu", "--request-rate", "4", "--hardware", HARDWARE,
               "--model", MODEL, "--json"]
    warm = [started(command, folder)[1] for _ in range(turns)]
    _, compiling = started(command, folder, NUMBA_CACHE_DIR=str(folder / "numba"))
    print(f"`tune simulate` of the CPU preset, whole process: {_spread(warm)} s; the first one ever, "
          f"which compiles, {compiling:.1f} s")


def capacity_of(knobs: tuple[int, int]) -> int:
    """How many of GRID_RATES hold: p99 TBT at most TBT_MS, and no growing backlog."""
    from bench import summarise, sustainable
    from bench.simulated import simulate_run
    from engine_adapter.knobs import Knobs

    aimed = target()
    settings, held = aimed.settings(Knobs(*knobs)), 0
    for rate in GRID_RATES:
        run = simulate_run(plan(rate, GRID_REQUESTS), settings, aimed.cost)
        p99 = summarise(run).figure("tbt", "p99").value
        held += p99 is not None and p99 <= TBT_MS * 1e6 and sustainable(run).sustainable
    return held


def grid() -> None:
    """A capacity search of 8 rates over 200 settings, one process a core."""
    cores = os.cpu_count() or 1
    settings = list(product(range(256, 256 * 26, 256), range(32, 257, 32)))
    begin, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    with ProcessPoolExecutor(cores) as pool:
        held = list(pool.map(capacity_of, settings, chunksize=5))
    wall_s, after = time.perf_counter() - begin, getrusage(RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    best = settings[held.index(max(held))]
    print(f"{len(GRID_RATES)} rates over {len(settings)} settings, {GRID_REQUESTS:,} requests each, with "
          f"metrics: {wall_s:.1f} s on {cores} cores, {cpu_s:.1f} s of them used; the first of the best is "
          f"{best[0]} tokens, {best[1]} requests at {GRID_RATES[max(max(held) - 1, 0)]:g}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(ours(options.one)))
        return
    peers = dict(pair.split("=", 1) for pair in options.peer)
    if unknown := set(peers) - set(PEERS):
        raise SystemExit(f"unknown peer {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    for name in set(PEERS) - set(peers):
        print(f"left out: {name} (--peer {name}=PYTHON)")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    with tempfile.TemporaryDirectory() as folder:
        compare(peers, options.turns, Path(folder))
        cold_start(options.turns, Path(folder))
    os.sched_setaffinity(0, cores)
    grid()


if __name__ == "__main__":
    main()
