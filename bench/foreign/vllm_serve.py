"""Result files of `vllm bench serve` 0.32: --save-result, --save-detailed and --append-result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.foreign.imported import ImportedFigure, ImportedResult, Key, Theirs, known_stat, stated
from bench.foreign.reading import NS_PER, count, items, nanoseconds, number, text
from bench.run import Int64

TOOL = "vllm bench serve"
_OURS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
_SCALARS = {"request_throughput": "request_throughput", "output_throughput": "output_throughput",
            "total_token_throughput": "total_token_throughput"}
_DEFINITIONS = {
    "ttft": "the first message with a choice counts, even one that holds only the role: on chat endpoints of "
            "servers that send it early this is less than the time to the first token",
    "itl": "gap between messages with a choice, the first of them may hold only the role",
    "tpot": "the last message with a choice counts as the last token",
    "e2e": "ends with the last message with a choice",
    "request_throughput": "per second from the first send to the last answer",
    "goodput": "answers of one token always meet a TPOT objective",
}
_HEAD = frozenset({"num_prompts", "request_rate", "burstiness", "max_concurrency", "duration", "completed",
                   "failed"})


def is_vllm(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is one result of `vllm bench serve`."""
    return {"model_id", "request_throughput", "completed"} <= set(document)


def read_vllm(document: Mapping[str, Any], source: Path) -> ImportedResult:
    """One result. With --save-detailed the figures are computed from its samples."""
    completed, failed = count(document.get("completed")), count(document.get("failed"))
    samples, warnings = request_samples(document)
    rate = document.get("request_rate")
    rate_rps = math.inf if rate == "inf" else number(rate)
    limit = count(document.get("max_concurrency"))
    if limit is not None and rate_rps is not None and math.isfinite(rate_rps):
        warnings.append(f"at most {limit} requests were in flight: later ones waited in the client, which no "
                        f"latency here contains")
    if completed == 0:
        warnings.append("no request succeeded")
    return ImportedResult(
        tool=TOOL, tool_version="", source=source,
        model=text(document.get("model_id")),
        endpoint=text(document.get("endpoint_type")) or text(document.get("backend")), rate_rps=rate_rps,
        max_concurrency=limit, completed=completed, failed=failed,
        duration_s=number(document.get("duration")), date=text(document.get("date")), samples=samples,
        stated=_stated(document, completed, failed), definitions=_DEFINITIONS,
        theirs=_theirs(document), warnings=tuple(warnings),
    )


def _stated(
    document: Mapping[str, Any], completed: int | None, failed: int | None
) -> dict[Key, ImportedFigure]:
    found: dict[Key, ImportedFigure] = {}
    for key, value in document.items():
        stat, metric = _latency(key)
        if metric and completed:
            # How many answers had two tokens, and how many gaps there were, the file does not say.
            n = completed if metric in ("ttft", "e2e") else None
            most = count(document.get("total_output_tokens")) if metric == "itl" else completed
            ms = number(value)
            found[metric, stat] = stated(stat, None if ms is None else ms * NS_PER["ms"], n, at_most=most)
    for key, metric in _SCALARS.items():
        found[metric, None] = stated(None, number(document.get(key)), completed)
    if (good := number(document.get("request_goodput"))) is not None:
        found["goodput", "rate"] = stated(None, good, completed)
    if completed is not None and failed is not None and (asked := completed + failed):
        found["error_rate", None] = stated(None, failed / asked, asked)
    return found


def _latency(key: str) -> tuple[str, str]:
    """Statistic and metric of a key such as `p99_ttft_ms`; two empty ones for other keys."""
    stat, _, rest = key.partition("_")
    metric = _OURS.get(rest.removesuffix("_ms"), "") if rest.endswith("_ms") else ""
    known = known_stat(stat) if metric else None
    return ("", "") if known is None else (known, metric)


def _theirs(document: Mapping[str, Any]) -> dict[str, Theirs]:
    found = {}
    for key, value in document.items():
        shown = number(value)
        named = _latency(key)[1] or key in _HEAD or key in _SCALARS or key == "request_goodput"
        if shown is not None and not named:
            found[text(key)] = Theirs(shown, "ms" if key.endswith("_ms") else "")
    return found


@dataclass(frozen=True, slots=True)
class _Answer:
    """One successful request of a detailed file, times in seconds."""

    ttft: float
    latency: float | None
    gaps: list[float]
    tokens: int


def request_samples(document: Mapping[str, Any]) -> tuple[dict[str, Int64], list[str]]:
    """Times by metric from the lists of requests, and what was wrong with them. Empty without details."""
    columns = [items(document.get(name)) for name in ("ttfts", "itls", "latencies", "output_lens", "errors")]
    if not columns[0]:
        latencies = [number(value) for value in items(document.get("latencies"))]
        # Without the list of errors a failed request cannot be told from a successful one.
        whole = latencies and document.get("failed") == 0 and all(latencies)
        return ({"e2e": nanoseconds(latencies, "s")} if whole else {}), []
    # Files of older versions have no latencies.
    columns[2] = columns[2] or [None] * len(columns[0])
    if len({len(column) for column in columns}) > 1:
        return {}, ["the lists of requests are of different lengths: they are not used"]
    rows = [_answer(*row) for row in zip(*columns, strict=True)]
    answers = [row for row in rows if row is not None]
    empty = sum(1 for error, row in zip(columns[4], rows, strict=True) if not error and row is None)
    warnings = [f"{empty} answers without a token or a time are left out; the tool counts them"]
    return _by_metric(answers) if answers else {}, warnings if empty else []


def _answer(ttft: Any, gaps: Any, latency: Any, tokens: Any, error: Any) -> _Answer | None:
    """None for a failed request, and for one without a first token: the tool writes 0 for that."""
    first, n = number(ttft), count(tokens)
    if error or not first or first < 0 or not n:
        return None
    known = [gap for gap in map(number, items(gaps)) if gap is not None and gap >= 0]
    return _Answer(first, number(latency), known, n)


def _by_metric(answers: list[_Answer]) -> dict[str, Int64]:
    whole = [(answer, answer.latency if answer.latency else answer.ttft + sum(answer.gaps))
             for answer in answers]
    gaps = nanoseconds((gap for answer in answers for gap in answer.gaps), "s")
    found = {
        "ttft": nanoseconds((answer.ttft for answer in answers), "s"),
        "itl": gaps,
        "e2e": nanoseconds((latency for _, latency in whole), "s"),
        "tpot": nanoseconds(((latency - answer.ttft) / (answer.tokens - 1)
                             for answer, latency in whole if answer.tokens > 1), "s"),
    }
    if all(len(answer.gaps) == answer.tokens - 1 for answer in answers):
        found["tbt"] = gaps  # every message held one token
    return found
