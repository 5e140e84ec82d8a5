"""The cost of a step from sheets: for each part the longer of computing and reading, one product over
all tokens of a step."""

from typing import Any

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.sheets.hardware import Hardware, Link
from engine_adapter.simulator.sheets.layout import Layout
from engine_adapter.simulator.sheets.models import Model
from engine_adapter.simulator.sheets.products import product_ns
from engine_adapter.simulator.step_cost import StepCost
from workloads.errors import UsageError

Float64 = npt.NDArray[np.float64]

DEFAULT_GRAPH_TOKENS = 512
"""vLLM 0.32's largest captured size; 1,024 on data-centre Blackwell, and at most twice max_num_seqs."""
_DECODE_TILE = 128
"""Tokens of the context that a decode's attention works through at a time. At no context at all a
sequence costs about as much as one such tile (FlashAttention 3 on H200, aiconfigurator)."""


def roofline_cost(hardware: Hardware, model: Model, *, most_tokens: int, dtype: str | None = None,
                  kv_dtype: str | None = None, tensor_parallel: int = 1, pipeline_parallel: int = 1,
                  expert_parallel: int = 1, cudagraph_max: int = DEFAULT_GRAPH_TOKENS,
                  stage_link: Link | None = None) -> StepCost:
    """The cost of steps of up to `most_tokens` tokens of `model` on devices of `hardware`.

    `dtype` is that of the weights, as published if left out; `cudagraph_max` the largest captured size,
    0 for none; `stage_link` what joins pipeline stages, where it is not the hardware's own link.
    With pipeline parallelism the cost is that of all stages after one another.
    UsageError for what cannot be laid out so.
    """
    if most_tokens < 1:
        raise UsageError(f"most_tokens must be at least 1; got {most_tokens}")
    layout = Layout(dtype=dtype or model.native_dtype, kv_dtype=kv_dtype, tensor_parallel=tensor_parallel,
                    pipeline_parallel=pipeline_parallel, expert_parallel=expert_parallel)
    layout.check(model)
    graph_tokens = min(cudagraph_max, most_tokens) if hardware.graphs else 0
    link = stage_link or hardware.link
    return StepCost(
        linear_ns=_linear_table(hardware, model, layout, most_tokens, graph_tokens, link),
        fixed_ns=hardware.step_us * 1e3,
        transfer_ns=link.latency_us * 1e3 if pipeline_parallel > 1 else 0.0,
        host_ns=hardware.host.step_us * 1e3, host_request_ns=hardware.host.request_us * 1e3,
        arrival_ns=hardware.host.arrival_us * 1e3, arrival_token_ns=hardware.host.arrival_token_us * 1e3,
        delivery_ns=hardware.host.delivery_us * 1e3,
        provenance=_provenance(hardware, model, layout, graph_tokens),
        **_attention(hardware, model, layout),
    )


def captured_sizes(largest: int) -> Float64:
    """The numbers of tokens that vLLM 0.32 captures CUDA graphs for, up to `largest` and with it: 1, 2,
    4, then every 8th below 256, then every 16th. Empty for 0."""
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16), largest}
    return np.array(sorted(size for size in sizes if 0 < size <= largest), dtype=np.float64)


def _linear_table(hardware: Hardware, model: Model, layout: Layout, most_tokens: int, graph_tokens: int,
                  stage_link: Link) -> Float64:
    tokens = np.arange(1, most_tokens + 1, dtype=np.float64)
    sizes = captured_sizes(graph_tokens)
    padded = np.append(sizes[np.searchsorted(sizes, tokens[:graph_tokens])], tokens[graph_tokens:])
    layers = (_products(hardware, model, layout, padded) + _elementwise(hardware, model, layout, padded)
              + _collectives(hardware, model, layout, padded))
    kernels = _kernels(model)
    layers += kernels * hardware.kernel_us * 1e3
    # Outside of a graph the host launches each kernel, and is the slower one in small steps.
    eager = tokens > graph_tokens
    layers[eager] = np.maximum(layers[eager], kernels * hardware.launch_us * 1e3)
    output = (model.embedding_parameters / layout.tensor_parallel * max(layout.weight_bytes, 2.0)
              / hardware.bytes_per_ns)   # only sampled tokens meet it: its reading counts
    stages = (layout.pipeline_parallel - 1) * 2.0 * model.hidden * tokens / (
        stage_link.gb_per_s * stage_link.share)
    return np.concatenate([[0.0], layers + output + stages])


