"""When the tokens of many requests came, as ragged arrays, and the gaps between them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from bench.run import Bool, Float64, Int32, Int64, Run


def running_total(values: Int64 | Int32, offsets: Int64) -> Int64:
    """Cumulative sums that start afresh at every offset; shape of `values`."""
    total: Int64 = np.cumsum(values, dtype=np.int64)
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
    """Time of each read; does not fall within a request."""
    tokens: Int64 | Int32
    """Tokens of each read, at least 1."""
    sent_ns: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """When each request was sent; left out: at 0."""
    single: bool = False
    """Whether it is known that every read held one token: then nobody counts."""

    def __post_init__(self) -> None:
        if not len(self.sent_ns):
            object.__setattr__(self, "sent_ns", np.zeros(len(self), dtype=np.int64))

    @classmethod
    def from_run(cls, run: Run, rows: Bool) -> Self:
        """The reads of the rows of `run` that `rows` selects, all of them sent."""
        single = bool(run.read_tokens.max(initial=1) == 1)
        return cls(run.reads_offset, run.read_ns, run.read_tokens, run.sent_ns, single).select(rows)

    @classmethod
    def from_gaps(cls, gaps_ns: Int64, offsets: Int64) -> Self:
        """One read a token: `gaps_ns` holds each request's time to first token, then its token gaps."""
        ones = np.ones(len(gaps_ns), dtype=np.int64)
        return cls(offsets, running_total(gaps_ns, offsets), ones, single=True)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def select(self, rows: Bool) -> Self:
        """The same for some of the requests."""
        if rows.all():
            return self
        counts = np.diff(self.offsets)
        chosen = np.repeat(rows, counts)
        return type(self)(_offsets(counts[rows]), self.at_ns[chosen], self.tokens[chosen], self.sent_ns[rows],
                          self.single)

    def part(self, start: int, end: int) -> Self:
        """Requests `start` to `end` alone, without copying their reads."""
        low, high = self.offsets[start], self.offsets[end]
        return type(self)(self.offsets[start:end + 1] - low, self.at_ns[low:high], self.tokens[low:high],
                          self.sent_ns[start:end], self.single)

    def num_tokens(self) -> Int64:
        """Tokens of each request, shape (requests,)."""
        if not self.tokens_with_others():
            return np.diff(self.offsets)
        before = np.concatenate([[0], np.cumsum(self.tokens, dtype=np.int64)])[self.offsets]
        return np.diff(before)

    def tokens_before(self) -> Int64:
        """Tokens of all reads before each read, whosever they are, shape (reads,)."""
        if not self.tokens_with_others():
            return np.arange(len(self.tokens))
        before: Int64 = np.cumsum(self.tokens, dtype=np.int64) - self.tokens
        return before

    def message_gaps_ns(self) -> Int64:
        """Gaps between successive reads of one request, in the order of the reads."""
        counts = np.diff(self.offsets)
        gaps = np.empty(len(self.at_ns) - int((counts > 0).sum()), dtype=np.int64)
        filled = 0
        for start, end in self.parts():
            part = self.part(start, end)
            # From one request's last read to the next one's first is no gap.
            within = np.ones(len(part.at_ns), dtype=np.bool_)
            within[part.offsets[:-1][counts[start:end] > 0]] = False
            some = np.diff(part.at_ns)[within[1:]]
            gaps[filled:filled + len(some)] = some
            filled += len(some)
        return gaps

    def longest_message_gap_ns(self) -> Float64:
        """The longest of each request's message gaps, shape (requests,); NaN where there is none."""
        longest = np.full(len(self), np.nan)
        for start, end in self.parts():
            part = self.part(start, end)
            some = np.flatnonzero(np.diff(part.offsets) > 1)
            if len(some):
                gaps = np.diff(part.at_ns)
                between = part.offsets[1:-1] - 1
                # A gap of a request is at least 0: what lies between two of them never is the longest.
                gaps[between[(between >= 0) & (between < len(gaps))]] = -1
                longest[start + some] = np.maximum.reduceat(gaps, part.offsets[some])
        return longest

    def parts(self, reads: int = 1 << 18) -> Iterator[tuple[int, int]]:
        """Ranges of requests with about so many reads each, one after the other: a part's dozen arrays
        stay in the cache."""
        start = 0
        while start < len(self):
            end = int(np.searchsorted(self.offsets, self.offsets[start] + reads, side="right")) - 1
            end = min(max(end, start + 1), len(self))
            yield start, end
            start = end

    def token_gaps_ns(self) -> Int64:
        """Gaps between successive tokens of one request, pooled.

        The k tokens of one read count as `gap, 0, ..., 0`: spreading the gap over them would
        hide a stall. A first token has no gap. The order is not that of the tokens.
        """
        gaps, with_others = self.message_gaps_ns(), self.tokens_with_others()
        return np.concatenate([gaps, np.zeros(with_others, dtype=np.int64)]) if with_others else gaps

    def tokens_with_others(self) -> int:
        """Tokens that came in one read with the one before them."""
        return 0 if self.single else int(self.tokens.sum()) - len(self.tokens)


def _offsets(counts: Int64) -> Int64:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
