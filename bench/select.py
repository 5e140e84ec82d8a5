"""Some of the requests of a run, as a run."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from bench.run import Bool, Int64, Run

Columns = dict[str, Any]
"""Arrays by the name of their field in Run."""
_OFFSETS = "reads_offset"
_OF_READS = "read_"
"""Columns so named have one value a read; every other column but the offsets has one a request."""


def select_rows(run: Run, rows: Bool) -> Run:
    """The requests of `run` that `rows` (shape (requests,)) selects, with their reads.

    Everything that is not of single requests stays as it was: the step log, client health,
    validity, meta. Numbers in `index` stay those of the plan.
    """
    of_requests, of_reads = columns_of(run)
    counts = np.diff(run.reads_offset)
    chosen = np.repeat(rows, counts)
    kept = set(run.index[rows].tolist())
    return replace(
        with_columns(run, {name: column[rows] for name, column in of_requests.items()},
                     {name: column[chosen] for name, column in of_reads.items()}, counts[rows]),
        error={number: text for number, text in run.error.items() if number in kept})


def columns_of(run: Run) -> tuple[Columns, Columns]:
    """The columns of `run`: those with a value a request, and those with a value a read."""
    columns = {field.name: getattr(run, field.name) for field in fields(run)}
    arrays = {name: column for name, column in columns.items()
              if isinstance(column, np.ndarray) and name != _OFFSETS}
    return ({name: column for name, column in arrays.items() if not name.startswith(_OF_READS)},
            {name: column for name, column in arrays.items() if name.startswith(_OF_READS)})


def with_columns(run: Run, of_requests: Columns, of_reads: Columns, reads_each: Int64) -> Run:
    """`run` with all of its columns replaced; request i has `reads_each[i]` reads."""
    offsets = np.concatenate([[0], np.cumsum(reads_each)]).astype(np.int64)
    columns: Columns = {**of_requests, **of_reads, _OFFSETS: offsets}
    return replace(run, **columns)
