"""Which request continues which, where each names the one before it."""

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


class Chats:
    """Requests by their ids, as chains: each request continues at most one earlier request, and is
    continued by at most one. Takes some 25 bytes a request."""

    def __init__(self) -> None:
        self._ids = np.zeros(0, np.int64)
        self._sessions = np.zeros(0, np.int64)
        self._turns = np.zeros(0, np.int32)
        self._continued = np.zeros(0, np.bool_)
        self._begun = 0

    def place(self, ids: Int64, parents: Int64) -> tuple[Int64, Int64]:
        """The session and the turn of the next requests; shapes (rows,).

        Sessions are numbered from 0 as they begin. A request whose parent came before and was not
        continued yet is the next turn of the parent's session. Any other begins a session with turn 0:
        a root, one whose parent is not in the file, and a second answer to the same parent.
        """
        ends = self._open_ends(parents)
        sessions, turns = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        for row, (chat, parent) in enumerate(zip(ids.tolist(), parents.tolist(), strict=True)):
            session, turn = ends.pop(parent, (self._begun, -1))
            self._begun += turn < 0
            sessions[row], turns[row] = session, turn + 1
            ends[chat] = session, turn + 1
        self._remember(ids, sessions, turns, ends)
        return sessions, turns

    def _open_ends(self, parents: Int64) -> dict[int, tuple[int, int]]:
        """Session and turn of those earlier requests among `parents` that nothing continues yet."""
        wanted = np.unique(parents)
        at = self._places(wanted)
        found = at[(at >= 0) & ~self._continued[at]] if len(self._ids) else at[:0]
        self._continued[found] = True   # each of them is continued by the rows that ask for it
        return dict(zip(self._ids[found].tolist(),
                        zip(self._sessions[found].tolist(), self._turns[found].tolist(), strict=True),
                        strict=True))

    def _places(self, ids: Int64) -> Int64:
        """Where each id is; -1 for one that is not there."""
        at = np.searchsorted(self._ids, ids)
        there = at < len(self._ids)
        there[there] = self._ids[at[there]] == ids[there]
        places: Int64 = np.where(there, at, -1)
        return places

    def _remember(self, ids: Int64, sessions: Int64, turns: Int64, ends: dict[int, tuple[int, int]]) -> None:
        last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]   # the later of equal ids counts
        ids, sessions, turns = ids[last], sessions[last], turns[last]
        continued = np.fromiter((chat not in ends for chat in ids.tolist()), np.bool_, len(ids))
        old = self._places(ids)
        again = old >= 0
        for column, new in ((self._sessions, sessions), (self._turns, turns), (self._continued, continued)):
            column[old[again]] = new[again]
        ids, sessions, turns = ids[~again], sessions[~again], turns[~again]
        at = np.searchsorted(self._ids, ids)
        self._ids = np.insert(self._ids, at, ids)
        self._sessions = np.insert(self._sessions, at, sessions)
        self._turns = np.insert(self._turns, at, turns)
        self._continued = np.insert(self._continued, at, continued[~again])
