"""What a simulated engine says about itself: the same as a real one, and that nobody measured it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.seam import EngineInfo
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost

ENGINE_NAME = "simulator"
VERSION = "vLLM 0.32 rules"
"""The scheduler that is modelled."""
VOCAB_SIZE = 32_000
"""Of prompts where the model's own does not matter."""


def knobs_of(settings: SchedulerSettings) -> Knobs:
    """The knobs among `settings`."""
    return Knobs(settings.token_budget, settings.max_seqs, settings.long_prefill_token_threshold,
                 settings.adaptive_long_prefill, "priority" if settings.priority else "fcfs")


def cost_digest(cost: StepCost) -> str:
    """A short name of exactly these costs, wherever they come from."""
    numbers = {name: value for name, value in cost.as_dict().items() if name != "provenance"}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint_of(settings: SchedulerSettings, cost: StepCost,
                   simulated: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a comparison must find equal: the cost of a step, by its digest, and what is set at the start.

    `simulated` names, in words, the `hardware`, the `model`, where the `cost` comes from and how large
    its known `errors` are; what is left out is taken from the cost's provenance where that says it.
    """
    told = {name: str(cost.provenance[name]) for name in ("hardware", "model") if name in cost.provenance}
    return {
        "cost_digest": cost_digest(cost), "async_scheduling": settings.async_scheduling,
        "prefix_caching": settings.prefix_caching, "pipeline_parallel": settings.pipeline_parallel,
        "num_spec_tokens": settings.num_spec_tokens, "watermark": settings.watermark,
        "simulated": {**told, **(simulated or {}), "rule": settings.rule},
    }


def simulated_info(
    settings: SchedulerSettings, cost: StepCost, *, fingerprint: Mapping[str, Any] | None = None,
    model: str = "", default_knobs: Knobs | None = None, limits: KnobLimits | None = None,
    vocab_size: int = VOCAB_SIZE,
) -> EngineInfo:
    """EngineInfo of a simulated engine with these settings in force; what is left out follows from them."""
    knobs = knobs_of(settings)
    told = dict(fingerprint or fingerprint_of(settings, cost))
    return EngineInfo(
        name=ENGINE_NAME, version=VERSION, model=model or told["simulated"].get("model", "unnamed"),
        max_model_len=settings.max_model_len, vocab_size=vocab_size, knobs=knobs,
        default_knobs=default_knobs or knobs,
        limits=limits or KnobLimits(settings.max_batched_tokens, settings.max_seqs, settings.max_model_len),
        num_kv_blocks=settings.num_kv_blocks, kv_block_size=settings.block_size, live_knobs=True,
        live_knobs_note="", start_seconds=0.0, fingerprint=told,
    )
