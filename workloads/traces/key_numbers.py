"""Small numbers for many keys: how conversations and groups are numbered closely from 0."""

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


class KeyNumbers:
    """A number for each 64-bit key, from 0 in order of first appearance. Takes 16 bytes a key, so that the
    conversations of files of several GB fit."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.int64)      # ascending
        self._numbers = np.zeros(0, np.int64)   # of each key

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, keys: Int64) -> Int64:
        """The number of each key; new ones get the next numbers."""
        if not len(keys):
            return np.zeros(0, np.int64)
        distinct, first, place = np.unique(keys, return_index=True, return_inverse=True)
        at = np.searchsorted(self._keys, distinct)
        held = np.zeros(len(distinct), np.bool_)
        inside = at < len(self._keys)
        held[inside] = self._keys[at[inside]] == distinct[inside]
        numbers = np.empty(len(distinct), np.int64)
        numbers[held] = self._numbers[at[held]]
        new = np.flatnonzero(~held)
        numbers[new[np.argsort(first[new])]] = len(self._keys) + np.arange(len(new))
        self._keys = np.insert(self._keys, at[new], distinct[new])
        self._numbers = np.insert(self._numbers, at[new], numbers[new])
        found: Int64 = numbers[place]
        return found
