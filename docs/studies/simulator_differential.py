"""Does the simulator schedule exactly as the installed vLLM?

Random workloads under random settings are played on vLLM's own `Scheduler` (no model is run, its
outputs are made up) and on ours in lockstep; each decision, each delivery and both queues must be the
same. A difference is shrunk and printed as a case for tests/engine_adapter/simulator/regressions. The
requests of these workloads are then played in simulated time, and every step and read compared.

    make study-simulator-differential                        about a minute on two cores
    make study-simulator-differential ARGS="--first 100000"  other cases
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from typing import Any

from engine_adapter.simulator.differential.case import Case
from engine_adapter.simulator.differential.comparison import Comparison, compare
from engine_adapter.simulator.differential.features import FEATURES
from engine_adapter.simulator.differential.in_time import TimedComparison, compare_in_time
from engine_adapter.simulator.differential.random_cases import random_case
from engine_adapter.simulator.differential.shrinking import shrink

LOCKSTEP = {"steps": "steps", "preemptions": "preemptions", "cached_tokens": "cached tokens",
            "accepted_drafts": "accepted drafts"}
IN_TIME = {"steps": "steps", "reads": "reads"}
NOT_IN_TIME = ("aborts", "live knobs", "prefix cache reset")
TURNS_NS = (300_000, 4_000_000, 60_000_000)
"""From a queue that never empties to one that mostly is; a step of the proof's cost takes 3 to 30 ms."""


@dataclass
class Tally:
    counted: tuple[str, ...]
    cases: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    differences: int = 0

    def add(self, seen: Comparison | TimedComparison) -> None:
        self.cases += 1
        self.differences += seen.difference is not None
        for name in self.counted:
            self.counts[name] = self.counts.get(name, 0) + getattr(seen, name)


@dataclass
class Proof:
    """Cases from `first` on, until there were at least so many of them with so many steps."""

    pool: Pool
    first: int
    cases: int
    steps: int
    begin: float = field(default_factory=time.monotonic)
    unfinished: int = 0

    def run(self, what: str, play: Callable[[int], tuple[int, Any, str]], columns: dict[str, str],
            without: tuple[str, ...] = ()) -> int:
        """Print a table by feature; the number of differences."""
        tallies = {name: Tally(tuple(columns)) for name in ("all", *FEATURES) if name not in without}
        whole, end = tallies["all"], self.first
        while whole.cases < self.cases or whole.counts["steps"] < self.steps:
            start, end = end, end + 50
            for seed, seen, report in self.pool.imap(play, range(start, end)):
                case = random_case(seed)
                for name, tally in tallies.items():
                    if name == "all" or FEATURES[name](case):
                        tally.add(seen)
                if report:
                    print(f"\ncase {seed}: {report}")
                if isinstance(seen, Comparison):
                    self.unfinished += not seen.ended and seen.difference is None
            print(f"{what}: {whole.cases:5} configurations, {whole.counts['steps']:9,} steps, "
                  f"{whole.differences} differences, {time.monotonic() - self.begin:4.0f} s", flush=True)
        print(f"\n{what}, cases {self.first} to {end - 1}\n")
        print("\n".join(_table(tallies, columns)), end="\n\n")
        return whole.differences


def in_lockstep(seed: int) -> tuple[int, Comparison, str]:
    """With a case as small as possible where there was a difference."""
    case = random_case(seed)
    seen = compare(case)
    if seen.difference is None:
        return seed, seen, ""
    smallest = shrink(case, lambda smaller: compare(smaller).difference is not None)
    return seed, seen, f"{seen.difference}\n{smallest.to_json()}"


def in_time(seed: int) -> tuple[int, TimedComparison, str]:
    case, turn_ns = random_case(seed), TURNS_NS[seed % len(TURNS_NS)]
    seen = compare_in_time(case, turn_ns=turn_ns)
    if seen.difference is None:
        return seed, seen, ""

    def differs(smaller: Case) -> bool:
        return compare_in_time(smaller, turn_ns=turn_ns).difference is not None

    return seed, seen, f"turns of {turn_ns} ns: {seen.difference}\n{shrink(case, differs).to_json()}"


def _table(tallies: dict[str, Tally], columns: dict[str, str]) -> Iterable[str]:
    yield f"| feature | configurations | {' | '.join(columns.values())} | differences |"
    yield "|---" * (3 + len(columns)) + "|"
    for name, tally in tallies.items():
        numbers = (tally.cases, *(tally.counts.get(column, 0) for column in columns), tally.differences)
        yield f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000, help="at least so many steps")
    parser.add_argument("--configurations", type=int, default=500, help="and so many configurations")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        proof = Proof(pool, args.first, args.configurations, args.steps)
        differences = proof.run("in lockstep", in_lockstep, LOCKSTEP)
        print(f"{proof.unfinished} of these cases were cut off before their last answer\n")
        differences += proof.run("in simulated time", in_time, IN_TIME, NOT_IN_TIME)
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
