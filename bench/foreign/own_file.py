"""Our own result files: the keys of `vllm bench serve`, with our meaning, our validity and our client."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.catalog import metric_and_stat
from bench.foreign.imported import ImportedFigure, ImportedResult, Key, Theirs, known_stat, stated
from bench.foreign.reading import NS_PER, count, items, mapping, number, text
from bench.foreign.vllm_serve import is_vllm, request_samples
from bench.run import ClientHealth, Validity

TOOL = "stallfree"
_FIGURES: dict[str, Key] = {
    "longest_stall_ms": ("stall", "max"), "stalled_time_ms": ("stall", "total"),
    "stall_count": ("stall", "count"), "stalled_requests": ("stalled_requests", None),
    "request_throughput": ("request_throughput", None), "output_throughput": ("output_throughput", None),
    "total_token_throughput": ("total_token_throughput", None),
    "request_goodput": ("goodput", "rate"), "goodput_attainment": ("goodput", "attainment"),
    "token_goodput": ("goodput", "token_rate"), "error_rate": ("error_rate", None),
    "fluidity_index_mean": ("fluidity", "mean"), "fluidity_index_p01": ("fluidity", "p1"),
    "fluidity_index_p10": ("fluidity", "p10"), "fluidity_index_service": ("fluidity", "pooled"),
    "fluid_token_rate": ("fluid_token_rate", None), "achieved_rate_fraction": ("achieved_rate", None),
}
_TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e", "tbt": "tbt",
          "ttft_from_intended": "ttft_from_intended", "e2el_from_intended": "e2e_from_intended",
          "scheduling_delay": "scheduling_delay", "schedule_lag": "schedule_lag"}
_ELSEWHERE = frozenset({
    "request_rate", "requested_rate", "max_concurrency", "duration", "completed", "failed", "schema_version",
    "seed", "client_loop_lag_p99_ms", "client_read_delay_p99_ms", "client_merged_share", "client_cpu_share"})
"""Numbers that are shown under another heading, or say nothing of the run."""


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is one result that `tune bench --save-result` or `tune export` wrote."""
    return is_vllm(document) and "plan_digest" in document


def read_ours(document: Mapping[str, Any], source: Path) -> ImportedResult:
    """One result with its validity. With --save-detailed the latencies are computed from its samples."""
    samples, warnings = request_samples(document)
    rate = document.get("request_rate")
    return ImportedResult(
        tool=TOOL, tool_version="", source=source, model=text(document.get("model_id")),
        endpoint=text(document.get("endpoint_type")) or text(document.get("backend")),
        rate_rps=math.inf if rate == "inf" else number(rate),
        max_concurrency=count(document.get("max_concurrency")), completed=count(document.get("completed")),
        failed=count(document.get("failed")), duration_s=number(document.get("duration")),
        date=text(document.get("date")), samples=samples, stated=_stated(document), theirs=_theirs(document),
        warnings=(*_doubts(document), *warnings), own=True, validity=_validity(document),
        client=_client(document),
    )


def _validity(document: Mapping[str, Any]) -> Validity | None:
    """None where the file does not say it."""
    valid, reasons = document.get("valid"), _texts(document.get("invalid_reasons"))
    if not isinstance(valid, bool) and not reasons:
        return None
    return Validity(valid is True and not reasons, reasons, _texts(document.get("validity_notes")))


def _client(document: Mapping[str, Any]) -> ClientHealth:
    return ClientHealth(
        loop_lag_p99_ns=_ns(document.get("client_loop_lag_p99_ms")),
        read_delay_p99_ns=_ns(document.get("client_read_delay_p99_ms")),
        merged_share=number(document.get("client_merged_share")),
        cpu_share=number(document.get("client_cpu_share")))


def _doubts(document: Mapping[str, Any]) -> list[str]:
    """What the last screen of the run said beside its validity, and what a cap did to its latencies."""
    found = []
    if failure := text(document.get("engine_failure")):
        found.append(f"the engine failed: {failure}")
    found += [f"the load was not sustainable: {why}" for why in _texts(document.get("sustainable_reasons"))]
    found += _texts(document.get("warnings"))
    if document.get("completed") == 0:
        found.append("no request succeeded")
    limit, peak = count(document.get("max_concurrency")), count(document.get("peak_in_flight"))
    # In a closed loop a request is due when a place is free: none waits for one.
    if limit is None or document.get("request_rate") == "inf" or (peak is not None and peak < limit):
        return found
    counted = any("_from_intended_" in key for key in document)
    found.append(f"at most {limit} requests were in flight: later ones waited in the client, which "
                 + ("only figures from the intended send count" if counted else "no latency here contains"))
    return found


def _stated(document: Mapping[str, Any]) -> dict[Key, ImportedFigure]:
    samples, missing = mapping(document.get("n")), mapping(document.get("missing"))
    found: dict[Key, ImportedFigure] = {}
    for key, value in document.items():
        if (named := _named(key)) is None:
            continue
        metric, stat = named
        shown, n = number(value), count(samples.get(metric))
        if shown is None:
            why = text(missing.get(key)) or "the file holds no value"
            found[named] = ImportedFigure(None, n, "stated", why)
        else:
            is_time = metric_and_stat(metric, stat)[0].unit_of(stat) == "ns"
            found[named] = stated(stat, number(shown * NS_PER["ms"]) if is_time else shown, n)
    return found


def _named(key: str) -> Key | None:
    """Metric and statistic of a key; None for a key that is no figure of the catalog."""
    if key in _FIGURES:
        return _FIGURES[key]
    stat, _, rest = key.partition("_")
    metric = _TIMES.get(rest.removesuffix("_ms")) if rest.endswith("_ms") else None
    known = known_stat(stat) if metric else None
    return (metric, known) if metric and known else None


def _theirs(document: Mapping[str, Any]) -> dict[str, Theirs]:
    return {text(key): Theirs(shown, "ms" if key.endswith("_ms") else "")
            for key, value in document.items() if _named(key) is None and key not in _ELSEWHERE
            and (shown := number(value)) is not None}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(told for told in map(text, items(value)) if told)


def _ns(value: object) -> int | None:
    ms = number(value)
    return round(ms * NS_PER["ms"]) if ms is not None and 0 <= ms < 1e12 else None
