"""Does the simulator schedule exactly as the installed vLLM?

Random workloads under random settings are played on vLLM's own `Scheduler` (no model is run, its
outputs are made up) and on ours in lockstep; each decision, each delivery and both queues must be the
same. A difference is shrunk and printed as a case for tests/engine_adapter/simulator/regressions.

    make study-simulator-differential                        about 3 minutes on two cores
    make study-simulator-differential ARGS="--first 100000"  other cases
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine_adapter.simulator.differential.case import Case
from engine_adapter.simulator.differential.comparison import Comparison, compare
from engine_adapter.simulator.differential.features import FEATURES
from engine_adapter.simulator.differential.random_cases import random_case
from engine_adapter.simulator.differential.shrinking import shrink

COUNTS = ("steps", "preemptions", "cached_tokens", "accepted_drafts")


@dataclass
class Tally:
    configurations: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    differences: int = 0

    def add(self, seen: Comparison) -> None:
        self.configurations += 1
        self.differences += seen.difference is not None
        for name in COUNTS:
            self.counts[name] += getattr(seen, name)

    def row(self) -> list[str]:
        return [f"{n:,}" for n in (self.configurations, *self.counts.values(), self.differences)]


def _play(seed: int) -> tuple[int, Comparison, Case | None]:
    """With a case as small as possible where there was a difference."""
    case = random_case(seed)
    seen = compare(case)
    if seen.difference is None:
        return seed, seen, None
    return seed, seen, shrink(case, lambda smaller: compare(smaller).difference is not None)


def _table(tallies: dict[str, Tally]) -> Iterable[str]:
    yield "| feature | configurations | steps | preemptions | cached tokens | accepted drafts | differences |"
    yield "|---|---|---|---|---|---|---|"
    for name, tally in tallies.items():
        yield f"| {' | '.join([name, *tally.row()])} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000, help="at least so many steps")
    parser.add_argument("--configurations", type=int, default=500, help="and so many configurations")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    tallies = {name: Tally() for name in ("all", *FEATURES)}
    whole, unfinished, begin = tallies["all"], 0, time.monotonic()
    end = args.first
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        while whole.configurations < args.configurations or whole.counts["steps"] < args.steps:
            first, end = end, end + 50
            for seed, seen, smallest in pool.imap(_play, range(first, end)):
                unfinished += not seen.ended and seen.difference is None
                case = random_case(seed)
                for name, tally in tallies.items():
                    if name == "all" or FEATURES[name](case):
                        tally.add(seen)
                if smallest is not None:
                    print(f"\ncase {seed}: {seen.difference}\n{smallest.to_json()}")
            print(f"{whole.configurations:5} configurations, {whole.counts['steps']:8,} steps, "
                  f"{whole.differences} differences, {time.monotonic() - begin:4.0f} s", flush=True)
    print(f"\ncases {args.first} to {end - 1}; {unfinished} were cut off before their last answer\n")
    print("\n".join(_table(tallies)))
    return int(whole.differences > 0)


if __name__ == "__main__":
    sys.exit(main())
