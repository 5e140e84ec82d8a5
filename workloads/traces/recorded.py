"""The lengths of a trace as a distribution: what the rest of the program asks of any workload."""

import hashlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import PrivateAttr

from workloads.lengths import Distribution, Float64, Int64


class Recorded(Distribution, frozen=True):
    """Lengths that were recorded, each as likely as it was frequent; made by `of`."""

    kind: Literal["recorded"] = "recorded"
    _table: list[Int64] = PrivateAttr(default_factory=list)
    """The different lengths, ascending, and how many are at most so long."""

    @classmethod
    def of(cls, lengths: npt.NDArray[np.integer]) -> "Recorded":
        """Of at least one length in tokens."""
        recorded = cls()
        values, counts = np.unique(lengths, return_counts=True)
        recorded._table.extend((values.astype(np.int64), np.cumsum(counts, dtype=np.int64)))
        return recorded

    def quantile(self, probabilities: Float64) -> Int64:
        values, ends = self._table
        ranks = np.minimum((probabilities * ends[-1]).astype(np.int64), ends[-1] - 1)
        lengths: Int64 = values[np.searchsorted(ends, ranks, side="right")]
        return lengths

    def bounds(self) -> tuple[int, int]:
        return int(self._table[0][0]), int(self._table[0][-1])

    def mean(self) -> float:
        values, ends = self._table
        return float((values * np.diff(ends, prepend=0)).sum() / ends[-1])

    def content(self) -> dict[str, Any]:
        data = np.stack(self._table).astype("<i8").tobytes()
        return {"kind": self.kind, "sha256": hashlib.sha256(data).hexdigest()}

    def describe(self) -> str:
        low, high = self.bounds()
        median = int(self.quantile(np.array([0.5]))[0])
        return f"recorded, median {median}, {low}..{high} tokens"
