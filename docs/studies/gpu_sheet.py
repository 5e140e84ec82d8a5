"""What this device does: matrix products by tokens, attention of chunks, copying. Needs torch only.

    python docs/studies/gpu_sheet.py > measured.json
    python docs/studies/gpu_sheet.py --base h200-sxm > my-gpu.yaml      needs Stallfree too

The first form prints the measurements as JSON. The second puts what they say into the sheet that is
named, and prints that: JSON is YAML, so `--hardware my-gpu.yaml` takes it. `--small` is a self-test of
the script with shapes that a CPU gets through in seconds; its figures mean nothing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

TILES = (16, 32, 64, 128, 256)
JUMP = 1.15
"""A product that grows by more than this from one token to the next has crossed a tile."""
SHAPES = {False: ((4096, 4096), (12288, 4096), (8192, 8192), (28672, 8192)), True: ((256, 128), (128, 256))}
"""Outputs and inputs of products, by whether the run is a self-test."""
EDGES = sorted({*TILES, *(3 * tile // 2 for tile in TILES), 512, 1024, 2048, 4096})
TOKENS = {False: sorted({1, 8, *(edge + more for edge in EDGES for more in (0, 1)), 8192}),
          True: [1, 16, 17, 64]}
PREFIXES = {False: (0, 2048, 8192, 32768), True: (0, 64)}
CHUNKS = {False: (128, 512, 2048, 8192), True: (16, 64)}
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128


def median_ns(work: Callable[[], object], repeats: int) -> float:
    """Of `repeats` runs after two for warming up, by the device's own clock where it has one."""
    import torch

    work()
    work()
    times = []
    for _ in range(repeats):
        if torch.cuda.is_available():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e6)
        else:
            start = time.perf_counter_ns()
            work()
            times.append(float(time.perf_counter_ns() - start))
    return median(times)


def products(device: str, small: bool) -> list[dict[str, Any]]:
    """One row for each number format, shape and number of tokens."""
    import torch

    rows = []
    kinds = ["bf16"] + (["fp8"] if device == "cuda" and torch.cuda.get_device_capability() >= (8, 9) else [])
    for outputs, inputs in SHAPES[small]:
        weight = torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16)
        for kind in kinds:
            for tokens in TOKENS[small]:
                x = torch.randn(tokens, inputs, device=device, dtype=torch.bfloat16)
                work = _fp8(x, weight) if kind == "fp8" else _bf16(x, weight)
                rows.append({"dtype": kind, "outputs": outputs, "inputs": inputs, "tokens": tokens,
                             "ns": median_ns(work, 3 if small else 20)})
    return rows


def _bf16(x: Any, weight: Any) -> Callable[[], object]:
    import torch

    return lambda: torch.nn.functional.linear(x, weight)


def _fp8(x: Any, weight: Any) -> Callable[[], object]:
    import torch

    narrow, narrow_weight = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
    one = torch.ones((), device=x.device)
    return lambda: torch._scaled_mm(narrow, narrow_weight.t(), scale_a=one, scale_b=one,
                                    out_dtype=torch.bfloat16)


def attention(device: str, small: bool) -> list[dict[str, Any]]:
    """One row for each chunk and prefix: causal, 32 heads of 128 over 8 of keys and values."""
    import torch
    from torch.nn.attention.bias import causal_lower_right

    def heads(count: int, tokens: int) -> Any:
        return torch.randn(1, count, tokens, HEAD_DIM, device=device, dtype=torch.bfloat16)

    rows = []
    for tokens in CHUNKS[small]:
        for prefix in PREFIXES[small]:
            query, key, value = (heads(HEADS, size) for size in (tokens, prefix + tokens, prefix + tokens))
            mask = causal_lower_right(tokens, prefix + tokens)

            def work(query: Any = query, key: Any = key, value: Any = value, mask: Any = mask) -> object:
                return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)

            rows.append({"tokens": tokens, "prefix": prefix, "heads": HEADS, "head_dim": HEAD_DIM,
                         "ns": median_ns(work, 3 if small else 10)})
    return rows


def copy_bytes_per_ns(device: str, small: bool) -> float:
    """Bytes read and written for each nanosecond of copying a large array."""
    import torch

    source = torch.empty(2**20 if small else 2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / median_ns(lambda: target.copy_(source), 3 if small else 20)


def in_sheet(sheet: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The hardware sheet with the shares and tiles that the measurements show; peaks stay as they are."""
    compute = {}
    for kind, facts in sheet["compute"].items():
        rows = [row for row in measured["products"] if row["dtype"] == kind]
        compute[kind] = facts | (_of_products(rows, facts) if rows else {})
    peak = sheet["compute"]["bf16"]["peak_tflops"] * 1e3
    reached = max(4.0 * row["heads"] * row["head_dim"] * row["tokens"]
                  * (row["prefix"] + 0.5 * (row["tokens"] + 1)) / row["ns"] for row in measured["attention"])
    share = min(measured["copy_bytes_per_ns"] / sheet["memory_gb_per_s"], 1.0)
    return sheet | {
        "name": measured["device"], "compute": compute, "attention_share": min(reached / peak, 1.0),
        "memory_share": share, "cache_share": share,
        "source": f"{sheet['source']} Shares and tiles: docs/studies/gpu_sheet.py on {measured['device']}, "
                  f"torch {measured['torch']}.",
    }


def _of_products(rows: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    def flops_per_ns(row: dict[str, Any]) -> float:
        return float(2.0 * row["tokens"] * row["inputs"] * row["outputs"] / row["ns"])

    most = max(row["tokens"] for row in rows)
    by_shape: dict[tuple[int, int], dict[int, float]] = {}
    for row in rows:
        by_shape.setdefault((row["outputs"], row["inputs"]), {})[row["tokens"]] = row["ns"]

    def jumps(tokens: int) -> bool:
        ratios = [times[tokens + 1] / times[tokens] for times in by_shape.values()
                  if tokens in times and tokens + 1 in times]
        return bool(ratios) and median(ratios) > JUMP

    # Half a tile further on lies no edge, unless the tile is a multiple of the real one.
    tiles = [tile for tile in TILES if jumps(tile) and not jumps(3 * tile // 2)]
    reached = median(flops_per_ns(row) for row in rows if row["tokens"] == most)
    found: dict[str, Any] = {"gemm_share": min(reached / (facts["peak_tflops"] * 1e3), 1.0)}
    return found | ({"tile_tokens": tiles} if tiles else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--base", help="a hardware sheet, by name or path, to put the figures into")
    parser.add_argument("--small", action="store_true", help="tiny shapes: a self-test")
    chosen = parser.parse_args()

    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    measured = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "torch": torch.__version__,
        "products": products(device, chosen.small), "attention": attention(device, chosen.small),
        "copy_bytes_per_ns": copy_bytes_per_ns(device, chosen.small),
    }
    if chosen.base:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from engine_adapter.simulator.sheets import hardware_sheet

        measured = in_sheet(hardware_sheet(chosen.base).model_dump(mode="json"), measured)
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
