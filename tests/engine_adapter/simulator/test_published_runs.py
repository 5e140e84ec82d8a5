"""The simulator against recorded runs of a real vLLM 0.19 (LLMServingSim, 2 x 300 requests)."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost

ROOT = Path(__file__).resolve().parents[3]
STUDIES = ROOT / "docs" / "studies"
DATA = ROOT.parent / "shared" / "data" / "llmservingsim_vllm_runs"
"""Public measurements that are not part of this repository; tests that need them are skipped without."""
CONSTANTS = {
    "Llama-3.1-8B": {"bandwidth": 1405.0, "mfu": 0.67, "fixed": 575.0},
    "Qwen3-30B-A3B-Instruct-2507": {"bandwidth": 1343.0, "mfu": 0.633, "link": 14.4},
}
"""What `simulator_published.py runs` fits to the first half of each run."""


@pytest.fixture(scope="module")
def studies() -> Any:
    """Lets the modules of the study be imported as the study itself imports them."""
    sys.path.insert(0, str(STUDIES))
    yield
    sys.path.remove(str(STUDIES))


@pytest.fixture(scope="module")
def published(studies: Any) -> ModuleType:
    import published_runs

    return published_runs


def _runs(folder: Path) -> dict[str, Any]:
    import llmservingsim

    return {run.model.rsplit("/", 1)[-1]: run for run in llmservingsim.recorded_runs(folder)}


def _errors(target: Any, times: Any, rows: Any) -> tuple[float, float]:
    """(simulated / measured) - 1 of mean TTFT and mean TPOT of these requests."""
    run = target.run
    ttft = (times.first_token_ns - run.arrival_ns)[rows].mean() / run.ttft_ns()[rows].mean() - 1
    tpot = (times.last_token_ns - times.first_token_ns) / np.maximum(run.output_len - 1, 1)
    return float(ttft), float(tpot[rows].mean() / run.tpot_ns()[rows].mean() - 1)


@pytest.mark.parametrize("model", CONSTANTS)
@pytest.mark.parametrize("constants_of", CONSTANTS)
def test_mean_ttft_and_tpot_are_within_a_tenth(published: ModuleType, model: str, constants_of: str) -> None:
    """With three constants fitted to its own first half; and with what the other model's run says of the
    memory and of the products of the same hardware, TPOT within 6 % and TTFT, most of it queueing near
    saturation, within a fifth."""
    if not DATA.exists():
        pytest.skip("LLMServingSim's recorded runs are not here")
    run = _runs(DATA)[model]
    target = published.Target(run, published.sheet_of_hardware(run.hardware),
                              published.sheet_of_model(run.model))
    constants = CONSTANTS[model] | {name: value for name, value in CONSTANTS[constants_of].items()
                                    if name in ("bandwidth", "mfu")}
    times = published.replay(target, constants)
    ttft, tpot = _errors(target, times, run.output_len > 1)
    own = model == constants_of
    assert abs(ttft) < (0.10 if own else 0.20)
    assert abs(tpot) < (0.03 if own else 0.06)
    if own:
        late = run.first_token_ns > 0.5 * run.last_token_ns.max()
        assert abs(_errors(target, times, late)[0]) < 0.10


def test_one_replica_that_steps_alone_is_an_ordinary_engine(studies: Any) -> None:
    """The replicas that step together, when there is one, give each request the times of the fast path."""
    import replicas

    rng = np.random.default_rng(5)
    load = SimulatedLoad(arrival_ns=np.sort(rng.integers(0, 2_000_000_000, 60)),
                         input_len=rng.integers(1, 700, 60), output_len=rng.integers(1, 60, 60))
    for asynchronous in (False, True):
        settings = SchedulerSettings(token_budget=256, max_seqs=16, max_model_len=1024, num_kv_blocks=2000,
                                     async_scheduling=asynchronous)
        cost = StepCost.linear(token_ns=20_000, fixed_ns=3e6, decode_kv_ns=40, chunk_pair_ns=3,
                               most_tokens=256)
        played = play(load, settings, cost)
        together = replicas.play_together(load, settings, 1, replicas.SharedExperts(cost, np.zeros(257)))
        assert np.array_equal(together.first_token_ns, played.read_ns[played.reads_offset[:-1]])
        assert np.array_equal(together.last_token_ns, played.read_ns[played.reads_offset[1:] - 1])
        assert np.array_equal(together.scheduled_ns, played.first_scheduled_ns)


def test_runs_are_found_by_either_naming(studies: Any, tmp_path: Path) -> None:
    """NAME_meta.json names its hardware; meta.json lies under HARDWARE/MODEL/vllm. Times count from the first
    arrival, and the request that came to the engine fastest needed no time for it."""
    rows = [{"request_id": f"bench-{i}", "input_toks": 10, "output_toks": 3, "arrival_time": 1000.0 + i,
             "queued_ts": 5.0 + i + late, "scheduled_ts": 5.1 + i, "first_token_ts": 5.5 + i,
             "last_token_ts": 6.5 + i} for i, late in ((0, 0.0), (1, 0.04))]
    meta = {"model": "some/Model", "engine_kwargs": {"max_num_seqs": 8, "max_num_batched_tokens": 64}}
    for folder, prefix in ((tmp_path / "a", "H100_Model_"), (tmp_path / "b" / "L4" / "Model" / "vllm", "")):
        folder.mkdir(parents=True)
        (folder / f"{prefix}meta.json").write_text(json.dumps(meta))
        (folder / f"{prefix}requests.jsonl").write_text("\n".join(map(json.dumps, reversed(rows))))
    import llmservingsim

    first, second = llmservingsim.recorded_runs(tmp_path)
    assert (first.hardware, second.hardware) == ("H100", "L4")
    for run in (first, second):
        assert run.arrival_ns.tolist() == [0, 1_000_000_000]
        assert np.allclose(run.ttft_ns() / 1e9, 0.5)
        assert np.allclose(run.tpot_ns() / 1e9, 0.5)
