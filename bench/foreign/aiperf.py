"""Result files of AIPerf 0.13: `profile_export_aiperf.json` and, beside it, `profile_export.jsonl`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.foreign.imported import ImportedFigure, ImportedResult, Key, Theirs, stated
from bench.foreign.reading import NS_PER, count, items, mapping, nanoseconds, number, text
from bench.run import Int64

TOOL = "AIPerf"
KNOWN_VERSION = "0.13"
_LATENCIES = {"time_to_first_token": "ttft", "inter_chunk_latency": "itl", "request_latency": "e2e"}
_STATS = {"avg": "mean", "std": "std", "min": "min", "max": "max", "p50": "median", "p1": "p1", "p5": "p5",
          "p10": "p10", "p25": "p25", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99"}
_THEIRS = ("inter_token_latency", "time_to_second_token", "output_token_throughput",
           "output_token_throughput_per_user", "total_token_throughput", "output_sequence_length",
           "input_sequence_length", "usage_completion_tokens", "usage_prompt_tokens",
           "credit_to_start_latency", "effective_latency", "effective_concurrency", "benchmark_duration")
_DEFINITIONS = {
    "tpot": "from the time of each request and the tokens that the server counted; what the tool calls ITL "
            "divides by the tokens behind the first message",
    "itl": "the tool calls this inter-chunk latency; what it calls ITL is a mean of each request. Without "
           "its records the percentiles of many samples are the tool's estimates",
    "request_throughput": "per second from the first send to the last answer",
    "output_throughput": "per second from the first send to the last answer",
    "total_token_throughput": "per second from the first send to the last answer",
    "goodput": "a request without a value for an objective misses it",
}
_SERVER_TOKENS = "total_usage_completion_tokens"


def is_aiperf(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is AIPerf's summary of one run."""
    return "aiperf_version" in document or "unit" in mapping(document.get("request_latency"))


def is_aiperf_record(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is one line of AIPerf's records."""
    return {"metadata", "metrics"} <= set(document) and "benchmark_phase" in mapping(document["metadata"])


def records_beside(summary: Path) -> Path:
    """Where the records of a summary lie: a prefix given to AIPerf names both."""
    return summary.with_name(summary.stem.removesuffix("_aiperf") + ".jsonl")


def summary_beside(records: Path) -> Path:
    """Where the summary of records lies."""
    default = records.stem == "profile_export"
    return records.with_name(f"{records.stem}_aiperf.json" if default else f"{records.stem}.json")


def read_aiperf(summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]],
                source: Path) -> ImportedResult:
    """One result of its summary, its records, or both; either may be empty. Warm-up is left out."""
    config = mapping(summary.get("input_config"))
    phase = next((mapping(item) for item in items(config.get("phases"))
                  if mapping(item).get("kind") == "profiling"), {})
    endpoint = mapping(config.get("endpoint"))
    measured = [item for item in records if mapping(item["metadata"]).get("benchmark_phase") == "profiling"]
    ended = [item for item in measured if not mapping(item["metadata"]).get("was_cancelled")]
    good = [mapping(item.get("metrics")) for item in ended if not item.get("error")]
    completed = len(good) if measured else count(_stat(summary, "request_count"))
    failed = len(ended) - len(good) if measured else _failed(summary)
    models = items(mapping(config.get("models")).get("items"))
    return ImportedResult(
        tool=TOOL, tool_version=text(summary.get("aiperf_version")), source=source,
        model=text(mapping(models[0]).get("name")) if models else "", endpoint=text(endpoint.get("type")),
        rate_rps=number(phase.get("rate")), max_concurrency=count(phase.get("concurrency")),
        completed=completed, failed=failed, duration_s=_seconds(summary),
        date=text(summary.get("start_time")),
        samples=_samples(good), stated=_stated(summary, completed, failed), definitions=_DEFINITIONS,
        theirs=_theirs(summary),
        warnings=tuple(_warnings(summary, endpoint, completed, good, len(measured) - len(ended))),
    )


def _stat(summary: Mapping[str, Any], name: str, stat: str = "avg") -> float | None:
    return number(mapping(summary.get(name)).get(stat))


def _failed(summary: Mapping[str, Any]) -> int | None:
    failed = count(_stat(summary, "error_request_count"))
    # The summary leaves out what did not happen.
    return 0 if failed is None and _stat(summary, "request_error_rate") == 0 else failed


def _seconds(summary: Mapping[str, Any]) -> float | None:
    found = _stat(summary, "benchmark_duration")
    unit = NS_PER.get(text(mapping(summary.get("benchmark_duration")).get("unit")))
    return found * unit / 1e9 if found is not None and unit is not None else None


