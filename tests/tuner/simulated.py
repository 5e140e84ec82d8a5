"""Simulated engines for tests of the tuner: a cost of round numbers, in a calibration file."""

import json
from pathlib import Path
from typing import Any

from engine_adapter.simulator.step_cost import StepCost

MS = 1_000_000
COST = StepCost.linear(token_ns=350_000, fixed_ns=10 * MS, decode_ns=300_000, chunk_pair_ns=30.0,
                       most_tokens=2048, delivery_ns=0.2 * MS)
ENGINE: dict[str, Any] = {
    "name": "vllm", "version": "0.32.0", "model": "small-model", "max_model_len": 2048,
    "num_kv_blocks": 2000, "kv_block_size": 16,
    "fingerprint": {"device": "cpu", "prefix_caching": True, "async_scheduling": False},
}
ERRORS = {"name": "all steps", "n": 900, "median_abs": 0.02, "p90_abs": 0.05, "bias": 0.0}
COVERED = {"step_tokens": 2048, "chunk_tokens": 2048, "prefix_tokens": 2048, "decodes": 128,
           "decode_context": 100_000, "sparse": []}


def write_calibration(path: Path, cost: StepCost = COST, **engine: Any) -> Path:
    """A file as `tune calibrate` writes it; `engine` are facts that differ from ENGINE's."""
    path.write_text(json.dumps({
        "schema": 1, "kind": "calibration", "cost": cost.as_dict(), "engine": ENGINE | engine,
        "errors": {"all": [ERRORS]}, "covered": COVERED, "runs": [{"name": "a"}, {"name": "b"}],
        "new_shape_ns": 0.0, "warnings": [], "created": "2026-01-01T00:00:00+00:00",
        "stallfree_version": "0"}))
    return path
