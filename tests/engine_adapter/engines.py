"""Engines for tests: a tiny model with random weights, so that a start costs seconds of imports only."""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine_adapter.vllm_launch import VllmLaunch

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")

_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": 4096, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True, "dtype": "bfloat16",
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}


def tiny_launch(directory: Path, **more: Any) -> VllmLaunch:
    """A launch of a two-layer model that needs no weights and no tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(_CONFIG))
    args: dict[str, Any] = {
        "load_format": "dummy", "skip_tokenizer_init": True, "enforce_eager": True, "max_model_len": 1024,
        "kv_cache_memory_bytes": 64 << 20,
    }
    return VllmLaunch(str(directory), args | more)


def engine_directories() -> set[str]:
    """Private directories of engines, and message queues of vLLM, that exist now."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("stallfree-", "psm_"))}
