"""Results of AIPerf, read from files that it wrote."""

import json
from pathlib import Path

import pytest

from bench.foreign import load_result

DATA = Path(__file__).parents[2] / "data" / "foreign"
MS = 1_000_000


@pytest.mark.parametrize("name", ["profile_export_aiperf.json", "profile_export.jsonl"])
def test_aiperf_is_read_from_its_summary_and_its_records(name):
    """Either file leads to the other; warm-up is left out; its ITL stays under its own name."""
    result = load_result(DATA / "aiperf" / name)
    assert (result.tool, result.tool_version, result.model) == ("AIPerf", "0.13.0", "paced")
    assert (result.rate_rps, result.max_concurrency, result.completed, result.failed) == (None, 2, 6, 0)
    assert result.figure("ttft", "mean").n == 6
    assert result.figure("itl", "mean").n == 42
    assert result.figure("tbt", "mean").value == result.figure("itl", "mean").value
    assert result.figure("tpot", "mean").value == pytest.approx(
        result.theirs["inter_token_latency avg"].value * MS, rel=1e-6)
    assert result.figure("output_throughput").value == pytest.approx(48 / result.duration_s)


def test_aiperf_summary_alone_states_its_figures(tmp_path):
    """Without records there is no TPOT of ours: its ITL divides by other tokens."""
    file = tmp_path / "profile_export_aiperf.json"
    file.write_text((DATA / "aiperf" / "profile_export_aiperf.json").read_text())
    result = load_result(file)
    records = load_result(DATA / "aiperf" / "profile_export.jsonl")
    for metric in ("ttft", "itl", "e2e"):
        figure = result.figure(metric, "median")
        assert figure.source == "stated"
        assert figure.value == pytest.approx(records.figure(metric, "median").value)
    assert (result.completed, result.failed, result.figure("tpot", "mean").value) == (6, 0, None)


def test_aiperf_tokens_of_its_own_tokenizer_are_not_believed(tmp_path):
    """Where server and tool count differently, TPOT and throughput follow the server."""
    summary = json.loads((DATA / "aiperf" / "profile_export_aiperf.json").read_text())
    summary["input_config"]["endpoint"]["use_server_token_count"] = False
    summary["output_sequence_length"]["avg"] = 16.0
    (tmp_path / "run_aiperf.json").write_text(json.dumps(summary))
    (tmp_path / "run.jsonl").write_text((DATA / "aiperf" / "profile_export.jsonl").read_text())
    result = load_result(tmp_path / "run_aiperf.json")
    assert "counted 16 tokens an answer, the server 8" in result.warnings[0]
    assert result.figure("output_throughput").value == pytest.approx(48 / result.duration_s)


def test_aiperf_requests_that_were_cut_off_are_no_failures(tmp_path):
    """The client gave them up itself; they are told."""
    text = (DATA / "aiperf-failed" / "profile_export.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    lines[0]["metadata"]["was_cancelled"] = True
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    result = load_result(file)
    assert (result.completed, result.failed) == (0, 3)
    assert "1 requests were cut off" in result.warnings[0]


def test_aiperf_records_of_failures_have_only_an_error_rate():
    """When every request failed it writes no summary."""
    result = load_result(DATA / "aiperf-failed" / "profile_export.jsonl")
    assert (result.completed, result.failed, result.figure("error_rate").value) == (0, 4, 1.0)
    assert result.samples == {}
