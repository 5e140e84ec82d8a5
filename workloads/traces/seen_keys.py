"""Which keys of blocks came before: a set of many millions of 64-bit numbers."""

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_SPARSE = 8
"""A byte for each possible key is taken up to so many possible keys for each that came: more would be
larger than a sorted list."""
_SMALL = 1 << 16


class SeenKeys:
    """Keys in one byte for each number up to the largest, where they are numbered closely as in published
    traces, else in sorted lists of 8 bytes a key."""

    def __init__(self) -> None:
        self._came = 0
        self._dense: Bool | None = np.zeros(_SMALL, np.bool_)
        self._runs: list[Int64] = []

    @property
    def num_bytes(self) -> int:
        """What the keys take in memory."""
        return sum(run.nbytes for run in self._runs) if self._dense is None else self._dense.nbytes

    def add(self, keys: Int64, row: Int64) -> Bool:
        """Whether each key came before in a row with a smaller number. `row` never decreases, also from call
        to call, and no row is in two calls."""
        if not len(keys):
            return np.zeros(0, np.bool_)
        distinct, number = _distinct(keys)
        first_row = np.empty(len(distinct), np.int64)
        first_row[number[::-1]] = row[::-1]   # of equal places the last one written stays
        self._came += len(keys)
        self._make_room(int(distinct[0]), int(distinct[-1]))
        old = self._held(distinct)
        self._remember(distinct, old)
        came_before: Bool = old[number] | (first_row[number] < row)
        return came_before

    def _make_room(self, least: int, largest: int) -> None:
        if self._dense is None or (least >= 0 and largest < len(self._dense)):
            return
        if least >= 0 and largest < _SPARSE * self._came:
            grown = np.zeros(max(2 * len(self._dense), largest + 1), np.bool_)
            grown[:len(self._dense)] = self._dense
            self._dense = grown
        else:
            self._runs, self._dense = [np.flatnonzero(self._dense)], None

    def _held(self, distinct: Int64) -> Bool:
        if self._dense is not None:
            return self._dense[distinct]
        held = np.zeros(len(distinct), np.bool_)
        for run in filter(len, self._runs):
            place = np.minimum(np.searchsorted(run, distinct), len(run) - 1)
            held |= run[place] == distinct
        return held

    def _remember(self, distinct: Int64, old: Bool) -> None:
        if self._dense is not None:
            self._dense[distinct] = True
            return
        self._runs.append(distinct[~old])
        # Lists of like size are merged, so that there are few and each key is moved few times.
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)


def _distinct(keys: Int64) -> tuple[Int64, Int64]:
    """The distinct keys, ascending, and for each key its place among them."""
    least, largest = int(keys.min()), int(keys.max())
    if largest - least >= _SPARSE * len(keys) + _SMALL:
        return np.unique(keys, return_inverse=True)
    # Without sorting, as keys that come together are mostly numbered closely.
    offset = keys - least
    present = np.zeros(largest - least + 1, np.bool_)
    present[offset] = True
    return np.flatnonzero(present) + least, (np.cumsum(present) - 1)[offset]
