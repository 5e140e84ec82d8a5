"""A summary as JSON: the keys of `vllm bench serve` unchanged, then ours. Never NaN, never infinity."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.catalog import CATALOG
from bench.delivery import delivery_delays_ns
from bench.run import Outcome, Run
from bench.sustainability import sustainable
from bench.tenants import tenant_names

if TYPE_CHECKING:
    from bench.summary import Summary

SCHEMA_VERSION = 1

_VLLM_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
_TIMES = (
    *((metric, stat, key) for metric, key in _VLLM_LATENCIES.items()
      for stat in ("mean", "median", "std", "p99")),
    *((metric, stat, key) for metric, key in _VLLM_LATENCIES.items()
      for stat in ("p90", "p95", "max") if metric in ("ttft", "e2e")),
    *(("tbt", stat, "tbt") for stat in ("mean", "p50", "p90", "p95", "p99", "p99.9", "max")),
    ("ttft_from_intended", "mean", "ttft_from_intended"), ("ttft_from_intended", "p99", "ttft_from_intended"),
    ("e2e_from_intended", "mean", "e2el_from_intended"), ("e2e_from_intended", "p99", "e2el_from_intended"),
    *(("scheduling_delay", stat, "scheduling_delay") for stat in ("median", "p99", "max")),
    *(("schedule_lag", stat, "schedule_lag") for stat in ("p50", "p99", "max")),
)
_SECOND_NS = 1_000_000_000
_BLOCK_READS = 1 << 18
_OF_TENANTS = ("median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms", "p50_tbt_ms", "p99_tbt_ms", "max_tbt_ms",
               "p99_e2el_ms", "fluidity_index_mean", "fluidity_index_p10", "fluidity_index_service",
               "longest_stall_ms", "goodput_attainment", "error_rate", "output_throughput")
_FIGURES: dict[str, tuple[str, str | None]] = {
    **{f"{stat}_{name}_ms": (metric, stat) for metric, stat, name in _TIMES},
    "longest_stall_ms": ("stall", "max"),
    "stalled_time_ms": ("stall", "total"),
    "request_throughput": ("request_throughput", None),
    "request_goodput": ("goodput", "rate"),
    "output_throughput": ("output_throughput", None),
    "total_token_throughput": ("total_token_throughput", None),
    "goodput_attainment": ("goodput", "attainment"),
    "token_goodput": ("goodput", "token_rate"),
    "error_rate": ("error_rate", None),
    "fluidity_index_mean": ("fluidity", "mean"),
    "fluidity_index_p01": ("fluidity", "p1"),
    "fluidity_index_p10": ("fluidity", "p10"),
    "fluidity_index_service": ("fluidity", "pooled"),
    "fluid_token_rate": ("fluid_token_rate", None),
    "stall_count": ("stall", "count"),
    "stalled_requests": ("stalled_requests", None),
    "achieved_rate_fraction": ("achieved_rate", None),
}


def summary_dict(summary: "Summary") -> dict[str, Any]:
    """All of it; `missing` says why a figure is None, `n` how many samples each metric has."""
    run = summary.run
    figures: dict[str, Any] = {}
    missing: dict[str, str] = {}
    counts: dict[str, int] = {}
    for key, (metric, stat) in _FIGURES.items():
        figure = summary.figure(metric, stat)
        figures[key] = figure.value
        if figure.value is None:
            missing[key] = figure.why_missing
        elif key.endswith("_ms"):
            figures[key] = figure.value / 1e6
        counts[metric] = max(counts.get(metric, 0), figure.n)
    rate, achieved = run.rate_rps, figures["achieved_rate_fraction"]
    figures["achieved_rate"] = rate * achieved if rate is not None and achieved is not None else None
    return {
        **_vllm_head(summary), **figures, **_ours(summary),
        "tenants": {name: tenant_dict(summary.tenant(name)) for name in tenant_names(run)} or None,
        "n": counts, "populations": {name: CATALOG[name].population for name in counts}, "missing": missing,
    }


def tenant_dict(summary: "Summary") -> dict[str, Any]:
    """The main figures of one tenant, under the keys of a run's; `missing` says why one is None."""
    run = summary.run
    figures: dict[str, Any] = {"num_prompts": int(run.measured.sum()), "completed": int(run.ok.sum()),
                               "failed": int((run.attempted & ~run.ok).sum())}
    missing = {}
    for key in _OF_TENANTS:
        figure = summary.figure(*_FIGURES[key])
        figures[key] = figure.value
        if figure.value is None:
            missing[key] = figure.why_missing
        elif key.endswith("_ms"):
            figures[key] = figure.value / 1e6
    deadlines = summary.deadlines
    return {**figures, "missing": missing, "deadlines": None if deadlines is None else {
        "prefill_slack_ms": deadlines.slack_ns / 1e6, "decode_ms": deadlines.decode_ns / 1e6}}


def _vllm_head(summary: "Summary") -> dict[str, Any]:
    run = summary.run
    engine = run.meta.get("engine") or {}
    tokens = run.num_tokens[run.ok]
    return {
        "date": run.meta.get("date"),
        "backend": _endpoint_type(engine), "endpoint_type": _endpoint_type(engine),
        "label": run.meta.get("label"), "model_id": engine.get("model"), "tokenizer_id": engine.get("model"),
        "num_prompts": int(run.measured.sum()), "request_rate": _rate(run),
        "burstiness": run.meta.get("burstiness"), "max_concurrency": run.meta.get("max_concurrency"),
        "duration": summary.duration_s,
        "completed": int(run.ok.sum()), "failed": int((run.attempted & ~run.ok).sum()),
        "total_input_tokens": int(run.input_len[run.ok].sum()), "total_output_tokens": int(tokens.sum()),
        "max_output_tokens_per_s": _busiest_second(run), "max_concurrent_requests": run.peak_in_flight(),
    }


