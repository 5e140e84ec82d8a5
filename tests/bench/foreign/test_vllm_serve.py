"""Results of `vllm bench serve`, read from files that it wrote."""

import json
import math
from pathlib import Path

import pytest

from bench.foreign import load_result, load_results
from workloads import EvidenceError

DATA = Path(__file__).parents[2] / "data" / "foreign"
MS = 1_000_000
LISTS = ("ttfts", "itls", "latencies", "output_lens", "errors")


def changed(name, tmp_path, **values):
    """The result in a file of the data with some of its keys changed; None removes a key."""
    document = json.loads((DATA / name).read_text()) | values
    file = tmp_path / "result.json"
    file.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return load_result(file)


def test_vllm_with_details_is_computed_from_its_samples():
    """Percentiles are ours, and agree with what vLLM states of the same samples."""
    result = load_result(DATA / "vllm-detailed.json")
    stated = json.loads((DATA / "vllm-detailed.json").read_text())
    assert (result.tool, result.model, result.rate_rps, result.max_concurrency) == (
        "vllm bench serve", "paced", 40.0, None)
    assert (result.completed, result.failed, result.warnings) == (12, 0, ())
    for metric, key in (("ttft", "ttft"), ("itl", "itl"), ("tpot", "tpot"), ("e2e", "e2el")):
        for stat in ("mean", "median", "p90"):
            figure = result.figure(metric, stat)
            assert figure.source == "samples"
            assert figure.value == pytest.approx(stated[f"{stat}_{key}_ms"] * MS, rel=1e-6)
    assert result.figure("itl", "mean").n == 12 * 7
    assert result.figure("goodput", "rate").value == stated["request_goodput"]


def test_percentiles_that_the_samples_cannot_say_are_refused():
    """vLLM states a p99 of twelve requests; here it is None, and why is said."""
    for name in ("vllm.json", "vllm-detailed.json"):
        figure = load_result(DATA / name).figure("ttft", "p99")
        assert figure.value is None
        assert figure.why_missing == "p99 needs at least 100 samples, there are 12"


def test_vllm_without_details_states_its_figures():
    """What is stated stands under our names, in ns; the number of gaps is not known."""
    result = load_result(DATA / "vllm.json")
    ttft, itl = result.figure("ttft", "median"), result.figure("itl", "p90")
    assert (ttft.source, ttft.n) == ("stated", 12)
    assert ttft.value == pytest.approx(31.04284050004935 * MS)
    assert (itl.value, itl.n) == (pytest.approx(5.0554411001940025 * MS), None)
    assert result.figure("itl", "p99").value is None  # 96 tokens have fewer than 100 gaps
    assert result.figure("tbt", "p50").value is None
    assert "role" in result.definitions["ttft"]


def test_tbt_is_known_where_every_message_held_one_token(tmp_path):
    """With more tokens than messages the gaps are those of messages alone."""
    assert load_result(DATA / "vllm-detailed.json").figure("tbt", "mean").value is not None
    lens = json.loads((DATA / "vllm-detailed.json").read_text())["output_lens"]
    result = changed("vllm-detailed.json", tmp_path, output_lens=[9, *lens[1:]])
    assert result.figure("tbt", "mean").value is None
    assert result.figure("itl", "mean").n == 84


def test_failed_and_empty_answers_of_vllm_have_no_times(tmp_path):
    """vLLM keeps 0 as the TTFT of both; neither enters a percentile."""
    lists = {name: json.loads((DATA / "vllm-detailed.json").read_text())[name] for name in LISTS}
    for name, failed, empty in zip(LISTS, (0.0, [], 0.0, 0, "boom"), (0.0, [], 0.05, 0, ""), strict=True):
        lists[name] = [*lists[name], failed, empty]
    result = changed("vllm-detailed.json", tmp_path, completed=13, failed=1, **lists)
    assert len(result.samples["ttft"]) == 12
    assert result.samples["ttft"].min() > 30 * MS
    assert result.figure("error_rate").value == 1 / 14
    assert any("without a token" in warning for warning in result.warnings)


def test_vllm_latencies_that_may_hold_failures_are_not_used(tmp_path):
    """Without the list of errors a latency of 0 cannot be told from a quick answer."""
    assert changed("vllm.json", tmp_path, failed=1).figure("e2e", "mean").value is None
    assert changed("vllm.json", tmp_path).figure("e2e", "mean").n == 12


def test_every_percentile_that_vllm_can_be_asked_for_has_a_name(tmp_path):
    """p0 and p100 are min and max, p99.0 is p99; what is no statistic stays theirs."""
    result = changed("vllm.json", tmp_path, p0_ttft_ms=1.0, p100_ttft_ms=9.0, **{"p90.0_itl_ms": 7.0},
                     pNN_ttft_ms=5.0, total_output_tokens=1000)
    assert (result.figure("ttft", "min").value, result.figure("ttft", "max").value) == (MS, 9 * MS)
    assert result.figure("itl", "p90").value == 7 * MS
    assert result.figures()


def test_a_cap_on_requests_in_flight_is_told(tmp_path):
    """With a finite rate the cap hides the queueing in the client."""
    result = changed("vllm.json", tmp_path, max_concurrency=2)
    assert "waited in the client" in result.warnings[0]
    assert changed("vllm.json", tmp_path, max_concurrency=2, request_rate="inf").warnings == ()


def test_appended_results_are_several():
    """--append-result writes one JSON document a line."""
    results = load_results(DATA / "vllm-appended.json")
    assert [(result.rate_rps, result.max_concurrency) for result in results] == [(math.inf, 4)] * 2
    assert load_result(DATA / "vllm-appended.json", 2).duration_s == results[1].duration_s
    with pytest.raises(EvidenceError, match="holds 2 results: say which one"):
        load_result(DATA / "vllm-appended.json")
    with pytest.raises(EvidenceError, match="there is no number 3"):
        load_result(DATA / "vllm-appended.json", 3)


def test_lists_of_different_lengths_are_not_used(tmp_path):
    """Which time belongs to which request cannot be told; what the tool states remains."""
    result = changed("vllm-detailed.json", tmp_path, latencies=[0.05])
    assert "different lengths" in result.warnings[0]
    assert result.figure("ttft", "mean").source == "stated"


def test_names_cannot_steer_a_terminal(tmp_path):
    """Control characters are taken out of what is shown."""
    assert changed("vllm.json", tmp_path, model_id="a\x1b[2Jb").model == "a[2Jb"
