"""Sheets: facts of hardware and models, and the step cost that follows from them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.simulator.sheets import (
    StepSample,
    adjusted,
    fit_constants,
    fit_steps,
    hardware_names,
    hardware_sheet,
    kv_blocks,
    model_names,
    model_sheet,
    roofline_cost,
)
from engine_adapter.simulator.sheets.hardware import Link
from engine_adapter.simulator.sheets.model_files import published_parameters
from engine_adapter.simulator.sheets.roofline import captured_sizes
from workloads.errors import UsageError

A100 = hardware_sheet("a100-sxm-80gb")
H200 = hardware_sheet("h200-sxm")
LLAMA = model_sheet("llama-3.1-8b")


@pytest.mark.parametrize("name", model_names())
def test_shapes_add_up_to_the_published_number_of_parameters(name: str) -> None:
    """A model sheet holds shapes only; their product must be the model that everybody knows."""
    assert model_sheet(name).parameters == pytest.approx(published_parameters(name), rel=0.02)


@pytest.mark.parametrize(("name", "active"), [
    ("qwen3-30b-a3b", 3.3e9), ("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37e9), ("llama-2-7b", 6.738e9),
])
def test_a_token_meets_the_published_number_of_active_parameters(name: str, active: float) -> None:
    """Experts that a token does not visit cost it nothing."""
    assert model_sheet(name).active_parameters == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("name", hardware_names())
def test_every_device_prices_every_small_model_without_making_work_cheaper(name: str) -> None:
    """All sheets load, say their source, and give a table that never falls in 16 bits."""
    hardware = hardware_sheet(name)
    assert hardware.source
    assert hardware.assumed
    cost = roofline_cost(hardware, model_sheet("smollm2-135m"), most_tokens=3000)
    assert np.all(np.diff(cost.linear_ns) >= 0)
    assert kv_blocks(hardware, model_sheet("smollm2-135m"), max_batched_tokens=3000) > 1000


@pytest.mark.parametrize("name", model_names())
def test_every_model_is_laid_out_on_eight_devices(name: str) -> None:
    """Dense, grouped, latent and expert models all have a cost and a cache."""
    model = model_sheet(name)
    degree = 8 if model.heads % 8 == 0 else 1
    cost = roofline_cost(H200, model, most_tokens=2048, tensor_parallel=degree)
    assert cost.step_ns(1, decode_contexts=[100]) < cost.step_ns(2048, [(2048, 0)])
    assert kv_blocks(H200, model, tensor_parallel=degree) > 100


@given(st.integers(1, 2000), st.integers(1, 200), st.sampled_from([1, 8]),
       st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3"]))
def test_a_longer_step_is_never_cheaper_in_16_bits(tokens: int, more: int, degree: int, name: str) -> None:
    """Padding, graphs, tiles, waves and experts never make one more token a gain."""
    cost = _COSTS[name, degree]
    assert cost.step_ns(tokens + more) >= cost.step_ns(tokens)


_COSTS = {(name, degree): roofline_cost(A100, model_sheet(name), most_tokens=2200, dtype="bf16",
                                        tensor_parallel=degree)
          for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3") for degree in (1, 8)}


def _config(folder: Path, **changes: object) -> Path:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
              "max_position_embeddings": 131072, "tie_word_embeddings": False} | changes
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
    return path


def test_a_hugging_face_config_is_a_model_as_file_and_as_folder(tmp_path: Path) -> None:
    """What lies beside the weights is enough."""
    path = _config(tmp_path)
    for given_path in (path, tmp_path):
        model = model_sheet(str(given_path))
        assert model.parameters == LLAMA.parameters
        assert model.kv_bytes_per_token() == LLAMA.kv_bytes_per_token()


@pytest.mark.parametrize(("changes", "says"), [
    ({"hidden_size": "absent"}, "has no hidden_size"),
    ({"intermediate_size": "absent"}, "has no intermediate_size"),
    ({"vocab_size": "many"}, "vocab_size must be an integer"),
    ({"num_experts": 8}, "has no num_experts_per_tok"),
    ({"num_experts": 8, "num_experts_per_tok": 9}, "9, of 8 experts"),
    ({"kv_lora_rank": 512}, "has no qk_rope_head_dim"),
    ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer of at least 1"),
])
def test_a_bad_config_names_the_key(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    """One line with the key that is missing or wrong."""
    with pytest.raises(UsageError, match=says) as error:
        model_sheet(str(_config(tmp_path, **changes)))
    assert "\n" not in str(error.value)


def test_configs_of_other_families_are_understood(tmp_path: Path) -> None:
    """Other names for the same shapes, defaults that a family leaves out, and models that also see."""
    falcon = model_sheet(str(_config(tmp_path, model_type="falcon", intermediate_size="absent",
                                     num_key_value_heads="absent")))
    assert (falcon.gated, falcon.kv_heads, falcon.width) == (False, 1, 4 * 4096)
    seeing = json.loads(_config(tmp_path).read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": seeing}))
    assert model_sheet(str(tmp_path)).parameters == LLAMA.parameters
    sparse = model_sheet(str(_config(tmp_path, model_type="qwen2_moe", num_experts=60, num_experts_per_tok=4,
                                     moe_intermediate_size=1408, shared_expert_intermediate_size=5632,
                                     decoder_sparse_step=2, mlp_only_layers=[0, 1])))
    assert sparse.experts is not None
    assert (sparse.experts.layers, sparse.experts.shared_width) == (15, 5632)
    assert model_sheet("mistral-7b").sliding_window == 4096


def test_a_latent_cache_is_an_order_of_magnitude_smaller() -> None:
    """DeepSeek-V3 keeps 512 + 64 numbers per token and layer, whatever the number of heads."""
    latent = model_sheet("deepseek-v3")
    assert latent.kv_bytes_per_token() == 61 * (512 + 64) * 2
    as_heads = 2 * latent.layers * latent.heads * latent.head_dim * 2
    assert as_heads > 10 * latent.kv_bytes_per_token()


def test_unknown_sheets_and_broken_files_are_refused_in_one_line(tmp_path: Path) -> None:
    """The message lists the names, or says where the file is wrong."""
    with pytest.raises(UsageError, match=r"unknown hardware sheet 'h300'; known: a100-pcie-80gb, .*\.yaml"):
        hardware_sheet("h300")
    with pytest.raises(UsageError, match=r"unknown model sheet 'gpt-9'"):
        model_sheet("gpt-9")
    with pytest.raises(UsageError, match="cannot read sheet"):
        model_sheet(str(tmp_path / "none.yaml"))
    (tmp_path / "mine.yaml").write_text("source: me\nmemory_share: 2\n")
    with pytest.raises(UsageError, match=r"hardware sheet .*mine\.yaml: "):
        hardware_sheet(str(tmp_path / "mine.yaml"))


def test_a_sheet_of_ones_own_is_read_from_its_path(tmp_path: Path) -> None:
    """`--hardware FILE.yaml` takes the same keys as the bundled ones."""
    own = A100.model_dump(mode="json") | {"name": "my-a100", "memory_gb_per_s": 2100}
    (tmp_path / "own.yaml").write_text(json.dumps(own))
    assert hardware_sheet(str(tmp_path / "own.yaml")).memory_gb_per_s == 2100


def test_graphs_pad_small_steps_only() -> None:
    """vLLM 0.32 pads to a captured size up to the largest; a larger step runs as it is, launch by launch."""
    sizes = captured_sizes(512).astype(int).tolist()
    assert sizes[:6] == [1, 2, 4, 8, 16, 24]
    assert {248, 256, 272, 512} <= set(sizes)
    cost = roofline_cost(H200, LLAMA, most_tokens=1024)
    assert cost.step_ns(257) == cost.step_ns(272) < cost.step_ns(273)
    slow_host = adjusted(H200, launch_us=1000)
    eager = roofline_cost(slow_host, LLAMA, most_tokens=1024, cudagraph_max=0)
    assert eager.step_ns(1) >= 10 * 32 * 1e6
    assert roofline_cost(slow_host, LLAMA, most_tokens=1024).step_ns(512) < 0.2 * eager.step_ns(512)


def test_decodes_read_weights_once_and_their_own_caches() -> None:
    """Twice the batch hardly costs more until the caches weigh as much as the weights."""
    cost = roofline_cost(A100, LLAMA, most_tokens=256)
    one, many = cost.step_ns(1, [], [1000]), cost.step_ns(32, [], [1000] * 32)
    assert many < 1.5 * one
    assert cost.step_ns(32, [], [30_000] * 32) > 4 * one


def test_tensor_parallelism_divides_the_work_and_adds_collectives() -> None:
    """Eight devices are faster than one, and slower than an eighth; without NVLink much slower."""
    model = model_sheet("llama-3.1-70b")
    one, eight = (roofline_cost(H200, model, most_tokens=2048, tensor_parallel=n).step_ns(2048, [(2048, 0)])
                  for n in (1, 8))
    assert one / 8 < eight < one / 4
    pcie = roofline_cost(hardware_sheet("a100-pcie-80gb"), model, most_tokens=2048, tensor_parallel=8)
    nvlink = roofline_cost(A100, model, most_tokens=2048, tensor_parallel=8)
    assert pcie.step_ns(2048) > 2 * nvlink.step_ns(2048)


def test_pipeline_stages_hand_their_tokens_on() -> None:
    """A slow network between stages makes transfers, and steps, longer."""
    ethernet = Link(gb_per_s=12.5, latency_us=50)
    model = model_sheet("falcon-180b")
    near = roofline_cost(A100, model, most_tokens=512, tensor_parallel=4, pipeline_parallel=2)
    far = roofline_cost(A100, model, most_tokens=512, tensor_parallel=4, pipeline_parallel=2,
                        stage_link=ethernet)
    assert far.transfer_ns == 50_000
    sent = 512 * model.hidden * 2
    assert far.step_ns(512) - near.step_ns(512) == pytest.approx(sent / (12.5 * 0.7), rel=0.1)


def test_few_tokens_touch_few_experts() -> None:
    """One token reads the weights of its experts only; a few hundred read them all."""
    model = model_sheet("qwen3-30b-a3b")
    cost = roofline_cost(H200, model, most_tokens=512)
    experts = sum(linear.parameters for linear in model.linears() if linear.experts > 1)
    all_read = 2 * experts / H200.bytes_per_ns
    assert cost.step_ns(1) < 0.35 * all_read < all_read < cost.step_ns(256) < 2 * all_read
    shared = roofline_cost(H200, model, most_tokens=512, expert_parallel=2)
    assert shared.step_ns(256) < 0.8 * cost.step_ns(256)


@pytest.mark.parametrize(("options", "says"), [
    ({"dtype": "fp3"}, "fp3"), ({"kv_dtype": "int4"}, "KV cache"),
    ({"tensor_parallel": 3}, "does not divide"), ({"tensor_parallel": 0}, "at least 1"),
    ({"pipeline_parallel": 99}, "too few"),
    ({"expert_parallel": 2}, "experts"), ({"most_tokens": 0}, "most_tokens"),
])
def test_what_no_engine_could_start_with_is_refused(options: dict[str, object], says: str) -> None:
    """One line each."""
    with pytest.raises(UsageError, match=says):
        roofline_cost(A100, LLAMA, **({"most_tokens": 100} | options))


def test_the_cache_is_what_weights_leave() -> None:
    """vLLM's own figure for Llama-3.1-8B on an 80 GB device at 0.9 is about 440,000 tokens."""
    assert kv_blocks(hardware_sheet("h100-sxm"), LLAMA, gpu_memory_utilization=0.9) * 16 == pytest.approx(
        440_000, rel=0.03)
    assert kv_blocks(A100, LLAMA, kv_dtype="fp8") == pytest.approx(2 * kv_blocks(A100, LLAMA), rel=0.001)
    assert kv_blocks(A100, LLAMA, tensor_parallel=2) > 2 * kv_blocks(A100, LLAMA)
    with pytest.raises(UsageError, match=r"llama-3\.1-70b in bf16 leaves no memory .* use more devices"):
        kv_blocks(A100, model_sheet("llama-3.1-70b"))


