"""When requests came, as sums: how uneven the gaps are, and the counts of windows."""

import math

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

WINDOWS_S = (1, 10, 60)
"""Of the index of dispersion."""
_SECOND = 1_000_000_000
_LADDER_S = (1, 10, 60, 600, 3600, 86400)
"""Widths of the windows of `series`; each is a multiple of the one before."""
_MOST_WINDOWS = 600
_AT_ONCE = 1 << 20
_LIMB = 21
"""Bits: the products of two such limbs, added up over as many gaps as are worked on at once, fit 63 bits."""


class ArrivalCounts:
    """Arrival times in order, piece by piece; what is kept does not grow with them."""

    def __init__(self) -> None:
        self.n = 0
        self._first_ns = self._last_ns = 0
        self._squares = self._same_time = 0
        self._windows = {width: _Windows(width * _SECOND) for width in WINDOWS_S}
        self._width_s = _LADDER_S[0]
        self._series = np.zeros(0, np.int64)

    def add(self, arrival_ns: Int64) -> None:
        """Times that never decrease and follow those added before."""
        for begin in range(0, len(arrival_ns), _AT_ONCE):
            self._add(arrival_ns[begin:begin + _AT_ONCE])

    def _add(self, arrival_ns: Int64) -> None:
        if not self.n:
            self._first_ns = self._last_ns = int(arrival_ns[0])
            self._same_time = -1   # the gap before the first is none
        gaps = np.diff(arrival_ns, prepend=self._last_ns)
        self._squares += _sum_of_squares(gaps)
        self._same_time += int((gaps == 0).sum())
        self.n += len(arrival_ns)
        self._last_ns = int(arrival_ns[-1])
        since_first = arrival_ns - self._first_ns
        for windows in self._windows.values():
            windows.add(since_first)
        self._add_to_series(since_first)

    @property
    def span_ns(self) -> int:
        """From the first to the last arrival."""
        return self._last_ns - self._first_ns

    @property
    def rate_rps(self) -> float | None:
        """Arrivals over the span; None where all came at once."""
        return self.n / (self.span_ns / _SECOND) if self.span_ns else None

    @property
    def gap_cv(self) -> float | None:
        """Standard deviation over mean of the gaps (of all of them: divided by their number); a Poisson
        process has 1. None below two gaps, or where all came at once."""
        gaps = self.n - 1
        if gaps < 2 or not self.span_ns:
            return None
        return math.sqrt(gaps * self._squares - self.span_ns**2) / self.span_ns

    @property
    def same_time_share(self) -> float | None:
        """Share of the gaps that are 0; None without gaps."""
        return self._same_time / (self.n - 1) if self.n > 1 else None

    def dispersion(self, window_s: int, *, whole: bool = False) -> float | None:
        """Variance over mean of the arrivals in windows of 1, 10 or 60 s from the first on; a Poisson process
        has 1. None where the span is shorter than a window.

        The window of the last arrival counts, though the trace may end within it: so the published figures
        are reproduced. `whole` leaves it out, which matters where there are few; None then below two.
        """
        windows = self._windows[window_s]
        count, n, squares = windows.number + 1, self.n, windows.squares + windows.open**2
        if whole:
            count, n, squares = windows.number, self.n - windows.open, windows.squares
        if count < 2 or not n:
            return None
        return (count * squares - n**2) / (count * n)

    def series(self) -> tuple[int, Int64]:
        """The width of a window in seconds, and the arrivals in each, of at most some hundreds of windows
        (years in days); the last window is as long as the others, though the trace may end within it."""
        return self._width_s, self._series

    def _add_to_series(self, since_first: Int64) -> None:
        last = int(since_first[-1]) // _SECOND
        wider = next((w for w in _LADDER_S if last // w < _MOST_WINDOWS), _LADDER_S[-1])
        if wider > self._width_s:
            self._series = _coarser(self._series, wider // self._width_s)
            self._width_s = wider
        counts = np.bincount(since_first // (self._width_s * _SECOND), minlength=len(self._series))
        counts[:len(self._series)] += self._series
        self._series = counts


class _Windows:
    """Counts of windows after one another: the sum of their squares, and the window that is not full yet."""

    def __init__(self, width_ns: int) -> None:
        self._width_ns = width_ns
        self.number = 0
        self.open = 0
        self.squares = 0

    def add(self, since_first: Int64) -> None:
        numbers = since_first // self._width_ns
        starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
        counts = np.diff(starts, append=len(numbers))
        if int(numbers[0]) == self.number:
            counts[0] += self.open
        else:
            self.squares += self.open**2
        self.number, self.open = int(numbers[-1]), int(counts[-1])
        self.squares += int(counts[:-1] @ counts[:-1])


def _coarser(counts: Int64, factor: int) -> Int64:
    padded = np.zeros(-(-len(counts) // factor) * factor, np.int64)
    padded[:len(counts)] = counts
    coarser: Int64 = padded.reshape(-1, factor).sum(axis=1)
    return coarser


def _sum_of_squares(gaps: Int64) -> int:
    """Exact, where squares of nanoseconds would overflow 64 bits."""
    mask = (1 << _LIMB) - 1
    limbs = [gaps & mask, (gaps >> _LIMB) & mask, gaps >> (2 * _LIMB)]
    return sum(int(one @ other) << (_LIMB * (i + j))
               for i, one in enumerate(limbs) for j, other in enumerate(limbs))
