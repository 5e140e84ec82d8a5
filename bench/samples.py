"""Statistics of a set of samples, and the refusal to state what too few of them cannot say."""

import math
from fractions import Fraction

import numpy as np

from bench.catalog import percentile_of
from bench.run import Float64, Int64


def needed_for(quantile: Fraction) -> int:
    """Fewest samples for a quantile: one must lie beyond it. p99 needs 100, p10 needs 10, the median 1."""
    if quantile == Fraction(1, 2):
        return 1
    return math.ceil(1 / min(quantile, 1 - quantile))


_PIECE = 1 << 20


class Samples:
    """Samples of one metric, sorted once. Percentiles are linear between samples, as numpy's."""

    def __init__(self, values: Int64 | Float64, *, own: bool = False) -> None:
        """`own`: nobody else has `values`, which may then be sorted where they are."""
        self._sorted = values if own else values.copy()
        self._sorted.sort()

    def __len__(self) -> int:
        return len(self._sorted)

    def statistic(self, stat: str) -> tuple[float | None, str]:
        """Value of `mean`, `median`, `min`, `max`, `std` (population) or `pNN`; if refused, None and why."""
        n = len(self._sorted)
        quantile = percentile_of(stat)
        if quantile is not None and 0 < n < (needed := needed_for(quantile)):
            return None, f"{stat} needs at least {needed} samples, there are {n}"
        if not n:
            return None, "no samples"
        if quantile is not None:
            return self._at(quantile), ""
        values = self._sorted
        if stat == "std":
            return self._std(), ""
        simple = {"mean": values.mean(), "min": values[0], "max": values[-1]}
        return float(simple[stat]), ""

    def _std(self) -> float:
        # In pieces: the differences of millions of samples, all at once, are as large as a run.
        mean, total = self._sorted.mean(), 0.0
        differences = np.empty(min(len(self._sorted), _PIECE))
        for begin in range(0, len(self._sorted), _PIECE):
            piece = self._sorted[begin:begin + _PIECE]
            difference = differences[:len(piece)]
            difference[:] = piece  # converted first, which is quicker than while subtracting
            difference -= mean
            total += float(difference @ difference)
        return math.sqrt(total / len(self._sorted))

    def _at(self, quantile: Fraction) -> float:
        position = (len(self._sorted) - 1) * quantile
        below = math.floor(position)
        low, high = float(self._sorted[below]), float(self._sorted[math.ceil(position)])
        return low + (high - low) * float(position - below)
