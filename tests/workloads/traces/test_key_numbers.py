"""Numbers for keys, and what is remembered of sessions, over pieces of a file."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.traces.key_numbers import KeyNumbers
from workloads.traces.session_state import SessionSums, TurnOrder

Rows = list[tuple[int, int]]
SESSIONS = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 6)), max_size=12), max_size=4)


def columns(piece: Rows) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in piece], np.int64), np.array([value for _, value in piece], np.int64)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.one_of(st.integers(0, 9), st.integers(-2**63, 2**63 - 1)), max_size=20),
                max_size=5))
def test_numbers_follow_first_appearance(pieces: list[list[int]]) -> None:
    """Whatever the keys and the pieces, the n-th new key has number n, for ever."""
    numbers, expected = KeyNumbers(), {}
    for piece in pieces:
        for key in piece:
            expected.setdefault(key, len(expected))
        assert numbers.of(np.array(piece, np.int64)).tolist() == [expected[key] for key in piece]
    assert len(numbers) == len(expected)


@settings(deadline=None, max_examples=60)
@given(SESSIONS)
def test_sums_are_of_the_session_before_the_row(pieces: list[Rows]) -> None:
    """Each row gets the sum of the earlier rows of its session, in whatever piece they came."""
    sums, expected = SessionSums(), {}
    for piece in pieces:
        found = sums.before(*columns(piece))
        for (session, amount), before in zip(piece, found.tolist(), strict=True):
            assert before == expected.get(session, 0)
            expected[session] = before + amount


@settings(deadline=None, max_examples=60)
@given(SESSIONS)
def test_turns_must_rise_within_their_session(pieces: list[Rows]) -> None:
    """A turn that is not above all before it in its session is wrong, and counts for nothing."""
    order, latest = TurnOrder(), {}
    for piece in pieces:
        wrong = order.wrong(*columns(piece))
        for (session, turn), found in zip(piece, wrong.tolist(), strict=True):
            assert found == (turn <= latest.get(session, -1))
            latest[session] = max(turn, latest.get(session, -1))


def test_turns_beyond_32_bits_are_wrong() -> None:
    """A turn that a plan cannot hold is wrong."""
    assert TurnOrder().wrong(np.array([0, 0]), np.array([2**31, 1])).tolist() == [True, False]
