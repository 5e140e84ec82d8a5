"""From runs to a calibration: what is refused, what is told, and what the file keeps."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bench.errors import OutputError
from bench.run import Validity
from bench.simulated import simulate_run
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.step_log import StepLog
from tests.tuner.logged_runs import ENGINE, cpu_like, logged_run, run_with
from tuner.calibration import calibrate, compare, load_calibration, save_calibration
from workloads import EvidenceError, UsageError, build_plan, load_workload

DELAYS = {"host_ns": 3e6, "host_request_ns": 5e4, "arrival_ns": 1.5e6, "arrival_token_ns": 200.0,
          "delivery_ns": 0.7e6}


def simulated(budget, rate_rps, *, seed, seconds=20, cost=None, asynchronous=False):
    """A run of the CPU preset on a simulated engine."""
    settings = SchedulerSettings(token_budget=budget, max_seqs=64, max_model_len=2048, num_kv_blocks=2000,
                                 async_scheduling=asynchronous)
    plan = build_plan(load_workload("cpu"), rate_rps=rate_rps, seed=seed, duration_s=seconds)
    return simulate_run(plan, settings, cost or cpu_like(**DELAYS))


def calibrated(**others):
    """A calibration from three simulated runs, none of them at a budget of 256."""
    runs = [simulated(budget, rate, seed=seed, **others)
            for budget, rate, seed in ((64, 2.0, 1), (512, 3.0, 2), (1024, 0.5, 3))]
    return calibrate(runs, ("a", "b", "c"))


@pytest.fixture(scope="module")
def calibration():
    """Of an engine without async scheduling."""
    return calibrated()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_simulated_engine_is_simulated_again(asynchronous):
    """A load and a setting that the calibration has not seen come out within 2 %, host part and delays
    included, whether the host hides behind the steps or not."""
    found = calibrated(asynchronous=asynchronous)
    judge = simulated(256, 4.0, seed=31, seconds=40, asynchronous=asynchronous)
    compared = compare(judge, "judge", found)
    for metric, stat in (("ttft", "p50"), ("ttft", "p90"), ("tbt", "p50"), ("tbt", "p99"), ("tpot", "p50"),
                         ("e2e", "p90"), ("output_throughput", None)):
        assert abs(compared.figure(metric, stat).error) < 0.02, (metric, stat)


def test_delays_are_found_again(calibration):
    """From sending to the queue, by length, and from a step to the client."""
    cost = calibration.cost
    assert cost.arrival_ns == pytest.approx(1.5e6, rel=0.01)
    assert cost.arrival_token_ns == pytest.approx(200, rel=0.01)
    assert cost.delivery_ns == pytest.approx(0.7e6, rel=0.01)


def test_the_gap_between_steps_is_the_hosts():
    """Of an engine that notes its steps without it."""
    cost = calibrate([logged_run(cpu_like(), seed=1, host_ns=80_000)], ("a",)).cost
    assert cost.host_ns + 20 * cost.host_request_ns == pytest.approx(80_000, rel=0.01)


def test_runs_of_different_engines_are_refused():
    """Their kernels differ, and one cost cannot hold both; the settings may differ, and the cache."""
    run = logged_run(cpu_like(), seed=1)
    facts = ENGINE["fingerprint"]
    changes = {
        "version": ENGINE | {"version": "0.33.0"}, "model": ENGINE | {"model": "large"},
        "dtype": ENGINE | {"fingerprint": facts | {"dtype": "float16"}},
        "device": ENGINE | {"fingerprint": facts | {"device": "cuda"}},
    }
    for fact, engine in changes.items():
        with pytest.raises(EvidenceError, match=f"a and b cannot go together: {fact} is"):
            calibrate([run, logged_run(cpu_like(), seed=2, engine=engine)], ("a", "b"))
    one, other = (replace(made, meta=made.meta | {"machine": {"cpu_model": model, "cores": 2.0}})
                  for made, model in ((run, "this"), (logged_run(cpu_like(), seed=2), "that")))
    with pytest.raises(EvidenceError, match="machine cpu_model is this in the one and that in the other"):
        calibrate([one, other], ("a", "b"))
    assert calibrate([run, other], ("a", "b")).engine["name"] == "vllm", "a run may not say its machine"
    cached = ENGINE | {"fingerprint": facts | {"prefix_caching": False}, "num_kv_blocks": 7}
    found = calibrate([run, logged_run(cpu_like(), seed=2, engine=cached)], ("a", "b"))
    assert found.warnings[0] == "num_kv_blocks is 1000 in a and 7 in b: the file has the first"


def test_runs_that_cannot_be_calibrated_from_are_refused():
    """In one line each that says what to do."""
    def refused(run, why):
        with pytest.raises(EvidenceError, match=why) as error:
            calibrate([run], ("a",))
        assert "\n" not in str(error.value)

    cost = cpu_like()
    refused(run_with(StepLog()), "a has no step log")
    refused(logged_run(cost, seed=1, lost=3), "a lost 3 engine steps")
    refused(logged_run(cost, seed=1, steps=50), "40 steps after their first 10; at least 100 are needed")
    staged = ENGINE | {"fingerprint": {"pipeline_parallel": 2}}
    refused(logged_run(cost, seed=1, engine=staged), "2 pipeline stages")
    run = logged_run(cost, seed=1)
    with pytest.raises(EvidenceError, match="a and copy are one and the same run"):
        calibrate([run, run], ("a", "copy"))


def test_one_kind_of_work_alone_is_refused():
    """Without prompts nothing could be said about them, nor about answers without tokens."""
    run = logged_run(cpu_like(), seed=1)
    no_chunks = {name: column[:0] for name, column in run.steps.chunks.items()}
    with pytest.raises(EvidenceError, match="hardly a step of the runs holds a part of a prompt"):
        calibrate([replace(run, steps=replace(run.steps, chunks=no_chunks))], ("a",))
    no_decodes = run.steps.steps | {"num_decodes": np.zeros(len(run.steps), dtype=np.int64)}
    with pytest.raises(EvidenceError, match="hardly a step of the runs generates tokens"):
        calibrate([replace(run, steps=replace(run.steps, steps=no_decodes))], ("a",))


def test_an_invalid_run_gives_its_steps_and_not_its_delays():
    """Its client was late, not its engine."""
    run = simulated(512, 3.0, seed=1)
    late = replace(run, validity=Validity(False, ("requests were sent late",)))
    found = calibrate([late], ("a",))
    assert found.cost.arrival_ns == found.cost.delivery_ns == 0
    assert any("a is invalid (requests were sent late)" in warning for warning in found.warnings)
    with pytest.raises(EvidenceError, match=r"invalid \(requests were sent late\): it cannot judge"):
        compare(replace(simulated(256, 2.0, seed=5), validity=late.validity), "b", found)


def test_a_run_that_was_fitted_cannot_judge(calibration):
    """Nor a copy of it under another name."""
    with pytest.raises(EvidenceError, match="copy was used to calibrate, so it cannot judge"):
        compare(simulated(512, 3.0, seed=2), "copy", calibration)


def test_errors_are_told_by_kind_of_step(calibration):
    """Every step is in one kind, in one bin of each group, and in one run."""
    count = {}
    for regime in calibration.errors:
        count.setdefault(regime.group, {})[regime.name] = regime.n
    kinds = count["kind"]
    everything = count["all"]["all steps"]
    assert kinds["decode only"] + kinds["mixed"] + kinds.get("prefill only", 0) == everything
    assert sum(count["run"].values()) == everything
    assert sum(count["largest chunk"].values()) == sum(count["longest prefix"].values())
    assert sum(count["decodes"].values()) == kinds["decode only"]
    assert calibration.overall.median_abs < 0.01


def test_what_lies_beyond_is_told(calibration):
    """Larger steps, longer prefixes, more decodes than the runs had; and nothing about a load like theirs."""
    assert calibration.covered.beyond(simulated(64, 2.0, seed=9).steps) == ()
    assert calibration.covered.beyond(StepLog()) == ()
    told = calibration.covered.beyond(logged_run(cpu_like(), seed=4, budget=2048, decodes=300).steps)
    for what in ("a number of tokens", "a number of decoding requests", "a chunk after a prefix"):
        assert any(f"of the steps have {what} above" in sentence for sentence in told)


def test_sizes_without_steps_are_told():
    """Between budgets of 64 and 1,024 alone there is nothing to fit to."""
    runs = [logged_run(cpu_like(), seed=1, budget=64, decodes=10)]
    steps = {name: column.copy() for name, column in runs[0].steps.steps.items()}
    steps["num_tokens"][steps["num_tokens"] == 64] = 1000
    found = calibrate([replace(runs[0], steps=replace(runs[0].steps, steps=steps))], ("a",))
    assert any(low >= 32 and high == 1000 for low, high in found.covered.sparse)
    told = found.covered.beyond(logged_run(cpu_like(), seed=4, budget=256, decodes=10).steps)
    assert any("and 1,000 tokens, where the calibration saw hardly a step" in sentence for sentence in told)


def test_the_file_is_read_back(calibration, tmp_path):
    """Bit for bit, and with what a later version may add."""
    file = save_calibration(calibration, tmp_path / "new" / "calibration.json")
    assert load_calibration(file).as_dict() == calibration.as_dict()
    content = json.loads(file.read_text())
    assert (content["schema"], content["kind"]) == (1, "calibration")
    file.write_text(json.dumps(content | {"later": 1}))
    assert load_calibration(file).cost.as_dict() == calibration.cost.as_dict()


def test_a_file_that_is_no_calibration_is_refused(calibration, tmp_path):
    """In one line that names it."""
    file = tmp_path / "c.json"
    content = json.loads(json.dumps(calibration.as_dict()))

    def refused(text, why):
        file.write_text(text)
        with pytest.raises(UsageError, match=why) as error:
            load_calibration(file)
        assert "\n" not in str(error.value)
        assert "c.json" in str(error.value)

    refused("{", "is no JSON")
    refused("[]", "is no calibration")
    refused(json.dumps({"kind": "calibration", "schema": 9}), "has schema 9, this stallfree reads 1")
    without = {name: value for name, value in content.items() if name != "covered"}
    refused(json.dumps(without), "has no 'covered'")
    refused(json.dumps(content | {"cost": content["cost"] | {"fixed_ns": -1}}), "fixed_ns must be")
    refused(json.dumps(content | {"errors": 3}), "calibrate again")
    with pytest.raises(UsageError, match="No such file"):
        load_calibration(tmp_path / "none.json")
    with pytest.raises(OutputError, match="cannot write"):
        save_calibration(calibration, file / "below.json")


def test_a_judge_is_played_as_it_was(calibration):
    """Under its own settings, with its warm-up left out, its answers as long as they came."""
    judge = simulated(256, 3.0, seed=6)
    half = np.arange(len(judge)) < len(judge) // 2
    compared = compare(replace(judge, warmup=half), "judge", calibration)
    assert compared.figure("request_throughput").error == pytest.approx(0, abs=0.02)
    assert compared.figure("ttft", "p50").measured != compare(judge, "j", calibration).figure(
        "ttft", "p50").measured
    assert compared.as_dict()["run"] == "judge"


def test_a_figure_without_samples_has_no_error(calibration):
    """A p99 of few requests is refused on both sides."""
    compared = compare(simulated(256, 1.0, seed=8, seconds=10), "judge", calibration)
    assert compared.figure("ttft", "p99").error is None
