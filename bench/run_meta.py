"""What a run knows about itself, JSON-able."""

import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from engine_adapter.seam import EngineInfo
from workloads import Plan


def run_meta(plan: Plan, info: EngineInfo, salt: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Run.meta for `plan` played against the engine `info`; `extra` comes last and wins."""
    rate = plan.rate_rps
    return {
        "knobs": None if info.knobs is None else info.knobs.as_dict(),
        "engine": {
            "name": info.name, "version": info.version, "model": info.model,
            "max_model_len": info.max_model_len, "num_kv_blocks": info.num_kv_blocks,
            "kv_block_size": info.kv_block_size, "live_knobs": info.live_knobs,
            "start_seconds": info.start_seconds, "fingerprint": dict(info.fingerprint),
        },
        "plan_digest": plan.digest(),
        "seed": plan.seed,
        "rate_rps": "inf" if math.isinf(rate) else float(rate),
        "salt": salt,
        "component_names": list(plan.component_names),
        **({"component_tenants": list(plan.component_tenants)} if any(plan.component_tenants) else {}),
        "stages": [stage.as_dict() for stage in plan.stages],
        "token_count_source": info.token_count_source,
        "versions": {
            "stallfree": _own_version(), "python": platform.python_version(), "numpy": np.__version__,
        },
        **extra,
    }


def _own_version() -> str:
    try:
        return version("stallfree")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