def _endpoint_type(engine: dict[str, Any]) -> str | None:
    """vLLM's name for the API: openai or openai-chat; the engine's own where there is none."""
    api = (engine.get("fingerprint") or {}).get("api")
    name: str | None = engine.get("name")
    return {"completions": "openai", "chat": "openai-chat"}.get(api or "", name)


def _ours(summary: "Summary") -> dict[str, Any]:
    run, deadlines = summary.run, summary.deadlines
    lag_ns, delay_ns = run.client.loop_lag_p99_ns, run.client.read_delay_p99_ns
    load = sustainable(run, deadlines)
    return {
        "schema_version": SCHEMA_VERSION, "seed": run.meta.get("seed"),
        "plan_digest": run.meta.get("plan_digest"), "workload": run.meta.get("workload"),
        "knobs": run.meta.get("knobs"), "requested_rate": _rate(run),
        "arrivals_not_sent": int((run.measured & (run.outcome == Outcome.NOT_SENT)).sum()),
        "error_counts_by_kind": {kind: n for kind, n in run.outcome_counts().items() if kind != "ok"},
        "goodput_undetermined": summary.undetermined,
        "token_count_source": run.meta.get("token_count_source"),
        "requested_vs_actual_output_len": {
            "requested": int(run.output_len[run.ok].sum()), "actual": int(run.num_tokens[run.ok].sum()),
        },
        "requested_vs_actual_input_len": _input_lengths(run),
        "peak_in_flight": run.peak_in_flight(),
        "warmup_excluded": int(run.warmup.sum()),
        **_delivery(run),
        "client_loop_lag_p99_ms": None if lag_ns is None else lag_ns / 1e6,
        "client_read_delay_p99_ms": None if delay_ns is None else delay_ns / 1e6,
        "client_merged_share": run.client.merged_share, "client_cpu_share": run.client.cpu_share,
        "client_workers": len(run.meta.get("workers") or [0]),
        "http_status_counts": _status_counts(run),
        "prefix_cache": _prefix_cache(run),
        "server_metrics": (run.meta.get("server_metrics") or {}).get("delta"),
        "steps": len(run.steps), "steps_lost": run.steps.lost,
        "deadlines": None if deadlines is None else {
            "prefill_curve_id": deadlines.curve.digest(), "prefill_slack_ms": deadlines.slack_ns / 1e6,
            "decode_ms": deadlines.decode_ns / 1e6,
            "prompts_beyond_curve": int(deadlines.curve.extrapolates(run.input_len[run.measured]).sum()),
        },
        "sustainable": load.sustainable, "sustainable_reasons": list(load.reasons),
        "valid": run.validity.valid, "invalid_reasons": list(run.validity.reasons),
        "validity_notes": list(run.validity.notes),
        "engine_failure": None if run.engine_failure is None else str(run.engine_failure),
    }


def _prefix_cache(run: Run) -> dict[str, Any] | None:
    """Prompt tokens looked up in the prefix cache and found there, warm-up included, as the engine counts
    them; None where it does not say."""
    gained = (run.meta.get("server_metrics") or {}).get("delta") or {}
    found = run.meta.get("prefix_cache") or {
        "queries": gained.get("prefix_queries"), "hits": gained.get("prefix_hits")}
    queries, hits = found["queries"], found["hits"]
    if hits is None:
        return None
    return {"queries": queries, "hits": hits, "hit_share": hits / queries if queries else None}


def _input_lengths(run: Run) -> dict[str, int | None]:
    """Prompt tokens of the successful requests, as planned and as the server counted them."""
    counted = run.ok & (run.prompt_tokens >= 0)
    if not counted.any():
        return {"requested": int(run.input_len[run.ok].sum()), "actual": None}
    return {"requested": int(run.input_len[counted].sum()), "actual": int(run.prompt_tokens[counted].sum())}


def _status_counts(run: Run) -> dict[str, int]:
    codes, counts = np.unique(run.status[run.measured & (run.status != 0)], return_counts=True)
    return {str(code): int(count) for code, count in zip(codes, counts, strict=True)}


def _rate(run: Run) -> float | str | None:
    return "inf" if run.rate_rps == math.inf else run.rate_rps


def _delivery(run: Run) -> dict[str, float | None]:
    delays = delivery_delays_ns(run)
    values = [None] * 3 if delays is None else (
        np.percentile(delays, (50, 99, 100), overwrite_input=True) / 1e6).tolist()
    return dict(zip(("p50_delivery_delay_ms", "p99_delivery_delay_ms", "max_delivery_delay_ms"), values,
                    strict=True))


def _busiest_second(run: Run) -> float | None:
    """Most output tokens of successful requests within one second, counted from the start of the run."""
    ok = run.ok
    if not ok.any():
        return None
    begin_ns = min(run.start_ns, int(run.read_ns.min()))
    totals = np.zeros(int((run.read_ns.max() - begin_ns) // _SECOND_NS) + 1)
    counts = np.diff(run.reads_offset)
    # Row by row in blocks: a long run has millions of reads.
    for rows in np.array_split(np.arange(len(run)), len(run.read_ns) // _BLOCK_READS + 1):
        low, high = run.reads_offset[rows[0]], run.reads_offset[rows[-1] + 1]
        at_ns, tokens = run.read_ns[low:high], run.read_tokens[low:high]
        if not ok[rows].all():
            chosen = np.repeat(ok[rows], counts[rows])
            at_ns, tokens = at_ns[chosen], tokens[chosen]
        totals += np.bincount((at_ns - begin_ns) // _SECOND_NS, weights=tokens, minlength=len(totals))
    return float(totals.max())
