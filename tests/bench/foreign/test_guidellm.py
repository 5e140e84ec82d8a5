"""Results of GuideLLM, read from a file that it wrote."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.foreign import load_result, load_results

DATA = Path(__file__).parents[2] / "data" / "foreign"
MS = 1_000_000


def test_guidellm_keeps_one_result_a_benchmark():
    """TPOT is what it calls ITL, and no gaps are known; its own TPOT stays under its own name."""
    first, second = load_results(DATA / "guidellm.json")
    assert (first.tool, first.tool_version, first.model, first.endpoint) == (
        "GuideLLM", "0.8.1", "paced", "/v1/completions")
    assert (first.rate_rps, second.rate_rps, first.completed, first.failed) == (20.0, 40.0, 5, 0)
    assert first.figure("tpot", "mean").value == pytest.approx(
        first.theirs["inter_token_latency_ms mean"].value * MS, rel=1e-6)
    assert first.theirs["time_per_output_token_ms mean"].value > 8 > first.figure("tpot", "max").value / MS
    assert first.figure("tbt", "median").value is None
    assert first.figure("itl", "median").value is None
    assert "includes the time to the first token" in first.definitions["tpot"]


def test_guidellm_knows_when_requests_were_due():
    """Its times of requests give latencies from the intended send and the client's own lag."""
    result = load_result(DATA / "guidellm.json", 1)
    lag = result.samples["schedule_lag"]
    off_ns = result.samples["ttft"] + lag - result.samples["ttft_from_intended"]
    assert np.abs(off_ns).max() <= 2  # each is rounded to whole ns
    assert 0 < lag.min() < lag.max() < 100 * MS


def _guidellm(tmp_path, change):
    document = json.loads((DATA / "guidellm.json").read_text())
    change(document)
    file = tmp_path / "benchmarks.json"
    file.write_text(json.dumps(document))
    return load_result(file, 1)


def test_guidellm_without_requests_states_its_ttft(tmp_path):
    """A summary alone has no TPOT of ours: its percentiles are weighted by tokens."""
    def drop(document):
        document["benchmarks"][0]["requests"]["successful"] = []

    result = _guidellm(tmp_path, drop)
    assert result.figure("ttft", "mean").source == "stated"
    assert result.figure("ttft", "mean").value > 30 * MS
    assert result.figure("ttft", "p90").value is None
    assert result.figure("tpot", "mean").value is None
    assert "not interpolated" in result.definitions["ttft"]


def test_guidellm_warns_of_what_is_missing(tmp_path):
    """Requests that it cut off, requests that the file left out, and other versions are told."""
    def change(document):
        document["metadata"]["guidellm_version"] = "0.5.0"
        benchmark = document["benchmarks"][0]
        benchmark["metrics"]["request_totals"]["incomplete"] = 3
        del benchmark["requests"]["successful"][2:]

    told = " ".join(_guidellm(tmp_path, change).warnings)
    assert "GuideLLM 0.5.0" in told
    assert "3 requests were cut off" in told
    assert "of the 2 requests that the file kept, 5 succeeded" in told


def test_guidellm_zeros_without_samples_are_no_figures(tmp_path):
    """It writes 0 where nothing was counted."""
    def fail_all(document):
        benchmark = document["benchmarks"][0]
        benchmark["requests"]["successful"] = []
        benchmark["metrics"]["request_totals"] = {"successful": 0, "errored": 5, "incomplete": 0}
        for metric in benchmark["metrics"].values():
            if isinstance(metric, dict) and "successful" in metric and isinstance(metric["successful"], dict):
                metric["successful"] |= {"count": 0, "mean": 0.0, "max": 0.0}

    result = _guidellm(tmp_path, fail_all)
    assert {key: figure.value for key, figure in result.figures().items() if figure.value is not None} == {
        ("error_rate", None): 1.0}
    assert result.warnings == ("no request succeeded",)
