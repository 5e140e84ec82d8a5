"""Result files of GuideLLM 0.8 (`benchmarks.json`): one result a benchmark."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.foreign.imported import ImportedFigure, ImportedResult, Key, Theirs, known_stat, stated
from bench.foreign.reading import NS_PER, count, items, mapping, nanoseconds, number, text
from bench.run import Int64

TOOL = "GuideLLM"
KNOWN_VERSION = "0.8"
_DEFINITIONS = {
    "tpot": "the tool calls this ITL; what it calls TPOT includes the time to the first token",
    "ttft_from_intended": "from the start that its strategy targeted",
    "schedule_lag": "from the start that its strategy targeted",
    "request_throughput": "the mean over its measured window, warm-up and cool-down left out",
    "output_throughput": "the mean over its measured window, warm-up and cool-down left out",
    "total_token_throughput": "the mean over its measured window, warm-up and cool-down left out",
    "goodput": "a request whose objective cannot be judged is left out of the share; its TPOT objective is "
               "compared with the time per token after the first",
    "error_rate": "requests that it cut off at the end of the run are not counted",
}
_STATED_PERCENTILES = "percentiles are of its empirical distribution, not interpolated"
_THEIRS = {"time_per_output_token_ms": "ms", "inter_token_latency_ms": "ms", "request_latency": "s",
           "request_concurrency": "", "output_tokens_per_second": "1/s", "prompt_token_count": "",
           "output_token_count": ""}
_RATES = {"requests_per_second": "request_throughput", "output_tokens_per_second": "output_throughput",
          "tokens_per_second": "total_token_throughput"}
_ARRIVALS = frozenset({"constant", "poisson"})
"""Strategies with a schedule of their own; the others target a start as soon as possible."""


def is_guidellm(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a GuideLLM report."""
    kinds = {text(mapping(benchmark).get("type_")) for benchmark in items(document.get("benchmarks"))}
    return "guidellm_version" in mapping(document.get("metadata")) or "generative_benchmark" in kinds


def read_guidellm(document: Mapping[str, Any], source: Path) -> list[ImportedResult]:
    """One result for every benchmark of the report, in its order."""
    version = text(mapping(document.get("metadata")).get("guidellm_version"))
    return [_benchmark(mapping(item), version, source) for item in items(document.get("benchmarks"))]


def _benchmark(benchmark: Mapping[str, Any], version: str, source: Path) -> ImportedResult:
    config, metrics = mapping(benchmark.get("config")), mapping(benchmark.get("metrics"))
    strategy, backend = mapping(config.get("strategy")), mapping(config.get("backend"))
    totals = mapping(metrics.get("request_totals"))
    completed, failed = count(totals.get("successful")), count(totals.get("errored"))
    kept = [mapping(item) for item in items(mapping(benchmark.get("requests")).get("successful"))]
    kind = text(strategy.get("type_"))
    samples = _samples(kept, scheduled=kind in _ARRIVALS)
    definitions = dict(_DEFINITIONS)
    if not samples:
        definitions["ttft"] = _STATED_PERCENTILES
    return ImportedResult(
        tool=TOOL, tool_version=version, source=source, model=text(backend.get("model")),
        endpoint=text(backend.get("request_format")), rate_rps=_rate(kind, strategy),
        max_concurrency=count(strategy.get("streams") if kind == "concurrent" else None),
        completed=completed, failed=failed, duration_s=number(benchmark.get("duration")), date="",
        samples=samples, stated=_stated(metrics, completed, failed), definitions=definitions,
        theirs=_theirs(metrics), warnings=tuple(_warnings(version, totals, completed, len(kept))),
    )


def _rate(kind: str, strategy: Mapping[str, Any]) -> float | None:
    return math.inf if kind == "throughput" else number(strategy.get("rate"))