def test_fitting_finds_the_constants_that_made_the_steps() -> None:
    """Steps priced by one sheet bring another sheet to it."""
    truth = adjusted(A100, fixed_ns=7e6, mfu=0.5, bandwidth=1.2e12)
    cost = roofline_cost(truth, LLAMA, most_tokens=4096)
    shapes = [([(512, 0)], []), ([(4096, 0)], []), ([(1024, 2048)], [500] * 20), ([], [900] * 64),
              ([], [100])]
    samples = [StepSample(tuple(chunks), tuple(contexts),
                          cost.step_ns(sum(t for t, _ in chunks) + len(contexts), chunks, contexts))
               for chunks, contexts in shapes]
    fitted = fit_steps(A100, LLAMA, samples)
    assert fitted.mape < 0.001
    assert fitted.constants == pytest.approx({"fixed_ns": 7e6, "mfu": 0.5, "bandwidth": 1.2e12}, rel=0.01)
    assert "Replaced: fixed_ns" in fitted.hardware.source
    with pytest.raises(UsageError, match="one to three"):
        fit_constants(A100, lambda sheet: [1.0], [1.0], free=("mfu", "mfu"))
    with pytest.raises(UsageError, match="nothing to fit"):
        fit_constants(A100, lambda sheet: [], [])


def test_a_parallel_layer_reduces_once():
    """Falcon's attention and feed-forward part share an all-reduce, so it pays half of what others do."""
    hardware, falcon = hardware_sheet("a100-sxm-80gb"), model_sheet("falcon-180b")
    assert falcon.parallel
    one, two = (roofline_cost(hardware, replace(falcon, parallel=parallel), tensor_parallel=4,
                              most_tokens=512) for parallel in (True, False))
    assert one.step_ns(512) < two.step_ns(512)
