"""The figures of each stage of a run whose load changed, as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.document import Cell, Table, table
from reports.quantities import NONE, show
from reports.tolerant import flag, integer, number, text

_FROM_STEADY = "The other figures are of all requests from the first steady stage on: no ramp-up is in them."
_NEVER_STEADY = "No stage is steady: the other figures are of all requests, and describe no one load."


def stage_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    """One row a stage; columns without any figure, as fluidity without deadlines, are left out."""
    return _table(stages, {
        "kind": "kind", "offered\u00a0/s": "offered_rps", "achieved\u00a0/s": "achieved_rps",
        "requests": "num_requests", "failed": "failed", "median TTFT (ms)": "p50_ttft_ms",
        "p99 TTFT (ms)": "p99_ttft_ms", "median TBT (ms)": "p50_tbt_ms", "p99 TBT (ms)": "p99_tbt_ms",
        "longest gap (ms)": "max_tbt_ms", "pooled fluidity": "fluidity_index_service",
        "goodput": "goodput_attainment", "sustainable": "sustainable",
    })


def whole_run_note(stages: Sequence[Mapping[str, Any]]) -> str:
    """Which requests the figures of the whole run are of."""
    return _FROM_STEADY if any(stage.get("kind") == "steady" for stage in stages) else _NEVER_STEADY


def narrow_stage_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    """The same for a terminal: the columns that fit 80 characters; times in ms."""
    return _table(stages, {
        "offered": "offered_rps", "achieved": "achieved_rps", "n": "num_requests", "failed": "failed",
        "TTFT p50": "p50_ttft_ms", "TBT p99": "p99_tbt_ms", "TBT max": "max_tbt_ms",
        "keeps up": "sustainable",
    })


def _table(stages: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    shown = {name: key for name, key in columns.items()
             if any(stage.get(key) is not None for stage in stages)}
    rows: list[list[Cell | str]] = [
        [text(stage.get("name")) or str(position), *(_cell(stage, key) for key in shown.values())]
        for position, stage in enumerate(stages, start=1)
    ]
    words = ("kind", "sustainable")
    numeric = [position for position, key in enumerate(shown.values(), start=1) if key not in words]
    return table(("stage", *shown), rows, numeric=numeric)


def _cell(stage: Mapping[str, Any], key: str) -> Cell:
    value = stage.get(key)
    if key == "kind":
        return Cell(text(value))
    if key == "sustainable":
        kept = flag(value)
        return Cell(NONE, "muted") if kept is None else Cell("yes", "good") if kept else Cell("no", "bad")
    return Cell(show(number(value)), "bad" if key == "failed" and integer(value) else "")
