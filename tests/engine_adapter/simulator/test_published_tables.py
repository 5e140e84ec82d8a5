"""Step costs from sheets against measurements that others published."""

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pytest

from engine_adapter.simulator.sheets import StepSample, fit_steps, hardware_sheet, model_sheet, roofline_cost
from engine_adapter.simulator.sheets.layout import Layout
from engine_adapter.simulator.sheets.models import Linear
from engine_adapter.simulator.sheets.products import dense_ns, product_ns
from engine_adapter.simulator.step_cost import StepCost

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
"""Public measurements that are not part of this repository; tests that need them are skipped without."""

YI = model_sheet("yi-34b")
H200 = hardware_sheet("h200-sxm")
PREFILL_S = {128: 0.0481, 512: 0.1056, 1024: 0.2143, 2048: 0.3660, 4096: 0.7576, 8192: 1.8633, 16384: 4.4075}
"""By tokens; 256 (0.1214) is left out, because it was the process's first call."""
DECODE_S = {1: 0.0468, 2: 0.0475, 4: 0.0488, 8: 0.0697, 16: 0.0773, 32: 0.0879, 64: 0.1278, 128: 0.1893}
"""By requests of 1,020 to 1,024 tokens. Both: Sarathi-Serve (OSDI '24), figure 2, Yi-34B with tensor
parallelism over two A100 80GB PCIe joined by NVLink, an engine that launches every kernel itself."""
CHUNKED_MS = {   # figure 14, by prompt length and chunk; 16,384 is the whole prompt
    2047: {512: 435.7, 1024: 444.2, 2048: 377.7, 16384: 378.1},
    4095: {512: 922.0, 1024: 932.3, 2048: 793.9, 16384: 775.4},
    8191: {512: 1958.5, 1024: 1946.2, 2048: 1643.4, 16384: 1754.2},
    16383: {512: 4512.8, 1024: 4357.6, 2048: 3651.6, 16384: 4535.0},
}


@pytest.fixture(scope="module")
def yi_cost() -> StepCost:
    samples = [StepSample(((tokens, 0),), (), s * 1e9) for tokens, s in PREFILL_S.items()]
    samples += [StepSample((), (1022,) * requests, s * 1e9) for requests, s in DECODE_S.items()]
    fitted = fit_steps(hardware_sheet("a100-pcie-80gb"), YI, samples, tensor_parallel=2, cudagraph_max=0,
                       free=("launch_us", "mfu", "cache_bandwidth"))
    return roofline_cost(fitted.hardware, YI, most_tokens=16384, tensor_parallel=2, cudagraph_max=0)


def test_yi_34b_tables_follow_from_one_fixed_cost_one_mfu_and_one_bandwidth(yi_cost: StepCost) -> None:
    """Prefill and decode steps are within 10 % on average, and none is off by more than a fifth."""
    prefill = [yi_cost.step_ns(tokens, [(tokens, 0)]) / 1e9 / s - 1 for tokens, s in PREFILL_S.items()]
    decode = [yi_cost.step_ns(n, [], [1022] * n) / 1e9 / s - 1 for n, s in DECODE_S.items()]
    assert mean(map(abs, prefill)) < 0.10
    assert mean(map(abs, decode)) < 0.10
    assert max(map(abs, prefill + decode)) < 0.20


def test_chunks_of_2048_do_not_tax_a_long_prompt(yi_cost: StepCost) -> None:
    """As in figure 14: 16K tokens in chunks of 2,048 are at most 5 % slower than whole, and the tax of
    smaller chunks stays below a quarter."""
    for length, by_chunk in CHUNKED_MS.items():
        took = {chunk: _prefill_ns(yi_cost, length, chunk) for chunk in by_chunk}
        assert took[2048] <= 1.05 * took[16384]
        assert took[2048] <= took[1024] <= took[512] <= 1.25 * took[16384]
        for chunk, ms in by_chunk.items():
            assert took[chunk] / 1e6 == pytest.approx(ms, rel=0.16)


