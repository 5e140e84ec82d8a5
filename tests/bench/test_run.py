from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bench.run import NEVER, Outcome, Run

RunOf = Callable[..., Run]
MS = 1_000_000


def test_first_and_last_token_times(run_of: RunOf) -> None:
    """They are the first and last read of each row; a row without a read has neither."""
    run = run_of([[(10, 1), (30, 2)], [], [(5, 1)]], outcomes=[Outcome.OK, Outcome.EMPTY, Outcome.OK])
    assert ((run.first_token_ns() - run.sent_ns)[[0, 2]] / MS).tolist() == [10, 5]
    assert ((run.last_token_ns() - run.sent_ns)[[0, 2]] / MS).tolist() == [30, 5]
    assert run.first_token_ns()[1] == run.last_token_ns()[1] == NEVER


def test_peak_in_flight_counts_overlap(run_of: RunOf) -> None:
    """Requests that touch in one instant do not overlap; one that never ended overlaps all later ones."""
    assert run_of([[(100, 1)]] * 5, every_ms=100).peak_in_flight() == 1
    assert run_of([[(250, 1)]] * 5, every_ms=100).peak_in_flight() == 3
    never_ends = [Outcome.CUT_SHORT] + [Outcome.OK] * 4
    assert run_of([[(100, 1)]] * 5, every_ms=100, outcomes=never_ends).peak_in_flight() == 2
    assert run_of([]).peak_in_flight() == 0


def test_contradictory_columns_are_refused(run_of: RunOf) -> None:
    """Columns of different lengths, reads without a row, and a success without a token make no run."""
    run = run_of([[(10, 1)]] * 3)
    with pytest.raises(ValueError, match="one row a request"):
        replace(run, outcome=run.outcome[:2])
    with pytest.raises(ValueError, match="do not fit"):
        replace(run, read_ns=run.read_ns[:2])
    with pytest.raises(ValueError, match="at least one read"):
        replace(run, sent_ns=np.full(3, NEVER))
