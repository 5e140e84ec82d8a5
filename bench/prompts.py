"""The prompts of a run: built before it begins, as far as memory goes, and let go when they are sent."""

from collections.abc import Sequence

import numpy as np

from bench.run import Int32
from workloads import Plan

TOKENS_AHEAD = 1 << 25
"""Built beforehand at most, 128 MiB; the prompts of longer runs follow as the first ones are sent."""


class Prompts:
    """Of `rows` of `plan`, taken one after the other."""

    def __init__(self, plan: Plan, rows: Sequence[int], *, vocab_size: int, salt: str) -> None:
        self.rows = rows
        self._plan, self._vocab_size, self._salt = plan, vocab_size, salt
        self._built: dict[int, Int32] = {}
        # Building a long prompt takes longer than an event loop may be busy.
        tokens = 0
        for row in rows:
            tokens += int(plan.input_len[row])
            if tokens > TOKENS_AHEAD:
                break
            self._built[row] = self._build(row)

    def take(self, row: int) -> list[int]:
        """The prompt of `row`, once."""
        prompt = self._built.pop(row, None)
        ids: list[int] = (self._build(row) if prompt is None else prompt).tolist()
        return ids

    def _build(self, row: int) -> Int32:
        return np.array(
            self._plan.prompt_token_ids(row, vocab_size=self._vocab_size, salt=self._salt), dtype=np.int32)
