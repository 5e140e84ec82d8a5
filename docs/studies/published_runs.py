"""Replays a recorded run of a real vLLM in the simulator, and fits three constants of a hardware sheet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from llmservingsim import Recorded
from replicas import SharedExperts, Times, play_together
from scipy.optimize import minimize

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.sheets import (
    Hardware,
    Model,
    adjusted,
    hardware_names,
    hardware_sheet,
    kv_blocks,
    model_names,
    model_sheet,
    roofline_cost,
)
from workloads.errors import UsageError

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "auto": None}
VLLM_019 = {"async_scheduling": True, "reserve_full_isl": False}
"""What vLLM 0.19 does by itself; the prompts of these runs share nothing, so its prefix cache is left out."""
TRIES = 60
"""Replays for each of the two searches of a fit."""
PULL = 0.03
"""Times the squared logarithms of the constants over the sheet's: where a run hardly tells them apart, as
it does products and link, they stay near the sheet."""


def sheet_of_hardware(name: str) -> Hardware:
    """The sheet that a name like RTXPRO6000 means, or that of a file."""
    plain = re.sub("[^a-z0-9]", "", name.lower())
    for known in hardware_names():
        if re.sub("[^a-z0-9]", "", known).startswith(plain):
            return hardware_sheet(known)
    return hardware_sheet(name)


def sheet_of_model(name: str) -> Model:
    """The sheet whose name the model's begins with, the longest of them, or that of a file."""
    plain = name.rsplit("/", 1)[-1].lower()
    fitting = [known for known in model_names() if plain.startswith(known)]
    return model_sheet(max(fitting, key=len) if fitting else name)


@dataclass(frozen=True, eq=False)
class Target:
    """A recorded run, and what it ran on."""

    run: Recorded
    hardware: Hardware
    model: Model

    @property
    def tensor_parallel(self) -> int:
        return int(self.run.engine.get("tensor_parallel_size") or 1)

    @property
    def replicas(self) -> int:
        return int(self.run.engine.get("data_parallel_size") or 1)

    @property
    def shares_experts(self) -> bool:
        """Whether the replicas divide the experts among them, and so step together."""
        return self.replicas > 1 and self.model.experts is not None

    @property
    def constants(self) -> tuple[str, ...]:
        """The three that are fitted: of devices that work together their link, else what every step takes."""
        return ("bandwidth", "mfu", "link" if self.tensor_parallel > 1 or self.shares_experts else "fixed")

    def settings(self) -> SchedulerSettings:
        """Of each replica."""
        engine = self.run.engine
        block_size = int(engine.get("block_size") or 16)
        max_len = int(engine.get("max_model_len") or self.model.max_model_len)
        budget, seqs = int(engine["max_num_batched_tokens"]), int(engine["max_num_seqs"])
        blocks = engine.get("num_gpu_blocks") or engine.get("num_gpu_blocks_override") or kv_blocks(
            self.hardware, self.model, gpu_memory_utilization=engine.get("gpu_memory_utilization") or 0.9,
            block_size=block_size, tensor_parallel=self.tensor_parallel, max_batched_tokens=budget,
            max_seqs=seqs, expert_parallel=self.replicas if self.shares_experts else 1)
        return SchedulerSettings(token_budget=budget, max_seqs=seqs, max_model_len=max_len,
                                 num_kv_blocks=int(blocks), block_size=block_size, **VLLM_019)

    def sheet(self, constants: Mapping[str, float]) -> Hardware:
        """The hardware with these in place of its own: `bandwidth` and `link` in GB/s, `mfu` as a share,
        `fixed` in microseconds."""
        changed = adjusted(
            self.hardware, mfu=constants.get("mfu"),
            bandwidth=constants["bandwidth"] * 1e9 if "bandwidth" in constants else None,
            fixed_ns=constants["fixed"] * 1e3 if "fixed" in constants else None)
        if "link" in constants:
            speed = constants["link"]
            link = {"gb_per_s": speed, "host_gb_per_s": speed, "share": 1.0}
            changed = changed.model_copy(update={"link": changed.link.model_copy(update=link)})
        return changed

    def own_constants(self) -> dict[str, float]:
        """What the sheet itself says."""
        link, sheet = self.hardware.link, self.hardware
        every = {"bandwidth": sheet.bytes_per_ns, "mfu": sheet.computing("bf16").gemm_share,
                 "fixed": max(sheet.step_us, 500.0), "link": link.gb_per_s * link.share}
        return {name: every[name] for name in self.constants}


