"""What a started vLLM engine says about itself, as JSON, and the EngineInfo made of it."""

import json
import os
from pathlib import Path
from typing import Any

from engine_adapter.errors import StartFailed
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.seam import EngineInfo


def facts_beside(control_block: Path) -> Path:
    """Where the facts of the engine that uses this control block lie."""
    return control_block.with_name(control_block.name + ".json")


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Write them whole: a reader sees all or nothing."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(draft, path)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts in a file that `write_facts` wrote. StartFailed when there are none."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StartFailed(f"the engine did not say what it started with: {error}") from None
    return facts


def info_from_facts(facts: dict[str, Any], *, name: str, model: str, knobs: Knobs, live_knobs_note: str,
                    start_seconds: float, token_count_source: str = "engine") -> EngineInfo:
    """EngineInfo of an engine with these facts (see vllm_config.describe) and `knobs` in force.

    Knobs are live where `live_knobs_note` is empty.
    """
    limits, max_model_len = facts["limits"], facts["max_model_len"]
    return EngineInfo(
        name=name, version=facts["version"], model=model, max_model_len=max_model_len,
        vocab_size=facts["vocab_size"], knobs=knobs, default_knobs=Knobs.from_dict(facts["default_knobs"]),
        limits=KnobLimits(limits["token_budget"], limits["max_seqs"], max_model_len),
        num_kv_blocks=facts["num_kv_blocks"], kv_block_size=facts["kv_block_size"],
        live_knobs=not live_knobs_note, live_knobs_note=live_knobs_note, start_seconds=start_seconds,
        token_count_source=token_count_source, fingerprint=facts["fingerprint"],
    )
