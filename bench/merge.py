"""One run from the runs of several workers that shared the requests of one plan."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from bench.recorder import COUNT_SOURCES, RunRecorder
from bench.run import ClientHealth, Int64, Run
from bench.select import Columns, columns_of, select_rows, with_columns
from bench.validity import judge_validity
from engine_adapter.step_log import StepLog
from workloads import Plan


def merge_runs(
    plan: Plan, parts: Sequence[Run], *, cut_short: str = "", meta: Mapping[str, Any] | None = None,
    steps: StepLog | None = None,
) -> Run:
    """The rows of all parts, in the order of the plan.

    Every row of the plan is in exactly one part (`index` says which it is) and all parts have one
    start: else ValueError, as a request was lost or counted twice. Client health is the worst of
    the parts', figure by figure; validity is judged anew, on the whole, with the reason `cut_short`
    or the engine failure of the first part that has one. `meta` and the engine's `steps` are those
    of the whole run; how tokens were counted is taken from the parts.
    """
    _check(plan, parts)
    of_requests, of_reads = (_joined(columns) for columns in zip(*map(columns_of, parts), strict=True))
    order = np.argsort(of_requests["index"])
    counts = np.concatenate([np.diff(part.reads_offset) for part in parts])
    positions = _positions(counts, order)
    failures = [part.engine_failure for part in parts if part.engine_failure is not None]
    run = replace(
        with_columns(parts[0], {name: column[order] for name, column in of_requests.items()},
                     {name: column[positions] for name, column in of_reads.items()}, counts[order]),
        steps=StepLog() if steps is None else steps, client=worst_health([part.client for part in parts]),
        meta=dict(meta or {}) | _token_sources(parts) | _history(parts),
        engine_failure=failures[0] if failures else None,
        error={number: text for part in parts for number, text in part.error.items()},
    )
    return replace(run, validity=judge_validity(run, cut_short=cut_short or "".join(map(str, failures[:1]))))


def unplayed(plan: Plan, rows: Int64, start_ns: int) -> Run:
    """The part of a worker that handed nothing over: all its rows not sent, as far as is known."""
    whole = RunRecorder(plan, start_ns=start_ns).run()
    return select_rows(whole, np.isin(whole.index, rows))


def worst_health(healths: Sequence[ClientHealth]) -> ClientHealth:
    """For each figure the highest that any client had; None where none measured it."""
    worst = {}
    for field in fields(ClientHealth):
        measured = [value for health in healths if (value := getattr(health, field.name)) is not None]
        worst[field.name] = max(measured, default=None)
    return ClientHealth(**worst)


def _check(plan: Plan, parts: Sequence[Run]) -> None:
    rows = np.sort(np.concatenate([part.index for part in parts])) if parts else np.zeros(0)
    if not parts or not np.array_equal(rows, np.arange(len(plan))):
        raise ValueError(f"{len(rows)} rows from {len(parts)} workers are not the {len(plan)} rows of the "
                         f"plan, each once")
    if len({part.start_ns for part in parts}) > 1:
        raise ValueError("the workers did not start their schedule at one time")


def _joined(column_sets: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([columns[name] for columns in column_sets]) for name in column_sets[0]}


def _token_sources(parts: Sequence[Run]) -> dict[str, Any]:
    """As one recorder would have said it: the weakest way of counting, and all if there are several."""
    sources: Counter[str] = Counter()
    for part in parts:
        answered = int((part.num_tokens > 0).sum())
        if (source := part.meta.get("token_count_source")) is not None and answered:
            sources.update(part.meta.get("token_count_sources") or {source: answered})
    if not sources:
        return {}
    also = {"token_count_sources": dict(sources)} if len(sources) > 1 else {}
    return {"token_count_source": max(sources, key=COUNT_SOURCES.index)} | also


def _history(parts: Sequence[Run]) -> dict[str, Any]:
    """What later turns repeated as the answers before them, over all parts."""
    said = {part.meta["history"] for part in parts if "history" in part.meta}
    return {"history": said.pop() if len(said) == 1 else "mixed"} if said else {}


def _positions(counts: Int64, order: Int64) -> Int64:
    """Where the reads of the requests, taken in `order`, lie among the reads in the present order."""
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1][order]
    taken = counts[order]
    before = np.concatenate([[0], np.cumsum(taken)])
    positions: Int64 = np.repeat(begins - before[:-1], taken) + np.arange(before[-1])
    return positions
