"""Which request continues which."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.traces.chats import Chats


def _placed(rows: list[tuple[int, int]], cuts: list[int]) -> list[tuple[int, int]]:
    chats, placed = Chats(), []
    ends = sorted({0, *(cut for cut in cuts if cut < len(rows)), len(rows)})
    for begin, end in pairwise(ends):
        ids, parents = np.array(rows[begin:end], dtype=np.int64).T
        sessions, turns = chats.place(ids, parents)
        placed += list(zip(sessions.tolist(), turns.tolist(), strict=True))
    return placed


def _by_dict(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    ends: dict[int, tuple[int, int]] = {}
    placed: list[tuple[int, int]] = []
    for chat, parent in rows:
        session, turn = ends.pop(parent, (sum(turn == 0 for _, turn in placed), -1))
        ends[chat] = session, turn + 1
        placed.append((session, turn + 1))
    return placed


def test_a_request_continues_the_session_of_its_parent() -> None:
    """Sessions and their turns count from 0."""
    assert _placed([(7, -1), (9, -1), (8, 7), (5, 8)], []) == [(0, 0), (1, 0), (0, 1), (0, 2)]


def test_a_second_answer_to_one_parent_begins_a_session() -> None:
    """So that the turns of a session are a chain, each with the prompt of the one before in its own."""
    assert _placed([(1, -1), (2, 1), (3, 1), (4, 3)], []) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_parent_outside_the_file_begins_a_session() -> None:
    """Nothing is known about what was before the file."""
    assert _placed([(5, 3), (6, 3), (7, 6)], []) == [(0, 0), (1, 0), (1, 1)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 12)), min_size=1, max_size=40),
       st.lists(st.integers(1, 40), max_size=6))
def test_pieces_make_no_difference(rows: list[tuple[int, int]], cuts: list[int]) -> None:
    """Rows are placed alike whether they come at once or in pieces, also where ids come again."""
    assert _placed(rows, cuts) == _by_dict(rows)
