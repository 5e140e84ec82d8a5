"""Nanoseconds of matrix products on one device, by the number of tokens."""

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.sheets.hardware import Compute, Hardware
from engine_adapter.simulator.sheets.layout import Layout
from engine_adapter.simulator.sheets.models import Linear

Float64 = npt.NDArray[np.float64]

_TILE_OUTPUTS = 128
"""Columns of an output tile in the kernels of cuBLAS and CUTLASS that large products use."""
_EXPERT_TILE = 16
"""Tokens of the smallest tile of the grouped kernels."""
EXPERT_IMBALANCE = 1.1
"""The time of real routing over that of perfectly balanced experts: 1.07 to 1.2 for the power-law
loads in NVIDIA's H200 measurements (aiconfigurator, vLLM 0.24)."""


def tile_tokens(tokens: Float64, compute: Compute) -> Float64:
    """The tokens that a product of so many is computed with: the next of the kernel's tile heights, or
    multiples of the largest."""
    heights = np.array(compute.tile_tokens, dtype=np.float64)
    small = heights[np.minimum(np.searchsorted(heights, tokens), len(heights) - 1)]
    return np.where(tokens > heights[-1], np.ceil(tokens / heights[-1]) * heights[-1], small)


def product_ns(hardware: Hardware, layout: Layout, linear: Linear, tokens: Float64) -> Float64:
    """Of one layer's product with `linear`, for each number of tokens; start and drain left out."""
    if linear.experts > 1:
        return _experts_ns(hardware, layout, linear, tokens)
    return dense_ns(hardware, layout.dtype, layout.weight_bytes, *linear.part(layout.tensor_parallel), tokens)


def dense_ns(hardware: Hardware, dtype: str, weight_bytes: float, inputs: float, outputs: float,
             tokens: Float64) -> Float64:
    """Of a product of `tokens` x `inputs` with `inputs` x `outputs`: the longer of computing whole tiles
    and moving weights, inputs and outputs."""
    compute = hardware.computing(dtype)
    rows = tile_tokens(tokens, compute)
    computing = 2.0 * inputs * outputs * rows / hardware.flops_per_ns(dtype)
    tiles = np.ceil(rows / compute.tile_tokens[-1]) * np.ceil(outputs / _TILE_OUTPUTS)
    waves = np.ceil(tiles / hardware.multiprocessors) * hardware.multiprocessors / tiles
    computing *= 1 + compute.wave_share * (waves - 1)
    moved = inputs * outputs * weight_bytes + 2.0 * tokens * (inputs + outputs)
    time = np.maximum(computing, moved / hardware.product_bytes_per_ns(dtype))
    if compute.ragged_share is not None:
        largest = compute.tile_tokens[-1]
        empty = np.where(tokens > largest, (rows - tokens) / largest, 0.0)
        time += empty * inputs * outputs * weight_bytes / (hardware.memory_gb_per_s * compute.ragged_share)
    return time


def _experts_ns(hardware: Hardware, layout: Layout, linear: Linear, tokens: Float64) -> Float64:
    """Of the grouped product: the weights of the experts that at least one token visits are read, and
    each computes its visitors, rounded up to a tile."""
    inputs, outputs = linear.part(layout.tensor_parallel)
    here = linear.experts / layout.expert_parallel
    away = (1 - linear.visits / linear.experts) ** (tokens * layout.expert_parallel)
    touched = here * (1 - away)
    visits = tokens * linear.visits            # the replicas' tokens that come are as many as ours that go
    rows = touched * np.ceil(visits / touched / _EXPERT_TILE) * _EXPERT_TILE
    compute = hardware.computing(layout.dtype)
    computing = (2.0 * inputs * outputs * rows * EXPERT_IMBALANCE
                 / (compute.peak_tflops * 1e3 * compute.expert_share))
    moved = touched * inputs * outputs * layout.weight_bytes + 2.0 * visits * (inputs + outputs)
    return np.asarray(np.maximum(computing, moved / hardware.product_bytes_per_ns(layout.dtype)))
