"""Models by name, or from any Hugging Face config.json."""

import json
from pathlib import Path
from typing import Any

from engine_adapter.simulator.sheets.files import SheetFiles
from engine_adapter.simulator.sheets.models import Experts, Latent, Model
from workloads.errors import UsageError

_NO_GATE = {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "opt", "phi", "starcoder2"}
"""Model types whose feed-forward part has two matrices; all others have a gate too."""
_FOUR_TIMES = {"bloom", "falcon", "gpt2", "gpt_bigcode", "gptj"}
"""Those whose configs leave the feed-forward width out, because it is four times the hidden size."""
_TIED = {"bloom", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "opt"}
"""Those that share input and output embeddings where the config does not say."""

_FILES = SheetFiles("models")


def model_names() -> tuple[str, ...]:
    """Names of the sheets that come with Stallfree."""
    return _FILES.names()


def model_sheet(name_or_path: str) -> Model:
    """The model of that name; of that YAML sheet; or of that Hugging Face config.json, given as the
    file or as the folder it lies in. UsageError, one line that names what is missing, otherwise."""
    if (path := Path(name_or_path)).is_dir():
        name_or_path = str(path / "config.json")
    content, name = _FILES.read(name_or_path)
    if isinstance(config := content.get("config"), dict):
        return model_from_config(config, name=name, source=str(content.get("source", name)))
    return model_from_config(content, name=name, source=name)


def published_parameters(name: str) -> float:
    """How many parameters the makers of a bundled model say that it has."""
    return float(_FILES.read(name)[0]["published_parameters"])


def model_from_config(config: dict[str, Any], *, name: str, source: str) -> Model:
    """The model that a Hugging Face config describes. UsageError names a key that is missing or wrong."""
    inner = config.get("text_config")   # of a model that also sees or hears
    keys = _Keys(config | inner if isinstance(inner, dict) else config, name)
    kind = str(keys.values.get("model_type", ""))
    hidden = keys.whole("hidden_size", "n_embd", "d_model")
    heads = keys.whole("num_attention_heads", "n_head", "n_heads")
    layers = keys.whole("num_hidden_layers", "n_layer", "n_layers")
    experts = _experts(keys, layers)
    only_experts = experts is not None and experts.layers == layers
    return Model(
        name=name, source=source, layers=layers, hidden=hidden, heads=heads,
        kv_heads=_kv_heads(keys, kind, heads),
        head_dim=keys.whole("head_dim", default=max(hidden // heads, 1)),
        width=keys.whole("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner",
                         default=4 * hidden if kind in _FOUR_TIMES else 0 if only_experts else None),
        gated=kind not in _NO_GATE, vocabulary=keys.whole("vocab_size"),
        # vLLM reduces once a layer for Falcon alone (its falcon.py), whatever else runs in parallel.
        parallel=kind == "falcon" and bool(keys.values.get("new_decoder_architecture")
                                           or keys.values.get("parallel_attn", True)),
        tied=bool(keys.values.get("tie_word_embeddings", kind in _TIED)),
        positions=keys.whole("max_position_embeddings", "n_positions") if kind in ("opt", "gpt2") else 0,
        max_model_len=keys.whole("max_position_embeddings", "n_positions", "seq_length", default=2048),
        latent=_latent(keys), experts=experts, sliding_window=_window(keys),
        native_dtype=_native_dtype(keys),
    )


class _Keys:
    """A config's values, under whichever of their names."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self.values, self.name = values, name

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first that is there, as an integer; the default where none is, or it is null."""
        for key in names:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"model config {self.name}: {key} must be an integer of at least {least}; "
                                 f"got {json.dumps(value, default=str)}")
            return value
        if default is None:
            raise UsageError(f"model config {self.name} has no {names[0]}")
        return default


def _kv_heads(keys: _Keys, kind: str, heads: int) -> int:
    if kind == "falcon" and not keys.values.get("new_decoder_architecture"):
        return 1 if keys.values.get("multi_query", True) else heads
    return keys.whole("num_key_value_heads", "num_kv_heads", "n_head_kv", default=heads)


def _latent(keys: _Keys) -> Latent | None:
    if keys.values.get("kv_lora_rank") is None:
        return None
    return Latent(kv_rank=keys.whole("kv_lora_rank"), rope_dim=keys.whole("qk_rope_head_dim"),
                  nope_dim=keys.whole("qk_nope_head_dim"), value_dim=keys.whole("v_head_dim"),
                  query_rank=keys.whole("q_lora_rank", default=0))


def _experts(keys: _Keys, layers: int) -> Experts | None:
    count = keys.whole("num_experts", "num_local_experts", "n_routed_experts", default=0, least=0)
    if count < 2:
        return None
    per_token = keys.whole("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk")
    if per_token > count:
        raise UsageError(f"model config {keys.name}: num_experts_per_tok is {per_token}, of {count} experts")
    width = keys.whole("moe_intermediate_size", "intermediate_size")
    shared = keys.whole("shared_expert_intermediate_size",
                        default=width * keys.whole("n_shared_experts", default=0, least=0), least=0)
    dense = keys.whole("first_k_dense_replace", default=0, least=0)
    dense += len(keys.values.get("mlp_only_layers") or ())
    every = keys.whole("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    return Experts(layers=max((layers - dense) // every, 1), count=count, per_token=per_token, width=width,
                   shared_width=shared)


def _window(keys: _Keys) -> int | None:
    if keys.values.get("sliding_window") is None or keys.values.get("use_sliding_window") is False:
        return None
    return keys.whole("sliding_window")


def _native_dtype(keys: _Keys) -> str:
    quantized = keys.values.get("quantization_config")
    if isinstance(quantized, dict) and quantized.get("quant_method") == "fp8":
        return "fp8"
    named = str(keys.values.get("dtype", keys.values.get("torch_dtype", "bfloat16")))
    return {"float32": "fp32", "float16": "fp16"}.get(named.removeprefix("torch."), "bf16")
