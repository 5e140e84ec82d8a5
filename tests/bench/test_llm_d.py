"""Runs as benchmark reports of llm-d: the fields and units that its schema 0.2 takes."""

import json
from datetime import datetime

import numpy as np
import pytest

from bench import Outcome, RunRecorder, summarise
from bench.llm_d import llm_d_report
from workloads import Plan

MS = 1_000_000
NUMBERS = {"mean", "mode", "stddev", "min", "p0p1", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95",
           "p99", "p99p9", "max"}
COUNT, TIME, PER_TOKEN = {"count"}, {"ms", "s"}, {"ms/token", "s/token"}
SHAPE = {
    "version": str,
    "run": {"uid": str, "eid": str, "cid": str, "pid": str, "user": str, "description": str, "keywords": list,
            "time": {"start": str, "end": str, "duration": str}},
    "scenario": {
        "stack": list,
        "load": {
            "metadata": {"schema_version": str, "cfg_id": str, "description": str},
            "standardized": {
                "tool": str, "tool_version": str, "parallelism": int, "source": str, "stage": int,
                "input_seq_len": {"distribution": str, "value": int | float, "std_dev": float, "min": int,
                                  "max": int},
                "output_seq_len": {"distribution": str, "value": int | float, "std_dev": float, "min": int,
                                   "max": int},
                "rate_qps": float, "concurrency": int},
            "native": {"args": dict, "envars": dict, "config": dict}}},
    "results": {
        "request_performance": {"aggregate": {
            "requests": {"total": int, "failures": int, "incomplete": int, "input_length": COUNT,
                         "output_length": COUNT},
            "latency": {"time_to_first_token": TIME, "normalized_time_per_output_token": PER_TOKEN,
                        "time_per_output_token": PER_TOKEN, "inter_token_latency": PER_TOKEN,
                        "request_latency": TIME},
            "throughput": {"input_token_rate": {"tokens/s"}, "output_token_rate": {"tokens/s"},
                           "total_token_rate": {"tokens/s"}, "request_rate": {"queries/s"}}}},
        "observability": {"components": list},
        "profiling": dict},
}
"""What the pydantic classes of llm-d-benchmark's schema_v0_2.py allow; a set stands for a statistic with
one of these units. They refuse unknown fields."""


def check(value, shape, where="report"):
    """Fields, types and units are those of the shape; every statistic has a mean."""
    if isinstance(shape, set):
        assert value["units"] in shape, where
        assert set(value) - {"units"} <= NUMBERS, where
        assert isinstance(value["mean"], float), where
    elif isinstance(shape, dict):
        assert set(value) <= set(shape), where
        for name, part in value.items():
            check(part, shape[name], f"{where}.{name}")
    else:
        assert isinstance(value, shape), where


def played(n, *, gaps=(20, 40, 60), outcome=Outcome.OK, meta=None):
    """A run of n requests, 100 ms apart, whose tokens come after these times in ms."""
    none = np.full(n, -1)
    plan = Plan(intended_ns=np.arange(n) * 100 * MS, input_len=np.arange(n) + 16,
                output_len=np.full(n, len(gaps)), component=np.zeros(n), prefix_group=none, session=none,
                turn=np.zeros(n), num_warmups=0, seed=1, rate_rps=10.0, component_names=("chat",))
    recorder = RunRecorder(plan, meta={
        "rate_rps": 10.0, "label": "a", "date": "2026-11-30T12:00:00+00:00", "plan_digest": "abc",
        "engine": {"name": "vllm", "version": "0.32.0", "model": "m"}, "knobs": {"max_seqs": 4},
        "max_concurrency": 8, **(meta or {})})
    for row in range(n):
        sent_ns = row * 100 * MS
        recorder.sent(row, sent_ns)
        for after in gaps if outcome == Outcome.OK else ():
            recorder.read(row, sent_ns + after * MS, 1)
        recorder.ended(row, sent_ns + gaps[-1] * MS, outcome)
    return recorder.run()


def report(run):
    """Its report, through JSON, checked against the schema."""
    summary = summarise(run)
    found = json.loads(json.dumps(llm_d_report(run, summary, summary.as_dict()), allow_nan=False))
    check(found, SHAPE)
    assert {"version", "run", "results"} <= set(found)
    assert {"distribution", "value"} <= set(found["scenario"]["load"]["standardized"]["input_seq_len"])
    for component in found["scenario"]["stack"]:
        assert set(component) == {"metadata", "standardized", "native"}
        assert {"kind", "tool", "tool_version"} <= set(component["standardized"])
        assert {"label", "cfg_id"} <= set(component["metadata"])
    return found