def _prefill_ns(cost: StepCost, length: int, chunk: int) -> float:
    return sum(cost.step_ns(min(chunk, length - prefix), [(min(chunk, length - prefix), prefix)])
               for prefix in range(0, length, chunk))


def test_splitwise_prefills_follow_from_the_sheets_without_a_fit() -> None:
    """Llama-2-70B over two A100 SXM (Splitwise, ISCA '24, data/perf_model.csv, medians): within 12 %."""
    measured_ms = {512: 195, 1024: 377, 2048: 688, 4096: 1485, 8192: 2990}
    cost = roofline_cost(hardware_sheet("a100-sxm-80gb"), model_sheet("llama-2-70b"), most_tokens=8192,
                         tensor_parallel=2)
    for tokens, ms in measured_ms.items():
        assert cost.step_ns(tokens, [(tokens, 0)]) / 1e6 == pytest.approx(ms, rel=0.12)


def _parquet(name: str) -> list[dict[str, Any]]:
    from pyarrow import parquet

    path = DATA / "aiconfigurator_h200_vllm" / name
    if not path.exists():
        pytest.skip("NVIDIA's H200 measurements (aiconfigurator) are not here")
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def _products(dtype: str, kernel: str) -> dict[tuple[int, int], dict[int, float]]:
    """Measured ns by (outputs, inputs) and tokens, of shapes from 2,048."""
    found: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in _parquet("gemm_vllm_0.24.0_gemm_perf.parquet"):
        if row["gemm_dtype"] == dtype and row["kernel_source"] == kernel and min(row["n"], row["k"]) >= 2048:
            found[row["n"], row["k"]][row["m"]] = row["latency"] * 1e6
    return found


def _predicted(dtype: str, weight_bytes: float, shape: tuple[int, int],
               tokens: list[int]) -> dict[int, float]:
    times = dense_ns(H200, dtype, weight_bytes, shape[1], shape[0], np.array(tokens, dtype=np.float64))
    return dict(zip(tokens, (times + H200.kernel_us * 1e3).tolist(), strict=True))


@pytest.mark.parametrize(("named", "kernel", "dtype", "weight_bytes", "most"), [
    ("bfloat16", "torch.nn.functional.linear", "bf16", 2.0, 0.08),
    ("fp8", "CutlassFP8ScaledMMLinearKernel", "fp8", 1.0, 0.20),
])
def test_products_on_h200_take_what_was_measured(named: str, kernel: str, dtype: str, weight_bytes: float,
                                                 most: float) -> None:
    """195 shapes from 1 to 32,768 tokens: the mean error in 16 bits is below 8 %, in fp8 below 20 %."""
    errors = []
    for shape, measured in _products(named, kernel).items():
        predicted = _predicted(dtype, weight_bytes, shape, list(measured))
        errors += [abs(predicted[m] / ns - 1) for m, ns in measured.items()]
    assert len(errors) > 10_000
    assert mean(errors) < most


def test_one_token_over_a_tile_is_dear_in_fp8_and_cheap_in_16_bits() -> None:
    """The median ratio of m + 1 to m tokens: twice at 256 and 512 in fp8, nothing much in 16 bits, and
    nothing where m is no tile."""
    def ratios(named: str, kernel: str, dtype: str,
               weight_bytes: float) -> Callable[[int], tuple[float, float]]:
        shapes = _products(named, kernel)

        def at(m: int) -> tuple[float, float]:
            pairs = []
            for shape, measured in shapes.items():
                predicted = _predicted(dtype, weight_bytes, shape, [m, m + 1])
                pairs.append((predicted[m + 1] / predicted[m], measured[m + 1] / measured[m]))
            return median(p for p, _ in pairs), median(m for _, m in pairs)
        return at

    fp8 = ratios("fp8", "CutlassFP8ScaledMMLinearKernel", "fp8", 1.0)
    bf16 = ratios("bfloat16", "torch.nn.functional.linear", "bf16", 2.0)
    for m in (128, 256, 512, 1024, 2048):
        predicted, measured = fp8(m)
        assert predicted == pytest.approx(measured, rel=0.25)
        assert predicted > 1.3
        predicted, measured = bf16(m)
        assert predicted == pytest.approx(measured, rel=0.1)
    assert fp8(192)[0] == pytest.approx(1, abs=0.02)


