"""When the tokens of many requests came, as ragged arrays, and the gaps between them."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from bench.run import Bool, Int64, Run


def running_total(values: Int64, offsets: Int64) -> Int64:
    """Cumulative sums that start afresh at every offset; shape of `values`."""
    total: Int64 = np.cumsum(values)
    before = np.concatenate([[0], total])[offsets[:-1]]
    afresh: Int64 = total - np.repeat(before, np.diff(offsets))
    return afresh


@dataclass(frozen=True, slots=True, eq=False)
class TokenArrivals:
    """The token-bearing reads of many requests, one after the other.

    The reads of request k are `[offsets[k]:offsets[k + 1]]`; a request without reads is allowed.
    """

    offsets: Int64
    at_ns: Int64
    """Time of each read since its request was sent; does not fall within a request."""
    tokens: Int64
    """Tokens of each read, at least 1."""

    @classmethod
    def from_run(cls, run: Run, rows: Bool) -> Self:
        """The reads of the rows of `run` that `rows` selects, all of them sent."""
        counts = np.diff(run.reads_offset)
        chosen = np.repeat(rows, counts)
        at_ns = run.read_ns[chosen] - np.repeat(run.sent_ns[rows], counts[rows])
        return cls(_offsets(counts[rows]), at_ns, run.read_tokens[chosen].astype(np.int64))

    @classmethod
    def from_gaps(cls, gaps_ns: Int64, offsets: Int64) -> Self:
        """One read a token: `gaps_ns` holds each request's time to first token, then its token gaps."""
        return cls(offsets, running_total(gaps_ns, offsets), np.ones(len(gaps_ns), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def select(self, rows: Bool) -> Self:
        """The same for some of the requests."""
        counts = np.diff(self.offsets)
        chosen = np.repeat(rows, counts)
        return type(self)(_offsets(counts[rows]), self.at_ns[chosen], self.tokens[chosen])

    def num_tokens(self) -> Int64:
        """Tokens of each request, shape (requests,)."""
        before = np.concatenate([[0], np.cumsum(self.tokens)])[self.offsets]
        return np.diff(before)

    def token_index(self) -> Int64:
        """Position of each read's first token within its request, shape (reads,)."""
        return running_total(self.tokens, self.offsets) - self.tokens

    def message_gaps_ns(self) -> tuple[Int64, Int64]:
        """Gaps between successive reads of one request, and the request each belongs to."""
        counts = np.diff(self.offsets)
        owner = np.repeat(np.arange(len(self)), counts)
        within = owner[1:] == owner[:-1]
        return np.diff(self.at_ns)[within], owner[1:][within]

    def token_gaps_ns(self) -> Int64:
        """Gaps between successive tokens of one request, pooled.

        The k tokens of one read count as `gap, 0, ..., 0`: spreading the gap over them would
        hide a stall. A first token has no gap. The order is not that of the tokens.
        """
        gaps, _ = self.message_gaps_ns()
        with_others = int(self.tokens.sum()) - len(self.tokens)
        return np.concatenate([gaps, np.zeros(with_others, dtype=np.int64)])


def _offsets(counts: Int64) -> Int64:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
