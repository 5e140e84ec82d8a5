"""Our own result files: their validity, their client, and every figure that they state."""

import json

import pytest

from bench import summarise, summary_json
from bench.foreign import load_result, own_file
from tests.bench.test_llm_d import played


def ours(tmp_path, **values):
    """The result file of a run of five requests, some of its keys changed; ... removes a key."""
    document = json.loads(json.dumps(summarise(played(5)).as_dict())) | values
    file = tmp_path / "result.json"
    file.write_text(json.dumps({key: value for key, value in document.items() if value is not ...}))
    return load_result(file)


def test_every_key_of_a_summary_has_its_name():
    """What a summary writes is read back as the metric and the statistic that it was written of."""
    for key, (metric, stat) in summary_json._FIGURES.items():
        assert own_file._named(key) == (metric, "median" if stat == "p50" else stat)


def test_every_stated_figure_is_read_with_its_samples(tmp_path):
    """No lists are needed: values and `n` are those of the file, and so is why there is none."""
    n = {"tbt": 540, "ttft_from_intended": 60, "fluidity": 60, "stall": 60, "achieved_rate": 60}
    result = ours(tmp_path, p99_tbt_ms=21.0, mean_ttft_from_intended_ms=783.0, fluidity_index_p01=None,
                  longest_stall_ms=5.0, stall_count=7, achieved_rate_fraction=0.5, n=n,
                  missing={"fluidity_index_p01": "no curve"})
    figures = {key: (figure.value, figure.n) for key, figure in result.figures().items()}
    assert figures["tbt", "p99"] == (21e6, 540)
    assert figures["ttft_from_intended", "mean"] == (783e6, 60)
    assert (figures["stall", "max"], figures["stall", "count"]) == ((5e6, 60), (7, 60))
    assert figures["achieved_rate", None] == (0.5, 60)
    assert result.figure("fluidity", "p1").why_missing == "no curve"


def test_the_tool_needs_no_definitions_and_is_told_by_its_plan(tmp_path):
    """It has vLLM's keys, and our meaning."""
    result = ours(tmp_path, plan_digest="x")
    assert (result.tool, result.own, result.definitions) == ("stallfree", True, {})
    assert result.theirs.keys().isdisjoint({"request_rate", "p99_tbt_ms", "client_cpu_share"})


@pytest.mark.parametrize(("values", "valid", "reasons"), [
    ({"valid": False, "invalid_reasons": ["too late\x1b[2J"]}, False, ("too late[2J",)),
    ({"valid": True, "invalid_reasons": []}, True, ()),
    ({"valid": False, "invalid_reasons": None}, False, ()),
    ({"valid": True, "invalid_reasons": ["contradicted"]}, False, ("contradicted",)),
])
def test_validity_is_the_files(values, valid, reasons, tmp_path):
    """A reason makes it invalid whatever else is said; control characters are taken out."""
    result = ours(tmp_path, **values)
    assert result.validity is not None
    assert (result.validity.valid, result.validity.reasons) == (valid, reasons)
    assert (result.as_dict()["valid"], result.as_dict()["invalid_reasons"]) == (valid, list(reasons))


def test_a_file_that_does_not_judge_is_not_called_valid(tmp_path):
    """Without the keys the validity is not known."""
    assert ours(tmp_path, valid=..., invalid_reasons=...).validity is None


def test_the_client_is_the_files(tmp_path):
    """Its lateness is known, in ns; nothing stands for what was not measured."""
    result = ours(tmp_path, client_read_delay_p99_ms=0.5, client_merged_share=0.1, client_cpu_share=None)
    assert result.client is not None
    assert (result.client.read_delay_p99_ns, result.client.merged_share) == (500_000, 0.1)
    assert result.client.cpu_share is None
    assert result.tells_lateness


@pytest.mark.parametrize(("rate", "peak", "told"), [
    (30.0, 2, "only figures from the intended send count"), (30.0, 1, None), ("inf", 2, None)])
def test_waits_under_a_cap_are_in_the_figures_from_the_intended_send(rate, peak, told, tmp_path):
    """It is said where the cap was reached, and not of a closed loop, in which nobody comes to wait."""
    warnings = ours(tmp_path, request_rate=rate, max_concurrency=2, peak_in_flight=peak).warnings
    assert [told in warning for warning in warnings if "waited in the client" in warning] == (
        [True] if told else [])
    assert not any("no latency here" in warning for warning in warnings)
