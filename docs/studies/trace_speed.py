"""How long does it take to read, plan and summarise a million rows, and how much memory?

    python docs/studies/trace_speed.py [--rows N] [--repeats N]

Files of one's own making in a temporary folder; each repeat is a process of its own that reads the file,
makes the plan of the whole trace and its statistics, on one core. Median of the repeats. The parts are
seconds of the processor, which a busy machine does not lengthen much; beside their sum stands the clock's.

    make study-trace-speed
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np


def main() -> None:
    """See the module."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--repeats", type=int, default=3)
    asked.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.one is not None:
        print(json.dumps(_one(options.one)))
        return
    print("| file | size, MB | read, s | plan, s | summary, s | together, s | by the clock, s | peak, MB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in _FILES.items():
            file = Path(folder) / name
            with file.open("w", encoding="utf-8") as out:
                out.writelines(lines(options.rows))
            runs = [json.loads(subprocess.run(
                [sys.executable, __file__, "--one", str(file)], check=True, capture_output=True, text=True,
            ).stdout) for _ in range(options.repeats)]
            figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            print(f"| {name} | {file.stat().st_size / 1e6:.0f} | {figures['read']:.2f} | "
                  f"{figures['plan']:.2f} | {figures['summary']:.2f} | {figures['together']:.2f} | "
                  f"{figures['clock']:.2f} | {figures['memory']:.0f} |", flush=True)


def _one(file: Path) -> dict[str, float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from workloads.traces import read_trace
    from workloads.traces.replay import trace_plan
    from workloads.traces.statistics import trace_statistics

    clock, begin = time.perf_counter(), time.process_time()
    trace = read_trace(file)
    read = time.process_time()
    trace_plan(trace, seed=0)
    planned = time.process_time()
    trace_statistics(trace)
    end = time.process_time()
    return {"read": read - begin, "plan": planned - read, "summary": end - planned, "together": end - begin,
            "clock": time.perf_counter() - clock,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _columns(rows: int) -> tuple[list[float], list[int], list[int]]:
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(0.02, rows))
    prompts, answers = (np.clip(rng.lognormal(mean, 1.0, rows), 1, most).astype(int)
                        for mean, most in ((6.9, 30_000), (4.9, 2_000)))
    return times.tolist(), prompts.tolist(), answers.tolist()


def _csv(rows: int) -> Iterator[str]:
    yield "timestamp_s,input_len,output_len\n"
    for at, prompt, answer in zip(*_columns(rows), strict=True):
        yield f"{at:.6f},{prompt},{answer}\n"


def _azure(rows: int) -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    times, prompts, answers = _columns(rows)
    stamps = np.datetime64("2024-05-10", "ns") + (np.array(times) * 1e9).astype("timedelta64[ns]")
    for at, prompt, answer in zip(np.datetime_as_string(stamps), prompts, answers, strict=True):
        yield f"{at[:10]} {at[11:27]}+00:00,{prompt},{answer}\n"


def _mooncake(rows: int) -> Iterator[str]:
    """Blocks of 512 tokens; two in five continue an earlier prompt."""
    rng, next_id = np.random.default_rng(2), 1
    again = rng.random(rows) < 0.4
    last: list[int] = []
    for row, (at, prompt, answer) in enumerate(zip(*_columns(rows), strict=True)):
        blocks = -(-prompt // 512)
        kept = last[: blocks - 1] if again[row] else []
        ids = [*kept, *range(next_id, next_id + blocks - len(kept))]
        next_id += blocks - len(kept)
        last = ids
        yield (f'{{"timestamp": {int(at * 1000)}, "input_length": {prompt}, "output_length": {answer}, '
               f'"hash_ids": {ids}}}\n')


_FILES: dict[str, Callable[[int], Iterator[str]]] = {
    "named.csv": _csv, "azure.csv": _azure, "mooncake.jsonl": _mooncake}


if __name__ == "__main__":
    main()