def test_times_are_in_the_unit_that_is_declared():
    """Seconds, and seconds a token."""
    latency = report(played(5, gaps=(20, 40, 140)))["results"]["request_performance"]["aggregate"]["latency"]
    means = {name: (figure["mean"], figure["units"]) for name, figure in latency.items()}
    assert means == {
        "time_to_first_token": (pytest.approx(0.02), "s"),
        "request_latency": (pytest.approx(0.14), "s"),
        "time_per_output_token": (pytest.approx(0.06), "s/token"),
        "inter_token_latency": (pytest.approx(0.06), "s/token"),
        "normalized_time_per_output_token": (pytest.approx(0.14 / 3), "s/token"),
    }
    assert latency["inter_token_latency"]["max"] == 0.1


def test_rates_and_counts_name_their_units():
    """Queries and tokens per second; lengths are counts."""
    aggregate = report(played(5))["results"]["request_performance"]["aggregate"]
    assert aggregate["throughput"]["request_rate"] == {"units": "queries/s", "mean": pytest.approx(5 / 0.46)}
    assert aggregate["throughput"]["output_token_rate"]["mean"] == pytest.approx(15 / 0.46)
    assert (aggregate["requests"]["total"], aggregate["requests"]["failures"]) == (5, 0)
    assert aggregate["requests"]["input_length"]["mean"] == 18


def test_percentiles_need_enough_samples():
    """p99 of five requests is left out, of 150 it is there; the schema has room for a missing one."""
    few, many = (report(played(n))["results"]["request_performance"]["aggregate"] for n in (5, 150))
    assert "p99" not in few["latency"]["time_to_first_token"]
    assert many["latency"]["time_to_first_token"]["p99"] == pytest.approx(0.02)


@pytest.mark.parametrize("run", [played(3, outcome=Outcome.ERROR), played(0)])
def test_without_a_success_there_are_no_statistics(run):
    """A statistic needs a mean; an empty run is still a valid report, and says that it is invalid."""
    found = report(run)
    aggregate = found["results"]["request_performance"]["aggregate"]
    assert aggregate["latency"] == {}
    assert aggregate["requests"]["failures"] == len(run)
    assert found["run"]["description"].startswith("a, INVALID: ")
    assert "invalid" in found["run"]["keywords"]


def test_the_load_and_the_engine_are_described():
    """Lengths, rate, cap, knobs and the time of the run."""
    found = report(played(5))
    load = found["scenario"]["load"]["standardized"]
    assert (load["rate_qps"], load["concurrency"], load["source"]) == (10.0, 8, "random")
    assert load["output_seq_len"] == {"distribution": "fixed", "value": 3}
    assert (load["input_seq_len"]["min"], load["input_seq_len"]["max"]) == (16, 20)
    assert found["scenario"]["stack"][0]["native"]["args"] == {"max_seqs": 4}
    time = found["run"]["time"]
    lasted = datetime.fromisoformat(time["end"]) - datetime.fromisoformat(time["start"])
    assert (lasted.total_seconds(), time["duration"]) == (0.46, "PT0.460000S")


def test_an_endless_rate_is_left_out():
    """JSON has no infinity, and the schema wants a number."""
    load = report(played(2, meta={"rate_rps": "inf", "max_concurrency": None}))["scenario"]["load"]
    assert not {"rate_qps", "concurrency"} & set(load["standardized"])


def test_what_the_server_counted_is_observability():
    """Hit rate as a fraction, preemptions as a count; absent where nobody looked."""
    gained = {"delta": {"prefix_hit_rate": 0.25, "preemptions": 2}}
    found = report(played(2, meta={"server_metrics": gained}))
    (component,) = found["results"]["observability"]["components"]
    assert component["component_label"] == "engine"
    assert component["aggregate"] == {"cache_hit_rate": {"units": "fraction", "mean": 0.25},
                                      "preemptions": {"units": "count", "mean": 2}}
    assert "observability" not in report(played(2))["results"]


def test_what_the_schema_has_no_place_for_is_kept():
    """Stalls, fluidity and the client's lateness stand whole below `profiling`; the report is repeatable."""
    run = played(2)
    assert report(run)["results"]["profiling"]["stallfree"]["max_tbt_ms"] == 20
    assert report(run) == report(run)


def test_a_simulated_run_says_so():
    """The first word of its description and a keyword: the schema has no better place."""
    engine = {"name": "simulator", "fingerprint": {"simulated": {"rule": "vllm-v1"}}}
    found = report(played(2, meta={"engine": engine}))["run"]
    assert found["description"].startswith("a, SIMULATED, ")
    assert "simulated" in found["keywords"]
    assert "simulated" not in report(played(2))["run"]["keywords"]
