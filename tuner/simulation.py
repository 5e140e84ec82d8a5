"""Which engine is simulated: from the names of sheets, or a calibration, to costs and settings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine_adapter.clock import Clock
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.seam import EngineInfo
from engine_adapter.simulator.engine import SimulatedEngine
from engine_adapter.simulator.info import VOCAB_SIZE, fingerprint_of, simulated_info
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.sheets import (
    Hardware,
    Model,
    hardware_names,
    hardware_sheet,
    kv_blocks,
    model_names,
    model_sheet,
    roofline_cost,
)
from engine_adapter.simulator.step_cost import StepCost
from workloads import UsageError

_DEFAULTS_BY_GIB = ((160, Knobs(16384, 1024)), (70, Knobs(8192, 1024)), (0, Knobs(2048, 256)))
"""vLLM 0.32's defaults of `vllm serve` by the memory of a device, `EngineArgs.get_batch_defaults`."""
_CPU_BLOCK, _GPU_BLOCK = 128, 16
_OF_SHEETS = ("tensor_parallel", "pipeline_parallel", "dtype", "gpu_memory_utilization", "block_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationTarget:
    """One engine that is simulated, started with its default knobs. Made by `target_from`."""

    cost: StepCost
    model: str
    hardware: str
    max_model_len: int
    num_kv_blocks: int
    """As vLLM counts them, its null block among them."""
    block_size: int
    prefix_caching: bool
    async_scheduling: bool
    pipeline_parallel: int = 1
    num_spec_tokens: int = 0
    watermark: float = 0.0
    default_knobs: Knobs
    vocab_size: int = VOCAB_SIZE
    provenance: str
    """Where the cost of a step comes from, in a few words."""
    errors: str = ""
    """How far off it is known to be, as a sentence; empty where nobody has compared."""
    asked: Mapping[str, Any]
    """What `target_from` was called with: it makes an equal target of it."""

    def settings(self, knobs: Knobs, *, rule: str = "vllm-v1") -> SchedulerSettings:
        """Of the engine started with `knobs`."""
        # Other rules know neither; asked for with them they are refused when they are played.
        known = rule == "vllm-v1"
        return SchedulerSettings.from_knobs(
            knobs, max_model_len=self.max_model_len, num_kv_blocks=self.num_kv_blocks,
            block_size=self.block_size, pipeline_parallel=self.pipeline_parallel,
            prefix_caching=self.prefix_caching and (known or "prefix_caching" in self.asked),
            async_scheduling=self.async_scheduling and (known or "async_scheduling" in self.asked),
            num_spec_tokens=self.num_spec_tokens, watermark=self.watermark, rule=rule)

    def info(self, knobs: Knobs, *, rule: str = "vllm-v1") -> EngineInfo:
        """What the engine started with `knobs` says about itself."""
        settings = self.settings(knobs, rule=rule)
        return simulated_info(settings, self.cost, model=self.model, default_knobs=self.default_knobs,
                              fingerprint=fingerprint_of(settings, self.cost, self.told()),
                              vocab_size=self.vocab_size)

    def told(self) -> dict[str, str]:
        """What a reader of its figures must know, in words."""
        told = {"hardware": self.hardware, "model": self.model, "cost": self.provenance}
        return told | ({"errors": self.errors} if self.errors else {})

    def engine(self, clock: Clock, knobs: Knobs, *, ceiling_budget: int = 0) -> SimulatedEngine:
        """An engine started with `knobs`, or with a larger ceiling for its live budget."""
        settings, info = self.settings(knobs), self.info(knobs)
        ceiling = max(ceiling_budget, knobs.token_budget)
        return SimulatedEngine(
            clock, replace(settings, input_budget=ceiling), self.cost,
            limits=KnobLimits(ceiling, knobs.max_seqs, self.max_model_len), default_knobs=self.default_knobs,
            model=self.model, vocab_size=self.vocab_size, fingerprint=info.fingerprint)


def target_from(
    *, hardware: str, model: str | None = None, tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None, dtype: str | None = None, max_model_len: int | None = None,
    num_kv_blocks: int | None = None, block_size: int | None = None,
    gpu_memory_utilization: float | None = None, prefix_caching: bool | None = None,
    async_scheduling: bool | None = None, num_spec_tokens: int | None = None, watermark: float | None = None,
) -> SimulationTarget:
    """The engine of `model` on `hardware`, each the name of a sheet or a path; or the engine that the
    calibration file `hardware` was fitted to. What is None is vLLM's own choice for that engine.

    UsageError, one line, for a sheet that is not known, for what does not fit the hardware, and for
    flags that a calibration has decided already.
    """
    asked = {name: value for name, value in locals().items() if value is not None}
    changes: dict[str, Any] = {"max_model_len": max_model_len, "num_kv_blocks": num_kv_blocks,
               "prefix_caching": prefix_caching, "async_scheduling": async_scheduling,
               "num_spec_tokens": num_spec_tokens, "watermark": watermark}
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    if is_calibration(Path(hardware)):
        return replace(_calibrated(asked), asked=asked, **given)
    if model is None:
        raise UsageError(f"say which model runs on {hardware} with --model: a sheet "
                         f"({', '.join(model_names())}), or the config.json of any other")
    found = _from_sheets(hardware_sheet(hardware), model_sheet(model), asked)
    return replace(found, **given)


def known_sheets() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the hardware sheets, and of the model sheets."""
    return hardware_names(), model_names()


def is_calibration(path: Path) -> bool:
    """Whether this is a file of `tune calibrate`, by what it says of itself."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") == "calibration"


