"""Which tool wrote a result file, told by its content."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.foreign.aiperf import is_aiperf, is_aiperf_record, read_aiperf, records_beside, summary_beside
from bench.foreign.guidellm import is_guidellm, read_guidellm
from bench.foreign.imported import ImportedResult
from bench.foreign.own_file import is_ours, read_ours
from bench.foreign.reading import documents
from bench.foreign.vllm_serve import is_vllm, read_vllm
from workloads.errors import EvidenceError

KNOWN = ("vllm bench serve (--save-result), GuideLLM (benchmarks.json), AIPerf (profile_export_aiperf.json), "
         "tune bench (--save-result)")


def load_results(path: str | Path) -> tuple[ImportedResult, ...]:
    """The results in a file, in its order: GuideLLM and `--append-result` write several into one.

    UsageError when there is no such file, EvidenceError when no known tool wrote it.
    """
    source = Path(path)
    found = _read(documents(source), source)
    if not found:
        raise EvidenceError(f"{source} holds no result of a known tool: {KNOWN}")
    return found


def load_result(path: str | Path, number: int | None = None) -> ImportedResult:
    """The result in a file, or its `number`-th, counted from 1; see `load_results`.

    EvidenceError when there are several and `number` is None, or when there are fewer.
    """
    found = load_results(path)
    if number is None and len(found) > 1:
        raise EvidenceError(f"{path} holds {len(found)} results: say which one, 1 to {len(found)}")
    if number is not None and not 1 <= number <= len(found):
        raise EvidenceError(f"{path} holds {len(found)} results, there is no number {number}")
    return found[(number or 1) - 1]


def _read(found: Sequence[Mapping[str, Any]], source: Path) -> tuple[ImportedResult, ...]:
    if found and all(is_aiperf_record(document) for document in found):
        summary = summary_beside(source)
        beside = documents(summary) if summary.is_file() else [{}]
        return (read_aiperf(beside[0] if is_aiperf(beside[0]) else {}, found, source),)
    results: list[ImportedResult] = []
    for document in found:
        if is_guidellm(document):
            results += read_guidellm(document, source)
        elif is_ours(document):
            results.append(read_ours(document, source))
        elif is_vllm(document):
            results.append(read_vllm(document, source))
        elif is_aiperf(document):
            results.append(read_aiperf(document, _records_of(source), source))
        else:
            raise EvidenceError(f"{source} was not written by a known tool: {KNOWN}")
    return tuple(results)


def _records_of(summary: Path) -> list[Mapping[str, Any]]:
    file = records_beside(summary)
    return [item for item in documents(file) if is_aiperf_record(item)] if file.is_file() else []
