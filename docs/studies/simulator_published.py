"""Does the simulator say what others measured and published?

    python docs/studies/simulator_published.py runs FOLDER…     replays recorded runs of a real vLLM
    python docs/studies/simulator_published.py sarathi FOLDER   Sarathi-Serve's capacity ratios

`runs` takes any folder with runs as LLMServingSim publishes them: NAME_meta.json with
NAME_requests.jsonl, or meta.json with requests.jsonl. Three constants of the hardware's sheet are
fitted to the first half of a run (--fit 0.5), to all of it (--fit 1), or none (--fit 0), or given
(--constants bandwidth=1400,mfu=0.67,fixed=600). --hardware and --model name sheets or their files.
"""

import argparse
from pathlib import Path

import numpy as np
from llmservingsim import recorded_runs
from published_runs import Target, fit, replay, seen_by, sheet_of_hardware, sheet_of_model
from replicas import Times
from sarathi_capacity import sarathi

from workloads.errors import UsageError


def runs(options: argparse.Namespace) -> None:
    found = [run for folder in options.folders for run in recorded_runs(folder)]
    if not found:
        where = ", ".join(map(str, options.folders))
        raise SystemExit(f"no NAME_meta.json beside a NAME_requests.jsonl in {where}")
    given = {name: float(value) for name, value in (pair.split("=") for pair in options.constants)}
    for run in found:
        target = Target(run, sheet_of_hardware(options.hardware or run.hardware),
                        sheet_of_model(options.model or run.model))
        constants = given or (fit(target, options.fit) if options.fit else {})
        shown = constants or target.own_constants()
        said = ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
        how = f"fitted to its first {options.fit:.0%}" if options.fit else "of the sheets"
        print(f"\n{run.name}: {len(run.arrival_ns)} requests, {target.settings().num_kv_blocks} KV blocks, "
              f"constants {'given' if given else how}: {said}")
        compare(target, replay(target, constants), 0.0 if given else options.fit)


def compare(target: Target, times: Times, fitted_share: float) -> None:
    """Prints TTFT and TPOT, each for all requests and for those that no fit has seen."""
    run, seen = target.run, seen_by(target.run, fitted_share)
    gaps = np.maximum(run.output_len - 1, 1)
    several = run.output_len > 1
    figures = {
        "TTFT": (times.first_token_ns - run.arrival_ns, run.ttft_ns(), ~seen.first),
        "TPOT": ((times.last_token_ns - times.first_token_ns) / gaps, run.tpot_ns(), several & ~seen.last),
    }
    print("| ms | requests | mean: measured, simulated | p50 | p99 |")
    print("|---|---|---|---|---|")
    for name, (simulated, measured, unseen) in figures.items():
        every = several if name == "TPOT" else np.ones_like(several)
        for which, rows in (("all", every), ("unseen", unseen)):
            if not rows.any() or (which == "unseen" and not fitted_share):
                continue
            cells = [_cell(measured[rows] / 1e6, simulated[rows] / 1e6, statistic)
                     for statistic in (np.mean, np.median, lambda values: np.percentile(values, 99))]
            print(f"| {name} | {which}, {int(rows.sum())} | {' | '.join(cells)} |")


def _cell(measured: np.ndarray, simulated: np.ndarray, statistic: object) -> str:
    real, said = float(statistic(measured)), float(statistic(simulated))
    return f"{real:.4g}, {said:.4g} ({said / real - 1:+.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    replays = commands.add_parser("runs")
    replays.add_argument("folders", nargs="+", type=Path)
    replays.add_argument("--hardware")
    replays.add_argument("--model")
    replays.add_argument("--fit", type=float, default=0.5, metavar="SHARE")
    replays.add_argument("--constants", type=lambda text: text.split(","), default=[])
    replays.set_defaults(run=runs)
    ratios = commands.add_parser("sarathi")
    ratios.add_argument("folder", type=Path)
    ratios.set_defaults(run=lambda options: sarathi(options.folder))
    options = parser.parse_args()
    try:
        options.run(options)
    except UsageError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
