"""The fluidity-index (Etalon, arXiv 2407.07000) and the fluid token rate, in integer nanoseconds.

A reader takes one token every Dd. The first is due Dp after the request was sent, then one more
deadline passes every Dd. Early tokens build slack that later ones spend. When a deadline is
missed, each further deadline that passes before the token comes is a miss too; then deadlines
restart at the actual arrival.

The recurrence has a closed form. Write u[i] = t[i] - i * Dd for the token that came t[i] after
the request was sent. After a restart at token j, token i is late exactly when u[i] > u[j]; before
any restart, when u[i] > Dp. So the reference of token i is the running maximum of Dp and
u[0..i-1], a token is late when it exceeds that maximum, by the difference, and all requests are
judged in a few passes over flat arrays, whether they are many and short or few and long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from bench.run import Bool, Float64, Int64
from bench.token_times import TokenArrivals

RATE_FLUIDITY = Fraction(9, 10)
RATE_SHARE = Fraction(99, 100)
"""The fluid token rate: 99 % of the requests reach a fluidity of 0.9 (arXiv 2407.07000, section 4)."""

_SPAN_LIMIT = 1 << 62
_SAMPLE = 1000
"""Requests of a first, rough look for the fluid token rate of many more."""
_LOOKS_AROUND = (0.97, 1.03, 0.9, 1.1, 0.8)
"""Shares of what that found, the closest first, and of two the shorter: where too few requests pass, all
those that do are settled."""


class FluidityResult(NamedTuple):
    """Deadlines of one request, those missed, and 1 - missed / total (None without a token)."""

    total: int
    missed: int
    index: float | None  # type: ignore[assignment]  # the definition's word, over tuple.index


@dataclass(frozen=True, slots=True, eq=False)
class FluidityOfRequests:
    """One entry per request, all int64. A late token is one stall, its lateness the stall's length."""

    total: Int64
    missed: Int64
    late_tokens: Int64
    late_ns: Int64
    """Lateness summed over the late tokens."""
    longest_ns: Int64

    def index(self) -> Float64:
        """1 - missed / total of each request, shape (requests,); NaN for a request without a token."""
        with np.errstate(invalid="ignore"):
            kept: Float64 = (self.total - self.missed) / self.total
        return kept

    def pooled(self) -> float | None:
        """1 - missed / total over all requests; None without a token."""
        total = int(self.total.sum())
        return 1 - int(self.missed.sum()) / total if total else None


def fluidity_index(
    gaps_ns: Sequence[int] | Int64, prefill_deadline_ns: int, decode_deadline_ns: int
) -> FluidityResult:
    """Fluidity of one request from its time to first token followed by its token gaps.

    A token exactly on its deadline is in time. Without gaps total is 0 and the index None: the
    request failed. Refuses what is no whole number of nanoseconds (TypeError), negative gaps and
    deadlines, and a decode deadline of 0 (ValueError).
    """
    gaps = np.asarray(gaps_ns)
    if len(gaps) and gaps.dtype.kind not in "iu":
        raise TypeError(f"gaps are whole nanoseconds; got {gaps.dtype}")
    gaps = gaps.astype(np.int64)
    if (gaps < 0).any():
        raise ValueError("gaps must not be negative")
    arrivals = TokenArrivals.from_gaps(gaps, np.array([0, len(gaps)], dtype=np.int64))
    found = fluidity_of_requests(arrivals, prefill_deadline_ns, decode_deadline_ns)
    total, missed = int(found.total[0]), int(found.missed[0])
    return FluidityResult(total, missed, 1 - missed / total if total else None)


