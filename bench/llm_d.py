"""A run as a benchmark report of llm-d, schema version 0.2 (llm-d-benchmark, `benchmark_report`).

Its classes refuse unknown fields and units of the wrong kind, and every statistic names its unit.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from bench.run import Int32, Int64, Outcome, Run
from bench.samples import Samples
from bench.summary import Summary

VERSION = "0.2"
_STATS = {"mean": "mean", "std": "stddev", "min": "min", "p0.1": "p0p1", "p1": "p1", "p5": "p5", "p10": "p10",
          "p25": "p25", "median": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99",
          "p99.9": "p99p9", "max": "max"}
"""Our statistics and their names in the schema."""
_LATENCIES = {"time_to_first_token": ("ttft", "s"), "time_per_output_token": ("tpot", "s/token"),
              "inter_token_latency": ("tbt", "s/token"), "request_latency": ("e2e", "s")}
_RATES = {"output_token_rate": ("output_throughput", "tokens/s"),
          "total_token_rate": ("total_token_throughput", "tokens/s"),
          "request_rate": ("request_throughput", "queries/s")}
_ENGINE = "engine"
"""Label of the one component that a run knows."""


def llm_d_report(run: Run, summary: Summary, told: Mapping[str, Any]) -> dict[str, Any]:
    """The report of `run`, JSON-able; the same run gives the same report.

    `told` is the run's summary as stored (Summary.as_dict()): what the schema has no place for (stalls,
    fluidity, lateness of the client) stands whole below `results.profiling`, which takes anything. What
    has no value is left out. An inter-token latency is our TBT: the gap before every token.
    """
    return {
        "version": VERSION,
        "run": _run(run, summary),
        "scenario": {"stack": [_engine(run)], "load": _load(run)},
        "results": {
            "request_performance": {"aggregate": _aggregate(run, summary)},
            **_observability(run),
            "profiling": {"stallfree": dict(told)},
        },
    }


def _run(run: Run, summary: Summary) -> dict[str, Any]:
    meta = run.meta
    identity = [meta.get(name) for name in ("plan_digest", "salt", "date", "label")]
    verdict = "valid" if run.validity.valid else "INVALID: " + "; ".join(run.validity.reasons)
    keywords = ["stallfree", "valid" if run.validity.valid else "invalid"]
    if "simulated" in ((meta.get("engine") or {}).get("fingerprint") or {}):
        verdict, keywords = f"SIMULATED, {verdict}", [*keywords, "simulated"]
    return {"uid": _digest([*identity, run.start_ns]), "time": _time(run, summary.duration_s),
            "description": f"{meta.get('label') or 'run'}, {verdict}", "keywords": keywords}


def _time(run: Run, measured_s: float | None) -> dict[str, str]:
    """From the run's start, warm-up included, to its last answer; `duration` is the measured part."""
    found = {} if measured_s is None else {"duration": f"PT{measured_s:.6f}S"}
    try:
        start = datetime.fromisoformat(str(run.meta.get("date")))
    except ValueError:
        return found
    lasted_ns = max(0, int(run.end_ns.max(initial=run.start_ns)) - run.start_ns)
    end = start + timedelta(microseconds=lasted_ns // 1000)
    return {**found, "start": start.isoformat(), "end": end.isoformat()}


def _engine(run: Run) -> dict[str, Any]:
    engine, knobs = dict(run.meta.get("engine") or {}), dict(run.meta.get("knobs") or {})
    settings = {name: value for name, value in engine.items() if name != "start_seconds"}
    return {
        "metadata": {"label": _ENGINE, "cfg_id": _digest([settings, knobs])},
        # `inference_engine` asks for an accelerator, which a client need not know.
        "standardized": {"kind": "generic", "tool": str(engine.get("name") or "unknown"),
                         "tool_version": str(engine.get("version") or "unknown"),
                         "model": {"name": str(engine.get("model") or "unknown")}},
        "native": {"args": knobs, "config": settings},
    }


def _load(run: Run) -> dict[str, Any]:
    measured = run.measured
    version = (run.meta.get("versions") or {}).get("stallfree")
    standardized: dict[str, Any] = {
        "tool": "stallfree", "tool_version": str(version or "unknown"), "source": "random"}
    if measured.any():
        standardized["input_seq_len"] = _length(run.input_len[measured])
        standardized["output_seq_len"] = _length(run.output_len[measured])
    else:
        standardized["input_seq_len"] = {"distribution": "other", "value": 0}
    rate, limit = run.rate_rps, run.meta.get("max_concurrency")
    if rate is not None and 0 < rate < float("inf"):
        standardized["rate_qps"] = rate
    if isinstance(limit, int) and limit >= 1:
        standardized["concurrency"] = limit
    config = {name: run.meta.get(name) for name in ("seed", "burstiness", "rate_rps", "workload")}
    digest = run.meta.get("plan_digest")
    return {"metadata": {"cfg_id": digest} if digest else {}, "standardized": standardized,
            "native": {"config": config}}


def _length(tokens: Int32) -> dict[str, Any]:
    low, high = int(tokens.min()), int(tokens.max())
    if low == high:
        return {"distribution": "fixed", "value": low}
    return {"distribution": "other", "value": float(tokens.mean()), "std_dev": float(tokens.std()),
            "min": low, "max": high}


def _aggregate(run: Run, summary: Summary) -> dict[str, Any]:
    latency = {name: _statistics(unit, _in_seconds(summary, metric))
               for name, (metric, unit) in _LATENCIES.items()}
    latency["normalized_time_per_output_token"] = _statistics("s/token", _of(Samples(_ntpot_ns(run)), 1e-9))
    throughput = {name: _statistics(unit, {"mean": summary.figure(metric).value})
                  for name, (metric, unit) in _RATES.items()}
    cut_short = run.measured & (run.outcome == Outcome.CUT_SHORT)
    asked = np.where(run.prompt_tokens < 0, run.input_len, run.prompt_tokens)
    lengths = {"input_length": asked, "output_length": run.num_tokens}
    return {
        "requests": {
            "total": int((run.attempted | cut_short).sum()), "failures": int((run.attempted & ~run.ok).sum()),
            "incomplete": int((cut_short & ~run.attempted).sum()),
            **_present({name: _statistics("count", _of(Samples(column[run.ok].astype(np.int64)), 1))
                        for name, column in lengths.items()}),
        },
        "latency": _present(latency),
        "throughput": _present(throughput),
    }


def _in_seconds(summary: Summary, metric: str) -> dict[str, float | None]:
    values = {theirs: summary.figure(metric, ours).value for ours, theirs in _STATS.items()}
    return {name: None if value is None else value / 1e9 for name, value in values.items()}


def _of(samples: Samples, scale: float) -> dict[str, float | None]:
    values = {theirs: samples.statistic(ours)[0] for ours, theirs in _STATS.items()}
    return {name: None if value is None else value * scale for name, value in values.items()}


def _ntpot_ns(run: Run) -> Int64:
    """Time from sending to the last token, a token, of each successful request (their NTPOT)."""
    spent = (run.last_token_ns() - run.sent_ns)[run.ok]
    whole: Int64 = spent // np.maximum(run.num_tokens[run.ok], 1)
    return whole


def _statistics(unit: str, values: Mapping[str, float | None]) -> dict[str, Any] | None:
    """None where there is no mean: the schema requires one."""
    if values.get("mean") is None:
        return None
    return {"units": unit, **{name: value for name, value in values.items() if value is not None}}


def _observability(run: Run) -> dict[str, Any]:
    """What the server's own counters gained in the run, where they were read."""
    gained = (run.meta.get("server_metrics") or {}).get("delta") or {}
    found = _present({
        "cache_hit_rate": _statistics("fraction", {"mean": gained.get("prefix_hit_rate")}),
        "preemptions": _statistics("count", {"mean": gained.get("preemptions")}),
    })
    if not found:
        return {}
    return {"observability": {"components": [{"component_label": _ENGINE, "aggregate": found}]}}


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