def test_a_full_tile_in_fp8_can_be_cheaper_than_a_part_filled_one() -> None:
    """n, k = 12,288, 4,096: 257 tokens 74 us, 512 tokens 42 us (aiconfigurator, vLLM 0.24, H200); so the
    best budget is a multiple of the tile, and cost does not rise with every token."""
    predicted = _predicted("fp8", 1.0, (12288, 4096), [256, 257, 512, 513])
    assert predicted[257] > 1.3 * predicted[512]
    assert predicted[513] > 1.5 * predicted[512]
    assert predicted[257] > 1.8 * predicted[256]


@pytest.mark.parametrize(("hidden", "width", "per_token", "count"), [
    (2048, 768, 8, 128), (4096, 14336, 2, 8),
])
def test_experts_on_h200_take_what_was_measured(hidden: int, width: int, per_token: int,
                                                count: int) -> None:
    """Grouped products of Qwen3-30B-A3B and Mixtral under power-law routing, from one token to 16K:
    mean error below 20 %."""
    layout = Layout(dtype="bf16")
    shape = {"moe_dtype": "bfloat16", "hidden_size": hidden, "inter_size": width, "topk": per_token,
             "num_experts": count, "moe_tp_size": 1, "moe_ep_size": 1, "distribution": "power_law_1.01"}
    measured = {row["num_tokens"]: row["latency"] * 1e6
                for row in _parquet("moe_vllm_0.24.0_moe_perf.parquet") if shape.items() <= row.items()}
    tokens = np.array(list(measured), dtype=np.float64)
    predicted = 5 * H200.kernel_us * 1e3 + sum(
        product_ns(H200, layout, Linear(*sides, count, per_token), tokens)
        for sides in ((hidden, 2 * width, 1, "outputs"), (width, hidden, 1, "inputs")))
    assert np.mean(np.abs(predicted / np.array(list(measured.values())) - 1)) < 0.20


@pytest.mark.parametrize(("file", "sheet", "most"), [
    ("a100_meta-llama_Llama-2-7b-hf_mlp.csv", "a100-sxm-80gb", 0.12),
    ("a100_codellama_CodeLlama-34b-Instruct-hf_mlp.csv", "a100-sxm-80gb", 0.12),
    ("h100_meta-llama_Llama-2-70b-hf_mlp.csv", "h100-sxm", 0.15),
])
def test_products_on_a100_and_h100_take_what_vidur_measured(file: str, sheet: str, most: float) -> None:
    """Vidur's profiles of whole layers, one device: the mean error, and the step from 256 to 264 tokens."""
    path = DATA / "vidur_profiles" / file
    if not path.exists():
        pytest.skip("Vidur's profiles are not here")
    hardware = hardware_sheet(sheet)
    errors, layer = [], {}
    for row in csv.DictReader(path.read_text().splitlines()):
        if row["num_tensor_parallel_workers"] != "1":
            continue
        hidden, width = int(row["n_embd"]), int(row["n_expanded_embd"])
        qkv = hidden + 2 * int(row["n_kv_head"]) * hidden // int(row["n_head"])
        shapes = {"attn_pre_proj": (hidden, qkv), "attn_post_proj": (hidden, hidden),
                  "mlp_up_proj": (hidden, 2 * width), "mlp_down_proj": (width, hidden)}
        tokens = np.array([float(row["num_tokens"])])
        seen = sum(float(row[f"time_stats.{name}.median"]) for name in shapes) * 1e6
        cost = sum(dense_ns(hardware, "bf16", 2.0, *shape, tokens)[0] + hardware.kernel_us * 1e3
                   for shape in shapes.values())
        errors.append(abs(cost / seen - 1))
        layer[int(tokens[0])] = (cost, seen)
    assert mean(errors) < most
    for of in (0, 1):
        assert layer[264][of] / layer[256][of] > 1.2
