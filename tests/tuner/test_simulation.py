"""From the names of sheets, or a calibration, to the engine that is simulated."""

from pathlib import Path

import pytest

from engine_adapter.knobs import Knobs
from engine_adapter.simulator.settings import SchedulerSettings
from tests.tuner.simulated import COST, write_calibration
from tuner.simulation import is_calibration, known_sheets, target_from
from workloads import UsageError

GPU = {"hardware": "h100-sxm", "model": "llama-3.1-8b"}


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    return write_calibration(tmp_path / "mine.json")


def test_sheets_give_what_vllm_would_choose() -> None:
    """Knobs by the memory of the device, a prefix cache, asynchronous scheduling, a cache that fills the
    memory: vLLM's own defaults for that engine."""
    target = target_from(**GPU)
    assert target.default_knobs == Knobs(8192, 1024)
    assert target.prefix_caching
    assert target.async_scheduling
    assert target.max_model_len == 131_072
    assert 20_000 < target.num_kv_blocks < 40_000
    assert target.vocab_size == 128_256
    assert target.told() == GPU | {"cost": "computed from the sheets"}


@pytest.mark.parametrize(("hardware", "knobs", "ahead"), [
    ("a100-sxm-80gb", Knobs(2048, 256), True), ("b200", Knobs(16384, 1024), True),
    ("l40s", Knobs(2048, 256), True), ("cpu-avx512-2", Knobs(2048, 128), False),
])
def test_the_default_knobs_follow_the_device(hardware: str, knobs: Knobs, ahead: bool) -> None:
    """As `EngineArgs.get_batch_defaults` of vLLM 0.32 has them for `vllm serve`, the A100 apart."""
    target = target_from(hardware=hardware, model="smollm2-135m")
    assert (target.default_knobs, target.async_scheduling) == (knobs, ahead)


def test_what_is_asked_for_wins() -> None:
    """Every fact that a flag names, down to the settings of the scheduler."""
    target = target_from(**GPU, num_kv_blocks=777, max_model_len=4096, prefix_caching=False, watermark=0.1,
                         async_scheduling=False, num_spec_tokens=2, pipeline_parallel=2, block_size=32)
    assert target.settings(Knobs(512, 64, 128, adaptive_long_prefill=True, policy="priority")) == (
        SchedulerSettings(
            token_budget=512, max_seqs=64, max_model_len=4096, num_kv_blocks=777, block_size=32,
            long_prefill_token_threshold=128, adaptive_long_prefill=True, priority=True, watermark=0.1,
            num_spec_tokens=2, pipeline_parallel=2))


def test_more_devices_make_a_step_cheaper_and_the_cache_larger() -> None:
    """Tensor parallelism reaches both."""
    one, two = target_from(**GPU), target_from(**GPU, tensor_parallel=2)
    assert two.cost.step_ns(4096) < one.cost.step_ns(4096)
    assert two.num_kv_blocks > one.num_kv_blocks


def test_a_model_longer_than_the_cache_is_cut_to_it() -> None:
    """vLLM would not start: the longest request that fits is what the model takes."""
    target = target_from(**GPU, num_kv_blocks=101)
    assert target.max_model_len == 1600


def test_a_calibration_is_its_engine(calibration: Path) -> None:
    """Facts, cost, knobs and known error come from the file; what a running engine could change may be."""
    target = target_from(hardware=str(calibration))
    assert target.cost.as_dict() == COST.as_dict()
    assert (target.model, target.max_model_len, target.num_kv_blocks) == ("small-model", 2048, 2000)
    assert target.default_knobs == Knobs(2048, 128)
    assert target.told() == {
        "hardware": "cpu of mine.json", "model": "small-model", "cost": "fitted to 2 runs of vllm 0.32.0",
        "errors": "single steps are off by 2.0% in the median and 5.0% at p90, on 900 steps that they were "
                  "not fitted to"}
    assert target_from(hardware=str(calibration), num_kv_blocks=90).num_kv_blocks == 90
    assert is_calibration(calibration)


def test_the_model_of_a_calibration_is_the_one_it_was_fitted_on(calibration: Path) -> None:
    """Naming another one beside it changes nothing, and that is said."""
    assert target_from(hardware=str(calibration), model="small-model").told()["cost"] == (
        "fitted to 2 runs of vllm 0.32.0")
    other = target_from(hardware=str(calibration), model="yi-34b")
    assert other.model == "small-model"
    assert other.told()["cost"].endswith("--model yi-34b is not used")


@pytest.mark.parametrize(("asked", "message"), [
    ({"hardware": "h1000", "model": "llama-3.1-8b"}, "unknown hardware sheet 'h1000'; known: a100"),
    ({"hardware": "h100-sxm", "model": "llama"}, "unknown model sheet 'llama'; known: deepseek"),
    ({"hardware": "h100-sxm"}, "--model: a sheet (deepseek"),
    ({"hardware": "l4", "model": "llama-3.1-70b"}, "no memory for a KV cache"),
    ({"hardware": "missing.json", "model": "yi-34b"}, "missing.json"),
])
def test_what_cannot_be_simulated_is_said_in_one_line(asked: dict[str, str], message: str) -> None:
    """Unknown names with the known ones, a model that does not fit, a file that is not there."""
    with pytest.raises(UsageError) as error:
        target_from(**asked)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_calibration_decides_what_it_measured(calibration: Path) -> None:
    """Its steps took what they took with those devices and numbers."""
    with pytest.raises(UsageError, match="leave out --tensor-parallel"):
        target_from(hardware=str(calibration), tensor_parallel=2)


def test_a_calibration_without_its_engines_facts_needs_them(tmp_path: Path) -> None:
    """A server that did not tell its cache can be simulated once somebody says how large it is."""
    path = write_calibration(tmp_path / "c.json", num_kv_blocks=None)
    with pytest.raises(UsageError, match="did not say its num_kv_blocks"):
        target_from(hardware=str(path))
    assert target_from(hardware=str(path), num_kv_blocks=50).num_kv_blocks == 50


def test_other_rules_go_without_what_only_vllm_has() -> None:
    """Unless it was asked for: then it is kept, and refused when it is played."""
    plain, asked = target_from(**GPU), target_from(**GPU, prefix_caching=True)
    assert not plain.settings(plain.default_knobs, rule="orca").prefix_caching
    assert not plain.settings(plain.default_knobs, rule="orca").async_scheduling
    assert asked.settings(asked.default_knobs, rule="orca").prefix_caching


def test_equal_targets_come_from_what_was_asked() -> None:
    """A study keeps the question, and gets the same engine of it later."""
    target = target_from(**GPU, num_kv_blocks=500)
    again = target_from(**target.asked)
    assert again.info(again.default_knobs) == target.info(target.default_knobs)
    assert dict(target.asked) == GPU | {"num_kv_blocks": 500}


def test_sheets_are_listed() -> None:
    """Names that `target_from` takes."""
    hardware, models = known_sheets()
    assert GPU["hardware"] in hardware
    assert GPU["model"] in models
