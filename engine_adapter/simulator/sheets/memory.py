"""How much KV cache fits beside the weights."""

from engine_adapter.simulator.sheets.hardware import Hardware
from engine_adapter.simulator.sheets.layout import Layout
from engine_adapter.simulator.sheets.models import Model
from workloads.errors import UsageError

_GIB = float(2**30)
_RUNTIME_GIB = 0.6
"""Context of the driver and of the collective library: what vLLM reports as non-torch memory on one
NVIDIA GPU."""
_GRAPHS_GIB = 0.5
"""CUDA graphs; vLLM takes their estimate off since 0.21."""


def kv_blocks(hardware: Hardware, model: Model, *, gpu_memory_utilization: float = 0.92, block_size: int = 16,
              dtype: str | None = None, kv_dtype: str | None = None, tensor_parallel: int = 1,
              pipeline_parallel: int = 1, expert_parallel: int = 1, max_batched_tokens: int = 8192,
              max_seqs: int = 256) -> int:
    """Blocks of the KV cache (vLLM's num_gpu_blocks); each spans all layers and devices.

    As vLLM 0.32 counts: memory times utilization (0.92 by default there), less weights, less the peak
    of a profiling step, less graphs, divided by the bytes of a block. The peak is estimated: inputs and
    outputs of the widest layer in 16 bits for the largest step, and logits of all sequences in 16 and
    twice 32 bits. UsageError where nothing is left.
    """
    if not 0 < gpu_memory_utilization <= 1:
        raise UsageError(f"gpu_memory_utilization must be above 0 and at most 1; "
                         f"got {gpu_memory_utilization}")
    layout = Layout(dtype=dtype or model.native_dtype, kv_dtype=kv_dtype, tensor_parallel=tensor_parallel,
                    pipeline_parallel=pipeline_parallel, expert_parallel=expert_parallel)
    layout.check(model)
    weights = layout.device_weight_bytes(model)
    overhead = (_RUNTIME_GIB + _GRAPHS_GIB) * _GIB if hardware.graphs else 0.0
    left = (hardware.memory_gib * _GIB * gpu_memory_utilization - weights - overhead
            - _peak_bytes(model, layout, max_batched_tokens, max_seqs))
    blocks = int(left // (block_size * layout.kv_token_bytes(model) / pipeline_parallel))
    if blocks < 2:
        raise UsageError(f"{model.name} in {layout.dtype} leaves no memory for a KV cache on "
                         f"{hardware.name}: its weights take {weights / _GIB:.1f} of the "
                         f"{hardware.memory_gib:.1f} GiB of each device; use more devices or fewer bits")
    return blocks


def _peak_bytes(model: Model, layout: Layout, max_batched_tokens: int, max_seqs: int) -> float:
    widest = max(linear.outputs * linear.visits for linear in model.linears()) / layout.tensor_parallel
    return (max_batched_tokens * 2.0 * (1.5 * widest + 4 * model.hidden)
            + max_seqs * model.vocabulary * 10.0 / layout.tensor_parallel)
