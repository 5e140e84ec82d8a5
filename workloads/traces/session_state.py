"""What is remembered of each session while the rows of a file pass; sessions have numbers from 0."""

import numpy as np

from workloads.traces.raw_rows import Bool, Int64

MOST_TURNS = 2**31 - 1


class SessionSums:
    """A running sum for each session."""

    def __init__(self) -> None:
        self._sums = np.zeros(0, np.int64)

    def before(self, session: Int64, amount: Int64) -> Int64:
        """What the rows of the same session before each row came to; these rows are added. `amount` must be
        small enough for the sums to be int64."""
        if not len(session):
            return np.zeros(0, np.int64)
        self._sums = _grown(self._sums, session)
        order = np.argsort(session, kind="stable")
        sorted_session, sorted_amount = session[order], amount[order]
        ends = np.cumsum(sorted_amount)
        begins = np.flatnonzero(np.diff(sorted_session, prepend=-1))
        counts = np.diff(begins, append=len(session))
        earlier = (ends - sorted_amount)[begins]   # sums of the sessions that are sorted before
        found = np.empty(len(session), np.int64)
        found[order] = self._sums[sorted_session] + ends - sorted_amount - np.repeat(earlier, counts)
        self._sums[sorted_session[begins]] += ends[begins + counts - 1] - earlier
        return found


class TurnOrder:
    """The latest turn of each session."""

    def __init__(self) -> None:
        self._next = np.zeros(0, np.int64)   # the least number that may come

    def wrong(self, session: Int64, turn: Int64) -> Bool:
        """Rows whose turn is not above all turns of their session before, or not from 0 to MOST_TURNS; the
        others are remembered."""
        wrong = (turn < 0) | (turn > MOST_TURNS)
        rows = np.flatnonzero(~wrong)
        if not len(rows):
            return wrong
        self._next = _grown(self._next, session)
        order = rows[np.argsort(session[rows], kind="stable")]
        least = self._next[session[order]]
        # The largest of each session up to a row: of later sessions every number is larger.
        base = session[order] << 32
        up_to = np.maximum.accumulate(base + np.maximum(turn[order] + 1, least)) - base
        same = session[order][1:] == session[order][:-1]
        least[1:][same] = up_to[:-1][same]
        wrong[order] = turn[order] < least
        self._next[session[order]] = up_to   # of equal places the last one written stays
        return wrong


def _grown(column: Int64, session: Int64) -> Int64:
    wanted = int(session.max()) + 1 - len(column)
    return column if wanted <= 0 else np.concatenate([column, np.zeros(max(wanted, len(column)), np.int64)])