def fluidity_of_requests(
    arrivals: TokenArrivals, prefill_deadline_ns: Int64 | int, decode_deadline_ns: int
) -> FluidityOfRequests:
    """Fluidity and deadline stalls of every request; `prefill_deadline_ns` is one figure or one a request."""
    requests = len(arrivals)
    first_due = np.broadcast_to(np.asarray(prefill_deadline_ns, dtype=np.int64), (requests,))
    num_tokens = arrivals.num_tokens()
    if decode_deadline_ns < 1 or (first_due < 0).any():
        raise ValueError("the decode deadline is at least 1 ns, the prefill deadline at least 0")
    if decode_deadline_ns * int(num_tokens.max(initial=0)) >= _SPAN_LIMIT:
        raise ValueError(f"a decode deadline of {decode_deadline_ns} ns is too long to count in nanoseconds")
    missed, late_tokens, total_late, longest = (np.zeros(requests, dtype=np.int64) for _ in range(4))
    for start, end in arrivals.parts():
        part = arrivals.part(start, end)
        late, late_ns = _late_reads(part, first_due[start:end], decode_deadline_ns)
        owner = start + np.searchsorted(part.offsets, late, side="right") - 1
        np.add.at(missed, owner, late_ns // decode_deadline_ns + 1)  # that deadline, for a first token too
        np.add.at(late_tokens, owner, 1)
        np.add.at(total_late, owner, late_ns)
        np.maximum.at(longest, owner, late_ns)
    return FluidityOfRequests(num_tokens - late_tokens + missed, missed, late_tokens, total_late, longest)


def scattered(parts: Sequence[tuple[Bool, FluidityOfRequests]]) -> FluidityOfRequests:
    """One result of the results of disjoint sets of requests: each with a mask over all of them, in whose
    places its entries go. Every request is in one set."""
    columns = []
    for name in ("total", "missed", "late_tokens", "late_ns", "longest_ns"):
        column = np.zeros(len(parts[0][0]), dtype=np.int64)
        for rows, found in parts:
            column[rows] = getattr(found, name)
        columns.append(column)
    return FluidityOfRequests(*columns)


def fluid_token_rate(arrivals: TokenArrivals) -> float | None:
    """Tokens per second at which 99 % of the requests would be read with a fluidity of 0.9.

    1 / (the smallest such decode deadline), by bisection on whole nanoseconds; the first token of
    each request is left out and starts its deadlines. Requests of one token are excluded. None
    when no request is left, or when so many answers came in one read that no deadline is too short.
    """
    rated = arrivals.num_tokens() >= 2
    if not rated.any():
        return None
    longest_gap = np.nanmax(arrivals.longest_message_gap_ns()[rated], initial=0)
    longest_ns = max(1, int(longest_gap))  # at the longest gap nothing is late
    near: list[int] = []
    if (every := int(rated.sum()) // _SAMPLE) > 1:
        # Where a part of the requests ends is close to where all of them do: looks around it settle most.
        few = rated & (np.cumsum(rated) % every == 0)
        guess = _shortest_deadline_ns(arrivals, few, longest_ns, [])
        near = [round(guess * share) for share in _LOOKS_AROUND]
    shortest_ns = _shortest_deadline_ns(arrivals, rated, longest_ns, near)
    return 1e9 / shortest_ns if shortest_ns > 1 else None


def _shortest_deadline_ns(arrivals: TokenArrivals, rated: Bool, longest_ns: int,
                          first_looks: Sequence[int]) -> int:
    """The smallest decode deadline, up to `longest_ns`, that enough of the `rated` requests reach."""
    shortest_ns, looks, open_ = 1, list(reversed(first_looks)), rated
    needed = -(-int(rated.sum()) * RATE_SHARE.numerator // RATE_SHARE.denominator)
    # Fluidity does not fall with the deadline. So a request that passes is settled for every
    # longer deadline, one that fails for every shorter one; only the others are looked at again.
    while shortest_ns < longest_ns:
        if 2 * int(open_.sum()) < len(open_):  # to leave out fewer costs more than to look at them
            arrivals, open_ = arrivals.select(open_), open_[open_]
        looks = [look for look in looks if shortest_ns <= look < longest_ns]
        middle_ns = looks.pop() if looks else (shortest_ns + longest_ns) // 2
        passes = open_ & _reaches_rate_fluidity(arrivals, middle_ns)
        count = int(passes.sum())
        if count >= needed:
            longest_ns = middle_ns
            open_ = passes
        else:
            shortest_ns = middle_ns + 1
            needed -= count
            open_ = open_ & ~passes
    return shortest_ns


def _reaches_rate_fluidity(arrivals: TokenArrivals, decode_deadline_ns: int) -> Bool:
    """Which of the requests reach the fluidity of the rate at this deadline."""
    allowed = 1 - RATE_FLUIDITY
    # A first token that is due when it came neither misses nor saves anything: it only adds to the
    # total.
    first_due = arrivals.at_ns[np.minimum(arrivals.offsets[:-1], len(arrivals.at_ns) - 1)] - arrivals.sent_ns
    missed, late_tokens = (np.zeros(len(arrivals), dtype=np.int64) for _ in range(2))
    for start, end in arrivals.parts():
        part = arrivals.part(start, end)
        late, late_ns = _late_reads(part, first_due[start:end], decode_deadline_ns)
        owner = np.searchsorted(part.offsets, late, side="right") - 1
        np.add.at(missed[start:end], owner, late_ns // decode_deadline_ns + 1)
        late_tokens[start:end] = np.bincount(owner, minlength=end - start)
    deadlines = arrivals.num_tokens() - 1 - late_tokens + missed
    passes: Bool = missed * allowed.denominator <= deadlines * allowed.numerator
    return passes


def _late_reads(part: TokenArrivals, first_due_ns: Int64, decode_deadline_ns: int) -> tuple[Int64, Int64]:
    """Positions of the reads whose first token was late, in order, and by how many nanoseconds.

    Only the first token of a read can be late: the others come with it, before their deadlines.
    """
    counts = np.diff(part.offsets)
    if not counts.all():
        some = counts > 0
        counts, first_due_ns, part = counts[some], first_due_ns[some], part.select(some)
    if not len(part):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    starts, before = part.offsets[:-1], part.tokens_before()
    if len(part) > 1 and decode_deadline_ns * int(before[-1]) >= _SPAN_LIMIT:
        return _late_in_halves(part, first_due_ns, decode_deadline_ns)
    # Tokens are counted through all requests; a request's `own` takes back what was before its first.
    ahead_ns = part.at_ns - before * decode_deadline_ns
    own = before[starts] * decode_deadline_ns - part.sent_ns - first_due_ns
    span = np.maximum(np.maximum.reduceat(ahead_ns, starts) + own, 0)
    if len(part) > 1 and float(span.sum(dtype=np.float64)) >= _SPAN_LIMIT:
        return _late_in_halves(part, first_due_ns, decode_deadline_ns)
    # Lift each request's values above those of the request before, so that one running maximum
    # serves all: it enters a request at that request's own first deadline.
    floor = np.cumsum(span) - span
    ahead_ns += np.repeat(own + floor, counts)
    ahead_ns[starts] = np.maximum(ahead_ns[starts], floor)
    reference = np.maximum.accumulate(ahead_ns)
    late = np.flatnonzero(ahead_ns[1:] > reference[:-1]) + 1
    if ahead_ns[0] > 0:
        late = np.concatenate([[0], late])
    return late, ahead_ns[late] - np.where(late > 0, reference[late - 1], 0)


def _late_in_halves(part: TokenArrivals, first_due_ns: Int64, decode_deadline_ns: int) -> tuple[Int64, Int64]:
    """The same of more requests than whole nanoseconds can hold one above the other."""
    half = len(part) // 2
    first, first_by = _late_reads(part.part(0, half), first_due_ns[:half], decode_deadline_ns)
    second, second_by = _late_reads(part.part(half, len(part)), first_due_ns[half:], decode_deadline_ns)
    return np.concatenate([first, second + part.offsets[half]]), np.concatenate([first_by, second_by])