def _products(hardware: Hardware, model: Model, layout: Layout, tokens: Float64) -> Float64:
    total = np.zeros_like(tokens)
    for linear in model.linears():
        total += linear.layers * product_ns(hardware, layout, linear, tokens)
    return total


def _elementwise(hardware: Hardware, model: Model, layout: Layout, tokens: Float64) -> Float64:
    """Norms with their residual sums (reading and writing two vectors, twice a layer), the rotation of
    queries and keys and their place in the cache, activations (an output and its one or two inputs),
    and the way of tokens to their experts and back."""
    whole, divided = 8.0 * model.hidden * model.layers, 0.0
    divided += 2.0 * (model.heads + 2 * model.kv_heads) * model.head_dim * model.layers
    inputs = 3.0 if model.gated else 2.0
    if moe := model.experts:
        divided += inputs * (moe.per_token * moe.width + moe.shared_width) * moe.layers
        whole += 4.0 * moe.per_token * model.hidden * moe.layers
    divided += inputs * model.width * (model.layers - (moe.layers if moe else 0))
    numbers = whole + divided / layout.tensor_parallel
    return 2.0 * numbers * tokens / hardware.bytes_per_ns


def _collectives(hardware: Hardware, model: Model, layout: Layout, tokens: Float64) -> Float64:
    total = np.zeros_like(tokens)
    moved = 2.0 * model.hidden * tokens
    if (degree := layout.tensor_parallel) > 1:
        # After attention and after the feed-forward part, each 2 (n - 1) / n of the bytes.
        reduces = model.layers * (1 if model.parallel else 2)
        total += reduces * _exchange(hardware.link, degree, 2 * (degree - 1) / degree * moved)
    if (degree := layout.expert_parallel) > 1 and model.experts:   # all-gather, then reduce-scatter
        total += 2 * model.experts.layers * _exchange(hardware.link, degree, (degree - 1) * moved)
    return total


def _exchange(link: Link, devices: int, moved: Float64) -> Float64:
    speed = link.gb_per_s if devices <= link.gpus else link.host_gb_per_s
    return link.latency_us * 1e3 + moved / (speed * link.share)


def _kernels(model: Model) -> int:
    """Kernels of a step as vLLM runs it: ten for a dense layer (norm, queries to values, rotation, cache,
    attention, output, norm, up, activation, down), four more with a latent, five more with experts
    (router, choice, sorting, alignment, sum)."""
    return ((10 + (4 if model.latent else 0)) * model.layers
            + (5 * model.experts.layers if model.experts else 0))


def _attention(hardware: Hardware, model: Model, layout: Layout) -> dict[str, Any]:
    """The fields of StepCost about chunks and decodes."""
    flops = hardware.computing("bf16").peak_tflops * 1e3 * hardware.attention_share
    cached = layout.kv_token_bytes(model)
    pair = model.pair_flops() / layout.tensor_parallel / flops
    decode, chunk = cached / hardware.cache_bytes_per_ns, cached / hardware.bytes_per_ns
    if latent := model.latent:
        # Decodes attend in the space of the latent, chunks first expand the latents of their prefix
        # (vLLM's MLA backends).
        heads = model.layers * model.heads / layout.tensor_parallel
        decode = max(decode, 2.0 * heads * (2 * latent.kv_rank + latent.rope_dim) / flops)
        chunk += 2.0 * heads * latent.kv_rank * (latent.nope_dim + latent.value_dim) / flops
    return {
        "chunk_ns": model.layers * hardware.attention_sequence_us * 1e3,
        "chunk_pair_ns": pair, "chunk_kv_ns": chunk, "query_tile": hardware.query_tile,
        "decode_ns": _DECODE_TILE * decode, "decode_kv_ns": decode,
    }


def _provenance(hardware: Hardware, model: Model, layout: Layout, graph_tokens: int) -> dict[str, Any]:
    noted = {"sliding_window": model.sliding_window} if model.sliding_window else {}
    return {"kind": "sheets", "hardware": hardware.name, "hardware_source": hardware.source,
            "assumed": hardware.assumed, "model": model.name, "model_source": model.source,
            "dtype": layout.dtype, "kv_dtype": layout.kv_dtype, "tensor_parallel": layout.tensor_parallel,
            "pipeline_parallel": layout.pipeline_parallel, "expert_parallel": layout.expert_parallel,
            "cudagraph_max": graph_tokens} | noted
