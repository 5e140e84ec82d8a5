"""Sarathi-Serve's capacity experiments (OSDI '24, arXiv 2403.02310, sections 5.1 to 5.3) in the simulator."""

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.sheets import (
    StepSample,
    fit_steps,
    hardware_sheet,
    kv_blocks,
    model_sheet,
    roofline_cost,
)
from engine_adapter.simulator.sheets.hardware import Link
from engine_adapter.simulator.step_cost import StepCost

Int64 = npt.NDArray[np.int64]
REQUESTS, SEEDS, GRAIN = 2048, (1, 2, 3), 0.02
LONGEST = 8192
SLO_BATCH, SLO_CONTEXT = 32, 4096
"""An SLO is 5 (strict) or 25 times (relaxed) a step of so many decodes."""
MEDIAN_DELAY_S = 2.0
HARDWARE = "a100-pcie-80gb"
ETHERNET = Link(gb_per_s=12.5, share=0.8, latency_us=50)
"""100 Gbit/s between the two nodes of Falcon-180B."""


@dataclass(frozen=True)
class Server:
    """A scheduler of the paper, and how it was set."""

    name: str
    rule: str
    budget: int
    max_seqs: int = 128


SARATHI_512 = Server("Sarathi-Serve, 512", "sarathi-serve", 512)
SARATHI_2048 = Server("Sarathi-Serve, 2,048", "sarathi-serve", 2048)
VLLM = Server("vLLM", "vllm-v0", LONGEST)
ORCA = Server("Orca", "orca", LONGEST, max_seqs=16)


@dataclass(frozen=True)
class Deployment:
    """A model on A100s in pairs, and table 3's objectives for its p99 TBT."""

    name: str
    model: str
    tensor_parallel: int
    pipeline_parallel: int
    strict_s: float
    relaxed_s: float
    cost: StepCost

    def settings(self, server: Server) -> SchedulerSettings:
        blocks = kv_blocks(hardware_sheet(HARDWARE), model_sheet(self.model), gpu_memory_utilization=0.9,
                           tensor_parallel=self.tensor_parallel, pipeline_parallel=self.pipeline_parallel,
                           max_batched_tokens=server.budget, max_seqs=server.max_seqs)
        return SchedulerSettings(   # their largest batch is that of each step under way
            token_budget=server.budget, max_seqs=server.max_seqs * self.pipeline_parallel,
            max_model_len=LONGEST, rule=server.rule, num_kv_blocks=blocks,
            pipeline_parallel=self.pipeline_parallel)


def yi_34b(folder: Path) -> Deployment:
    """Products as fast as in figure 2's lone prefills, without that of 256 tokens, which was the engine's
    first step; and the fixed part of a step such that table 3's 5 x 40 ms is right."""
    with (folder / "figure-2_prefill.csv").open(encoding="utf-8") as lines:
        took = {int(row["batch_num_prefill_tokens"]): float(row["batch_execution_time"]) * 1e9
                for row in csv.DictReader(lines)}
    steps = [StepSample(((tokens, 0),), (), ns) for tokens, ns in took.items() if tokens != 256]
    model = model_sheet("yi-34b")
    fitted = fit_steps(hardware_sheet(HARDWARE), model, steps, free=("mfu",), tensor_parallel=2)
    cost = roofline_cost(fitted.hardware, model, tensor_parallel=2, most_tokens=LONGEST)
    return Deployment("Yi-34B, TP2", "yi-34b", 2, 1, 0.2, 1.0, _slower(cost, 0.2 / 5))


def falcon_180b() -> Deployment:
    """From the sheets, and the fixed part of a step such that table 3's 5 x 200 ms is right."""
    cost = roofline_cost(hardware_sheet(HARDWARE), model_sheet("falcon-180b"), tensor_parallel=4,
                         pipeline_parallel=2, most_tokens=LONGEST, stage_link=ETHERNET)
    return Deployment("Falcon-180B, TP4-PP2", "falcon-180b", 4, 2, 1.0, 5.0, _slower(cost, 1.0 / 5))


