"""From recorded lengths to a small table of quantiles."""

import math

import numpy as np
import numpy.typing as npt

from workloads.length_file import MAX_TOKENS
from workloads.lengths import Fixed, Quantiles

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

_ERROR = 0.01
"""Relative error of a length at which no more points are added."""
_POPULAR = 0.005
"""A length of so large a share of the rows keeps its share exactly; other lengths are rounded."""
_FEWEST = 3
"""Popular lengths, and the stretches between points, have at least so many rows."""
_STRETCH = 0.0005
"""And the stretches at least this share of the rows."""
_DIGITS = 3
_END_DIGITS = 2
_MEDIAN_APART = 0.45   # of a handful of requests the median is told, and no more
_ANCHORS = (0.5, 0.9, 0.95, 0.99)
"""Percentiles that people compare have points in any case."""
_AT_DIGITS = 5


def length_table(lengths: npt.NDArray[np.integer], *, points: int, longest: int | None = None
                 ) -> Quantiles | Fixed:
    """Quantiles of `lengths` (not empty) by about `points` points or fewer.

    Where the largest relative error is the next point goes, until none is above 1 %. Lengths of few rows
    are not told: between points lie at least three rows, points are rounded to three digits, the shortest
    and the longest length outwards to two. No length above `longest` can be drawn.
    """
    values, counts = np.unique(lengths.astype(np.int64), return_counts=True)
    if longest is not None:
        counts = np.append(counts[values < longest], counts[values >= longest].sum())
        values = np.append(values[values < longest], longest)
        values, counts = values[counts > 0], counts[counts > 0]
    if len(values) == 1:
        return Fixed(tokens=int(values[0]))
    top = min(longest or MAX_TOKENS, MAX_TOKENS)
    table = _Table(values, counts, top)
    for share in _ANCHORS:
        table.anchor(share)
    while table.size < points and table.refine():
        pass
    return table.quantiles()


class _Table:
    """A growing set of points of the quantile function, and how far the lines between them are off."""

    def __init__(self, values: Int64, counts: Int64, top: int) -> None:
        rows = int(counts.sum())
        self._values, self._shares = values, counts / rows
        self._popular = (counts >= _FEWEST) & (self._shares >= _POPULAR)
        self._apart = min(max(_STRETCH, _FEWEST / rows), _MEDIAN_APART)
        self._ends = np.cumsum(counts) / rows
        self._middles = self._ends - self._shares / 2
        low, high = _outwards(int(values[0]), down=True), min(_outwards(int(values[-1]), down=False), top)
        if self._popular[0]:
            low = int(values[0])
        if self._popular[-1]:
            high = int(values[-1])
        self._at: list[float] = [0.0, 1.0]
        self._tokens: list[float] = [low - 0.5, high + 0.5]
        self._taken = np.zeros(len(values), dtype=bool)

    @property
    def size(self) -> int:
        return len(self._at)

    def refine(self) -> bool:
        """Adds the length that is furthest off; False where all are near enough."""
        drawn = np.interp(self._middles, self._at, self._tokens)
        errors = np.maximum(np.abs(drawn - self._values) - 0.5, 0) / self._values
        errors[self._taken | self._too_near()] = 0
        worst = int(np.argmax(errors))
        if errors[worst] <= _ERROR:
            return False
        self._take(worst)
        return True

    def anchor(self, share: float) -> None:
        """Adds the length that this share of the rows is below, unless it would tell too few rows."""
        place = int(np.searchsorted(self._ends, share))
        if not self._taken[place] and not self._too_near()[place]:
            self._take(place)

    def _too_near(self) -> npt.NDArray[np.bool_]:
        """Lengths between which and the next point lie too few rows."""
        at = np.array(self._at)
        right = np.clip(np.searchsorted(at, self._middles), 1, len(at) - 1)
        nearest = np.minimum(self._middles - at[right - 1], at[right] - self._middles)
        return np.asarray(~self._popular & (nearest < self._apart))

    def _take(self, place: int) -> None:
        self._taken[place] = True
        value, share = int(self._values[place]), float(self._shares[place])
        if self._popular[place]:
            self._insert(float(self._ends[place]) - share, value - 0.5)
            self._insert(float(self._ends[place]), value + 0.5)
        else:
            self._insert(float(self._middles[place]), float(_rounded(value, _DIGITS)))

    def _insert(self, at: float, tokens: float) -> None:
        at = round(min(max(at, 0.0), 1.0), _AT_DIGITS)
        place = int(np.searchsorted(self._at, at, side="right"))
        while place > 0 and self._at[place - 1] == at and self._tokens[place - 1] > tokens:
            place -= 1
        if (at, tokens) in zip(self._at[max(place - 1, 0):place], self._tokens[max(place - 1, 0):place],
                               strict=True):
            return
        # Rounding may carry a point past its neighbours.
        low = self._tokens[place - 1] if place else self._tokens[0]
        high = self._tokens[place] if place < len(self._tokens) else self._tokens[-1]
        self._at.insert(place, at)
        self._tokens.insert(place, min(max(tokens, low), high))

    def quantiles(self) -> Quantiles:
        return Quantiles(at=tuple(self._at), tokens=tuple(self._tokens))


def _rounded(value: int, digits: int) -> int:
    return round(value, digits - len(str(value))) if value >= 10**digits else value


def _outwards(value: int, *, down: bool) -> int:
    scale = int(10 ** max(len(str(value)) - _END_DIGITS, 0))
    return max(1, value // scale * scale) if down else math.ceil(value / scale) * scale
