"""The figures of each tenant of a run, as a table."""

from collections.abc import Mapping
from typing import Any

from reports.document import Cell, Table, table
from reports.quantities import NONE, show
from reports.tolerant import integer, mapping, number, text

_COLUMNS = {
    "requests": "num_prompts", "failed": "failed", "median TTFT (ms)": "median_ttft_ms",
    "p99 TTFT (ms)": "p99_ttft_ms", "p99 TBT (ms)": "p99_tbt_ms", "longest gap (ms)": "max_tbt_ms",
    "p99 end to end (ms)": "p99_e2el_ms", "pooled fluidity": "fluidity_index_service",
    "goodput": "goodput_attainment", "token deadline (ms)": "decode_ms",
}
_NARROW = {
    "n": "num_prompts", "failed": "failed", "TTFT p50": "median_ttft_ms", "TTFT p99": "p99_ttft_ms",
    "TBT p99": "p99_tbt_ms", "TBT max": "max_tbt_ms", "fluidity": "fluidity_index_service",
    "goodput": "goodput_attainment",
}


def tenant_table(tenants: Mapping[str, Any]) -> Table:
    """One row a tenant, by the keys of a summary's `tenants`; columns that no tenant has are left out."""
    return _table(tenants, _COLUMNS)


def narrow_tenant_table(tenants: Mapping[str, Any]) -> Table:
    """The same for a terminal: the columns that fit 80 characters; times in ms."""
    return _table(tenants, _NARROW)


def _table(tenants: Mapping[str, Any], columns: Mapping[str, str]) -> Table:
    told = {name: {**mapping(figures), **mapping(mapping(figures).get("deadlines"))}
            for name, figures in tenants.items()}
    shown = {name: key for name, key in columns.items()
             if any(figures.get(key) is not None for figures in told.values())}
    rows: list[list[Cell | str]] = [
        [text(name), *(_cell(figures, key) for key in shown.values())] for name, figures in told.items()]
    return table(("tenant", *shown), rows, numeric=range(1, len(shown) + 1))


def _cell(figures: Mapping[str, Any], key: str) -> Cell:
    value = number(figures.get(key))
    if value is None:
        return Cell(NONE, "muted")
    return Cell(show(value), "bad" if key == "failed" and integer(value) else "")