def _slower(cost: StepCost, decodes_s: float) -> StepCost:
    missing = decodes_s * 1e9 - cost.step_ns(SLO_BATCH, (), [SLO_CONTEXT] * SLO_BATCH)
    return replace(cost, fixed_ns=max(cost.fixed_ns + missing, 0.0))


def lengths(folder: Path) -> tuple[Int64, Int64]:
    """Prompts and answers of openchat_sharegpt4, in tokens."""
    with next(folder.glob("sharegpt*.csv")).open(encoding="utf-8") as lines:
        rows = [(int(row["num_prefill_tokens"]), int(row["num_decode_tokens"]))
                for row in csv.DictReader(lines)]
    inputs, outputs = np.array(rows, dtype=np.int64).T
    return inputs, outputs


def capacity(server: Server, where: Deployment, p99_tbt_s: float, population: tuple[Int64, Int64]) -> float:
    """Requests a second at which the pooled p99 TBT and the median scheduling delay hold, mean of SEEDS."""
    settings = where.settings(server)

    def holds(rate: float, seed: int) -> bool:
        rng = np.random.default_rng(seed)
        drawn = rng.integers(len(population[0]), size=REQUESTS)
        load = SimulatedLoad(arrival_ns=np.cumsum(rng.exponential(1e9 / rate, REQUESTS)).astype(np.int64),
                             input_len=population[0][drawn], output_len=population[1][drawn])
        played = play(load, settings, where.cost, keep_steps=False)
        delay = np.median(played.first_scheduled_ns - load.arrival_ns)
        gaps = np.delete(np.diff(played.read_ns), played.reads_offset[1:-1] - 1)   # none between requests
        return bool(delay <= MEDIAN_DELAY_S * 1e9 and np.percentile(gaps, 99) <= p99_tbt_s * 1e9)

    return float(np.mean([_highest(lambda rate, seed=seed: holds(rate, seed)) for seed in SEEDS]))


def _highest(held: Callable[[float], bool], high: float = 4.0) -> float:
    low = 0.0
    while high - low > GRAIN * high:
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) else (low, middle)
    return low


def sarathi(folder: Path) -> None:
    """Prints capacities and their ratios beside the paper's."""
    population = lengths(folder)
    yi, falcon = yi_34b(folder), falcon_180b()
    for where in (yi, falcon):
        prefill = where.cost.step_ns(4096, [(4096, 0)]) / 1e6
        decodes = where.cost.step_ns(SLO_BATCH, (), [SLO_CONTEXT] * SLO_BATCH) / 1e6
        print(f"{where.name}: a prefill of 4,096 tokens takes {prefill:.0f} ms, {SLO_BATCH} decodes at "
              f"{SLO_CONTEXT} {decodes:.0f} ms, {where.settings(VLLM).num_kv_blocks} KV blocks")
    print("| | p99 TBT | Sarathi-Serve | vLLM | Orca | to vLLM (paper) | to Orca (paper) |")
    print("|---|---|---|---|---|---|---|")
    for where, slo, ours, paper in (
        (yi, yi.strict_s, SARATHI_512, ("3.7", "4.0")), (yi, yi.relaxed_s, SARATHI_2048, ("1.65", "-")),
        (falcon, falcon.strict_s, SARATHI_512, ("3.6", "-")),
        (falcon, falcon.relaxed_s, SARATHI_2048, ("1.48", "-")),
    ):
        orca = replace(ORCA, max_seqs=ORCA.max_seqs // where.pipeline_parallel)
        rates = [capacity(server, where, slo, population) for server in (ours, VLLM, orca)]
        ratios = [f"{rates[0] / other:.2f} ({said})" if other else f"none held ({said})"
                  for other, said in zip(rates[1:], paper, strict=True)]
        cells = [where.name, f"{slo:g} s, budget {ours.budget}", *(f"{rate:.3f}" for rate in rates), *ratios]
        print(f"| {' | '.join(cells)} |", flush=True)
    by_batch = {seqs: capacity(replace(VLLM, max_seqs=seqs), yi, yi.strict_s, population)
                for seqs in (32, 64, 128)}
    print("vLLM on Yi-34B by its largest batch, strict: "
          + ", ".join(f"{seqs}: {rate:.3f}" for seqs, rate in by_batch.items()))