def _warnings(summary: Mapping[str, Any], endpoint: Mapping[str, Any], completed: int | None,
              good: list[Mapping[str, Any]], cut_off: int) -> list[str]:
    found = []
    version = text(summary.get("aiperf_version"))
    if summary and not version.startswith(f"{KNOWN_VERSION}."):
        found.append(f"written by AIPerf {version or '(unknown)'}, its definitions were checked for "
                     f"{KNOWN_VERSION}")
    if cut_off or summary.get("was_cancelled"):
        found.append(f"{cut_off or 'some'} requests were cut off at the end of the run: the slow ones are "
                     f"missing")
    if completed == 0:
        found.append("no request succeeded")
    server, own = _stat(summary, "usage_completion_tokens"), _stat(summary, "output_sequence_length")
    if server and own and not endpoint.get("use_server_token_count") and abs(own - server) > 0.01 * server:
        found.append(f"the tool's tokenizer counted {own:.4g} tokens an answer, the server {server:.4g}: the "
                     f"tool's own figures per token are wrong by as much")
    if good and not any("usage_completion_tokens" in metrics for metrics in good):
        found.append("the server counted no tokens: TPOT stands on the tool's tokenizer")
    return found


def _samples(metrics: list[Mapping[str, Any]]) -> dict[str, Int64]:
    """Times by metric, of the successful requests."""
    if not metrics:
        return {}
    found: dict[str, Int64] = {}
    for name, metric in _LATENCIES.items():
        times = [value for record in metrics for value in _ns(record, name)]
        if times:
            found[metric] = nanoseconds(times, "ns")
    tpot = [_tpot(record) for record in metrics]
    if any(value is not None for value in tpot):
        found["tpot"] = nanoseconds(tpot, "ns")
    if "itl" in found and all(_one_token_a_message(record) for record in metrics):
        found["tbt"] = found["itl"]
    return found


def _ns(record: Mapping[str, Any], name: str) -> list[float]:
    """The values of one metric of one request, one or a list of them, in ns."""
    entry = mapping(record.get(name))
    unit, value = NS_PER.get(text(entry.get("unit"))), entry.get("value")
    found = [number(item) for item in (value if isinstance(value, list) else [value])]
    return [item * unit for item in found if item is not None] if unit is not None else []


def _one_token_a_message(record: Mapping[str, Any]) -> bool:
    """Whether the server counted as many tokens as there were messages."""
    return count(mapping(record.get("usage_completion_tokens")).get("value")) == 1 + len(
        _ns(record, "inter_chunk_latency"))


def _tpot(record: Mapping[str, Any]) -> float | None:
    counted = mapping(record.get("usage_completion_tokens") or record.get("output_sequence_length"))
    tokens = count(counted.get("value"))
    first, last = _ns(record, "time_to_first_token"), _ns(record, "request_latency")
    if tokens is None or tokens < 2 or not first or not last:
        return None
    return (last[0] - first[0]) / (tokens - 1)


def _stated(
    summary: Mapping[str, Any], completed: int | None, failed: int | None
) -> dict[Key, ImportedFigure]:
    found: dict[Key, ImportedFigure] = {}
    for name, metric in _LATENCIES.items():
        entry = mapping(summary.get(name))
        unit = NS_PER.get(text(entry.get("unit")))
        for theirs, stat in _STATS.items():
            if unit is not None and (value := number(entry.get(theirs))) is not None:
                found[metric, stat] = stated(stat, value * unit, count(entry.get("count")))
    found.update(_rates(summary, completed))
    if (good := _stat(summary, "goodput")) is not None:
        found["goodput", "rate"] = stated(None, good, completed)
    if completed is not None and failed is not None and (ended := completed + failed):
        found["error_rate", None] = stated(None, failed / ended, ended)
        if (share := _stat(summary, "good_request_fraction")) is not None:
            found["goodput", "attainment"] = stated(None, share, ended)
    return found


def _rates(summary: Mapping[str, Any], completed: int | None) -> dict[Key, ImportedFigure]:
    """Throughputs; those of tokens by the server's count, and none by the tool's tokenizer."""
    seconds = _seconds(summary)
    rates = {"request_throughput": _stat(summary, "request_throughput")}
    for metric, name in (("output_throughput", _SERVER_TOKENS),
                         ("total_token_throughput", "total_usage_total_tokens")):
        tokens = _stat(summary, name)
        rates[metric] = tokens / seconds if tokens is not None and seconds else None
    return {(metric, None): stated(None, rate, completed)
            for metric, rate in rates.items() if rate is not None}


def _theirs(summary: Mapping[str, Any]) -> dict[str, Theirs]:
    found = {}
    for name in _THEIRS:
        unit = text(mapping(summary.get(name)).get("unit"))
        for stat in ("avg", "p50", "p99"):
            if (value := _stat(summary, name, stat)) is not None:
                found[f"{name} {stat}"] = Theirs(value, unit)
    return found
