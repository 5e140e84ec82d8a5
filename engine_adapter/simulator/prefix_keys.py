"""From the token ids of prompts to the prefix keys of a simulated load."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

_DIGEST_BYTES = 16


class PrefixKeys:
    """Numbers for the full KV blocks of prompts: equal numbers for equal blocks behind equal blocks."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._key_of: dict[bytes, int] = {}
        self._next = 0

    def of(self, prompt_token_ids: Sequence[int]) -> list[int]:
        """The keys of a prompt, one for each of its full blocks."""
        size, blocks = self._block_size, len(prompt_token_ids) // self._block_size
        ids = np.asarray(prompt_token_ids[:blocks * size], dtype="<i8").reshape(blocks, size)
        keys, before = [], b""
        for block in ids:
            before = blake2b(before + block.tobytes(), digest_size=_DIGEST_BYTES).digest()
            known = self._key_of.setdefault(before, self._next)
            self._next += known == self._next
            keys.append(known)
        return keys

    def forget(self) -> None:
        """Give every later prompt keys of its own: nothing is cached any more."""
        self._key_of.clear()