def replay(target: Target, constants: Mapping[str, float]) -> Times:
    """When the simulator says that each request was scheduled, and got its first and last token."""
    run, sheet = target.run, target.sheet(constants)
    settings = target.settings()
    shape = {"most_tokens": settings.token_budget, "dtype": DTYPES.get(run.engine.get("dtype", "auto")),
             "tensor_parallel": target.tensor_parallel, "cudagraph_max": min(512, 2 * settings.max_seqs)}
    load = SimulatedLoad(arrival_ns=run.arrival_ns, input_len=run.input_len, output_len=run.output_len)
    if target.shares_experts:
        whole = roofline_cost(sheet, target.model, expert_parallel=target.replicas, **shape)
        alone = roofline_cost(sheet, replace(target.model, experts=None, width=1), **shape)
        together = np.maximum(whole.linear_ns - alone.linear_ns, 0.0)
        return play_together(load, settings, target.replicas, SharedExperts(alone, together))
    # These runs were timed in the engine: what lies between it and a client is left out.
    cost = replace(roofline_cost(sheet, target.model, **shape),
                   arrival_ns=0.0, arrival_token_ns=0.0, delivery_ns=0.0)
    times = Times(*(np.full(len(load), -1, dtype=np.int64) for _ in range(3)))
    for first in range(target.replicas):
        part = slice(first, None, target.replicas)
        its_load = SimulatedLoad(arrival_ns=run.arrival_ns[part], input_len=run.input_len[part],
                                 output_len=run.output_len[part])
        played = play(its_load, settings, cost, keep_steps=False)
        if played.refused.any():
            raise UsageError(f"{settings.num_kv_blocks} KV blocks, as the sheets have it, are too few for a "
                             f"request of {run.name}")
        times.scheduled_ns[part] = played.first_scheduled_ns
        times.first_token_ns[part] = played.read_ns[played.reads_offset[:-1]]
        times.last_token_ns[part] = played.read_ns[played.reads_offset[1:] - 1]
    return times


@dataclass(frozen=True, eq=False)
class Seen:
    """Which requests a fit may look at: those that got their first, and their last, token by a moment."""

    first: Bool
    last: Bool


def seen_by(run: Recorded, share: float) -> Seen:
    """At this share of the run's time."""
    moment = share * float(run.last_token_ns.max())
    return Seen(run.first_token_ns <= moment, (run.last_token_ns <= moment) & (run.output_len > 1))


def fit(target: Target, share: float = 0.5) -> dict[str, float]:
    """The three constants that bring the replay closest to the first `share` of the run: by the mean
    absolute logarithm of (predicted / observed) TPOT, and 0.3 of that of the time from admission to the
    first token, each at most 0.5, with PULL for each constant's distance from the sheet; found by the
    Nelder-Mead simplex, twice, from the sheet's own values."""
    run, seen = target.run, seen_by(target.run, share)
    if not seen.last.any():
        raise UsageError(f"nothing finished in the first {share:.0%} of {run.name}: nothing to fit")
    own = target.own_constants()
    first = (run.first_token_ns - run.scheduled_ns)[seen.first]
    tpot = run.tpot_ns()[seen.last]

    def constants(logarithms: Float64) -> dict[str, float]:
        values = {name: own[name] * float(np.exp(x)) for name, x in zip(own, logarithms, strict=True)}
        return values | {"mfu": min(values["mfu"], 1.0)}

    def miss(logarithms: Float64) -> float:
        times = replay(target, constants(logarithms))
        ttft_ratio = (times.first_token_ns - times.scheduled_ns)[seen.first] / first
        gaps = np.maximum(run.output_len - 1, 1)
        tpot_ratio = ((times.last_token_ns - times.first_token_ns) / gaps)[seen.last] / tpot
        return float(np.mean(np.abs(np.log(tpot_ratio)))
                     + 0.3 * np.mean(np.minimum(np.abs(np.log(ttft_ratio)), 0.5))
                     + PULL * np.sum(np.square(logarithms)))

    best = np.zeros(len(own))
    # Sheets promise too much, and of links most: the first search begins downwards.
    for simplex in (-np.diag([0.3, 0.3, 1.5]), 0.1 * np.eye(len(own))):
        best = minimize(miss, best, method="Nelder-Mead",
                        options={"initial_simplex": np.vstack([best, best + simplex]), "xatol": 3e-3,
                                 "fatol": 1e-4, "maxfev": TRIES}).x
    return constants(best)