def _warnings(version: str, totals: Mapping[str, Any], completed: int | None, kept: int) -> list[str]:
    found = []
    if not version.startswith(f"{KNOWN_VERSION}."):
        found.append(f"written by GuideLLM {version or '(unknown)'}, its definitions were checked "
                     f"for {KNOWN_VERSION}")
    if incomplete := count(totals.get("incomplete")):
        found.append(f"{incomplete} requests were cut off at the end of the run: the slow ones are missing")
    if completed and 0 < kept < completed:
        found.append(f"latencies are of the {kept} requests that the file kept, {completed} succeeded")
    if completed == 0:
        found.append("no request succeeded")
    return found


def _samples(requests: list[Mapping[str, Any]], *, scheduled: bool) -> dict[str, Int64]:
    """Times by metric; the file keeps the first and the last token of a request, and no gaps between."""
    found: dict[str, list[float]] = {}
    for request in requests:
        times = mapping(mapping(request.get("info")).get("timings"))
        start, first, last, due = (number(times.get(name)) for name in (
            "request_start", "first_token_iteration", "last_token_iteration", "targeted_start"))
        if start is None or first is None or last is None:
            continue
        found.setdefault("ttft", []).append(first - start)
        found.setdefault("e2e", []).append(last - start)
        tokens = count(request.get("output_tokens"))
        if tokens is not None and tokens > 1:
            found.setdefault("tpot", []).append((last - first) / (tokens - 1))
        if scheduled and due is not None:
            found.setdefault("ttft_from_intended", []).append(first - due)
            found.setdefault("e2e_from_intended", []).append(last - due)
            found.setdefault("schedule_lag", []).append(start - due)
    return {metric: nanoseconds(values, "s") for metric, values in found.items()}


def _successes(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Statistics over the successful requests; empty where there were none: the tool writes zeros."""
    found = mapping(mapping(metrics.get(name)).get("successful"))
    return found if count(found.get("count")) else {}


def _percentiles(found: Mapping[str, Any]) -> dict[str, float | None]:
    """By our names: `p001` of the file is p0.1, `p99` p99, `p999` p99.9."""
    spelled = {"p001": "p0.1", "p999": "p99.9"}
    named = {known_stat(spelled.get(key, key)): number(value)
             for key, value in mapping(found.get("percentiles")).items()}
    return {stat: value for stat, value in named.items() if stat is not None}


def _stated(
    metrics: Mapping[str, Any], completed: int | None, failed: int | None
) -> dict[Key, ImportedFigure]:
    found: dict[Key, ImportedFigure] = {}
    ttft = _successes(metrics, "time_to_first_token_ms")
    plain = {ours: number(ttft.get(name)) for name, ours in
             (("mean", "mean"), ("std_dev", "std"), ("min", "min"), ("max", "max"))}
    for stat, ms in ({**plain, **_percentiles(ttft)} if ttft else {}).items():
        n = count(ttft.get("count"))
        found["ttft", stat] = stated(stat, None if ms is None else ms * NS_PER["ms"], n)
    for name, metric in _RATES.items():
        found[metric, None] = stated(None, number(_successes(metrics, name).get("mean")), completed)
    if completed is not None and failed is not None and (ended := completed + failed):
        found["error_rate", None] = stated(None, failed / ended, ended)
    judged = count(metrics.get("slo_determined_requests"))
    for stat, value in (("attainment", number(metrics.get("slo_attainment"))),
                        ("rate", number(_successes(metrics, "request_goodput").get("mean")))):
        if value is not None:
            found["goodput", stat] = stated(stat, value, judged)
    return found


def _theirs(metrics: Mapping[str, Any]) -> dict[str, Theirs]:
    found = {}
    for name, unit in _THEIRS.items():
        statistics = _successes(metrics, name)
        values = {"mean": number(statistics.get("mean")), **_percentiles(statistics)}
        for stat in ("mean", "median", "p99"):
            if (value := values.get(stat)) is not None:
                found[f"{name} {stat}"] = Theirs(value, unit)
    return found