def _from_sheets(hardware: Hardware, model: Model, asked: Mapping[str, Any]) -> SimulationTarget:
    tensor, pipeline = asked.get("tensor_parallel", 1), asked.get("pipeline_parallel", 1)
    dtype, on_cpu = asked.get("dtype"), not hardware.graphs
    knobs = _default_knobs(hardware, tensor * pipeline)
    block = asked.get("block_size", _CPU_BLOCK if on_cpu else _GPU_BLOCK)
    layout = {"tensor_parallel": tensor, "pipeline_parallel": pipeline} | ({"dtype": dtype} if dtype else {})
    memory = {name: asked[name] for name in ("gpu_memory_utilization",) if name in asked}
    blocks = asked.get("num_kv_blocks")
    if blocks is None:
        blocks = kv_blocks(hardware, model, block_size=block, max_batched_tokens=knobs.token_budget,
                           max_seqs=knobs.max_seqs, **memory, **layout)
    return SimulationTarget(
        cost=roofline_cost(hardware, model, most_tokens=knobs.token_budget, **layout),
        model=model.name, hardware=hardware.name,
        # vLLM would refuse to start where one request of the model's length does not fit.
        max_model_len=min(model.max_model_len, (blocks - 1) * block), num_kv_blocks=blocks, block_size=block,
        prefix_caching=True, async_scheduling=not on_cpu, pipeline_parallel=pipeline, default_knobs=knobs,
        vocab_size=model.vocabulary, provenance="computed from the sheets", asked=asked)


def _default_knobs(hardware: Hardware, devices: int) -> Knobs:
    if not hardware.graphs:
        return _of_cpus(devices)
    # vLLM makes an exception of the A100, in which large steps cost throughput (its PR 17885).
    large = "a100" not in hardware.name.lower()
    return next(knobs for gib, knobs in _DEFAULTS_BY_GIB
                if hardware.memory_gib >= gib and (large or gib == 0))


def _of_cpus(devices: int) -> Knobs:
    return Knobs(2048 * devices, 128 * devices)


def _calibrated(asked: Mapping[str, Any]) -> SimulationTarget:
    from tuner.calibration.file import load_calibration

    if decided := [name for name in _OF_SHEETS if name in asked]:
        raise UsageError(f"a calibration is of one engine as it was: leave out "
                         f"--{decided[0].replace('_', '-')}, or name a hardware sheet instead of it")
    path = Path(asked["hardware"])
    found = load_calibration(path)
    facts, engine = found.engine.get("fingerprint") or {}, found.engine
    if missing := [name for name in ("max_model_len", "num_kv_blocks", "kv_block_size")
                   if not engine.get(name) and name not in asked]:
        raise UsageError(f"the engine of {path} did not say its {missing[0]}: calibrate from runs of "
                         f"tune bench on an engine that was started by it")
    device, stages = facts.get("device"), facts.get("pipeline_parallel", 1)
    devices = facts.get("tensor_parallel", 1) * stages
    runs = f"{len(found.runs)} run{'s' if len(found.runs) != 1 else ''}"
    steps, model = found.overall, engine.get("model") or path.name
    named = asked.get("model", model)
    unused = "" if named in (model, Path(model).name) else f"; --model {named} is not used"
    return SimulationTarget(
        cost=found.cost, model=model,
        hardware=f"{device or 'machine'} of {path.name}",
        max_model_len=engine.get("max_model_len") or 0, num_kv_blocks=engine.get("num_kv_blocks") or 0,
        block_size=engine.get("kv_block_size") or 0, prefix_caching=bool(facts.get("prefix_caching", True)),
        async_scheduling=bool(facts.get("async_scheduling", device != "cpu")),
        pipeline_parallel=stages,
        default_knobs=_of_cpus(devices) if device == "cpu" else _DEFAULTS_BY_GIB[-1][1],
        provenance=f"fitted to {runs} of {engine.get('name')} {engine.get('version')}{unused}",
        errors=f"single steps are off by {steps.median_abs:.1%} in the median and {steps.p90_abs:.1%} at "
               f"p90, on {steps.n} steps that they were not fitted to",
        asked=asked)
