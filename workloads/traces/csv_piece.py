"""Some rows of a CSV file: what its columns say, and which rows say something else."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from workloads.errors import UsageError
from workloads.traces import csv_cells
from workloads.traces.csv_cells import Converted
from workloads.traces.formats import BadRows
from workloads.traces.opening import CUT_OFF
from workloads.traces.options import TimeUnit
from workloads.traces.raw_rows import Bool, Int64, RawRows
from workloads.traces.sieve import rows_of
from workloads.traces.tenant_numbers import TenantNumbers


class CsvPiece:
    """Some rows of a file. What its columns are asked for marks the rows that have none of the kind; they are
    reported and left out by `judged`."""

    def __init__(self, line: Int64, cells: Mapping[str, Any], names: Mapping[str, str],
                 faults: dict[int, str], last_line: int | None) -> None:
        self.line = line
        self._cells, self._names = cells, names
        self._faults = faults          # by line
        self._last_line = last_line    # of a file that ends without a line end

    def __len__(self) -> int:
        return len(self.line)

    def has(self, column: str) -> bool:
        """Whether the file has this column."""
        return column in self._cells

    def whole(self, column: str, blank: str | None = None) -> Int64:
        """Whole numbers; `blank` is what an empty cell means."""
        return self._numbers(column, csv_cells.whole_numbers(self._filled(column, blank)),
                             "not a whole number")

    def exact_ns(self, column: str, unit: TimeUnit, blank: str | None = None) -> Int64:
        """Numbers of `unit` as nanoseconds."""
        return self._numbers(column, csv_cells.exact_ns(self._filled(column, blank), unit),
                             f"not a time in {unit} (or beyond the year 2262: another unit?)")

    def wall_ns(self, column: str) -> Int64:
        """Dates and times as nanoseconds since 1970."""
        return self._numbers(column, csv_cells.wall_ns(self._cells[column]),
                             "not a date and time such as 2023-11-16 18:17:03.9799600")

    def keys(self, column: str) -> Int64:
        """A key for each cell, -1 for none; see csv_cells.keys."""
        return csv_cells.keys(self._cells[column])

    def first_text(self, column: str) -> str:
        """Of the first row; empty where there is none."""
        return str(self._cells[column][0].as_py()) if len(self) else ""

    def tenants(self, column: str, numbers: TenantNumbers, bad: BadRows) -> Int64 | None:
        """The number of each row's tenant, None for a file without the column. UsageError where there are
        too many."""
        if not self.has(column):
            return None
        encoded = self._cells[column].dictionary_encode()
        try:
            by_place = np.array([numbers.number(text.strip()) for text in encoded.dictionary.to_pylist()],
                                dtype=np.int64)
        except ValueError as error:
            raise UsageError(f"{bad.path}: {error}") from error
        found: Int64 = by_place[encoded.indices.to_numpy()] if len(by_place) else np.zeros(0, np.int64)
        return found

    def refuse(self, rows: Bool, why: str) -> None:
        """Marks rows as ones that cannot be used."""
        for line in self.line[rows].tolist():
            self._faults.setdefault(line, why)

    def judged(self, raw: RawRows, bad: BadRows) -> Iterator[RawRows]:
        """The rows without those that cannot be used, which are reported to `bad`; where it refuses them, the
        rows before the first one are handed over before."""
        if not self._faults:
            yield raw
            return
        faults = sorted(self._faults.items())
        before = np.searchsorted(self.line, faults[0][0])
        if not bad.skip:
            yield rows_of(raw, slice(0, int(before)))
        for line, why in faults:
            bad.add(line, why + (CUT_OFF if line == self._last_line else ""))
        yield rows_of(raw, np.flatnonzero(~np.isin(self.line, [line for line, _ in faults])))

    def _filled(self, column: str, blank: str | None) -> Any:
        import pyarrow.compute as pc

        cells = self._cells[column]
        return cells if blank is None else pc.if_else(pc.equal(cells, ""), blank, cells)

    def _numbers(self, column: str, converted: Converted, why: str) -> Int64:
        values, bad = converted
        if bad.any():
            for row in np.flatnonzero(bad).tolist():
                text = self._cells[column][row].as_py()
                self._faults.setdefault(int(self.line[row]), f"{self._names[column]} is {text[:40]!r}, {why}")
        return values
