"""How often each length occurs: all that exact percentiles need, whatever the number of rows."""

from typing import TypedDict

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

_PENDING = 1 << 20
"""Values that wait before they are merged: this bounds the memory, and merging often costs time."""


class LengthFigures(TypedDict):
    """Of all values; percentiles are linear-interpolated as numpy's."""

    mean: float
    min: int
    p50: float
    p90: float
    p95: float
    p99: float
    max: int


class LengthCounts:
    """Counts of whole numbers that come in pieces. It grows with the distinct values, not with the rows."""

    def __init__(self) -> None:
        self._values = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._waiting: list[tuple[Int64, Int64]] = []
        self._num_waiting = 0

    def add(self, values: npt.NDArray[np.integer]) -> None:
        """Count these too."""
        distinct, counts = np.unique(values, return_counts=True)
        self._waiting.append((distinct.astype(np.int64), counts))
        self._num_waiting += len(distinct)
        if self._num_waiting > _PENDING:
            self._merge()

    @property
    def values(self) -> Int64:
        """The distinct values, ascending."""
        self._merge()
        return self._values

    @property
    def counts(self) -> Int64:
        """How often each of `values` came."""
        self._merge()
        return self._counts

    @property
    def n(self) -> int:
        """How many values were added."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """The sum of all values."""
        return int(self.values @ self.counts)

    @property
    def mean(self) -> float | None:
        """None without values."""
        return self.total / self.n if self.n else None

    def percentile(self, q: float) -> float | None:
        """Exactly what np.percentile says of all values, `q` in 0..100; None without values."""
        if not self.n:
            return None
        place = (self.n - 1) * np.true_divide(q, 100)
        ends = np.cumsum(self.counts)
        below = int(np.floor(place))
        ranks = [below, min(below + 1, self.n - 1)]
        low, high = self.values[np.searchsorted(ends, ranks, side="right")].tolist()
        part = float(place - below)
        # From the nearer end, as numpy does, so that rounding is the same.
        return float(high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part)

    def above(self, limit: int) -> int:
        """How many values are greater than `limit`."""
        return int(self.counts[np.searchsorted(self.values, limit, side="right"):].sum())

    def histogram(self, edges: Int64) -> Int64:
        """Values in `edges[i] <= value < edges[i + 1]`, shape (len(edges) - 1,)."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return np.diff(ends[np.searchsorted(self.values, edges, side="left")])

    def figures(self) -> LengthFigures | None:
        """None without values."""
        p50, p90, p95, p99 = (self.percentile(q) for q in (50, 90, 95, 99))
        mean = self.mean
        if mean is None or p50 is None or p90 is None or p95 is None or p99 is None:
            return None
        return {"mean": mean, "min": int(self.values[0]), "p50": p50, "p90": p90, "p95": p95, "p99": p99,
                "max": int(self.values[-1])}

    def _merge(self) -> None:
        if not self._waiting:
            return
        pieces = [(self._values, self._counts), *self._waiting]
        self._waiting, self._num_waiting = [], 0
        counts = np.concatenate([counts for _, counts in pieces])
        self._values, number = np.unique(np.concatenate([values for values, _ in pieces]),
                                         return_inverse=True)
        self._counts = np.zeros(len(self._values), np.int64)
        np.add.at(self._counts, number, counts)
