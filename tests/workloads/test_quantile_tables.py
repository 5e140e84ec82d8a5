"""The length kind `quantiles`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads.lengths import Lengths, Quantiles


@st.composite
def tables(draw: st.DrawFn) -> Quantiles:
    n = draw(st.integers(2, 12))
    inner = sorted(draw(st.lists(st.floats(0, 1), min_size=n - 2, max_size=n - 2)))
    tokens = sorted(draw(st.lists(st.integers(1, 4000).map(lambda t: t / 2), min_size=n, max_size=n)))
    return Quantiles(at=(0, *inner, 1), tokens=tuple(tokens))


@given(tables(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=50))
def test_lengths_rise_with_their_probability_within_the_bounds(table: Quantiles, at: list[float]) -> None:
    """Whole tokens from `bounds()`, in the order of the probabilities."""
    lengths = table.quantile(np.sort(at))
    low, high = table.bounds()
    assert 1 <= low <= lengths[0]
    assert lengths[-1] <= high
    assert np.all(np.diff(lengths) >= 0)
    assert low <= table.mean() <= high


@given(tables())
def test_the_share_below_a_length_is_what_the_table_says(table: Quantiles) -> None:
    """Going to lengths and back to probabilities ends where it began, up to the rounding to a token."""
    probabilities = (np.arange(4000) + 0.5) / 4000
    lengths = np.sort(table.quantile(probabilities))
    for at, tokens in zip(table.at, table.tokens, strict=True):
        assert np.mean(lengths < tokens - 0.5) <= at + 1e-3
        assert np.mean(lengths <= tokens + 0.5) >= at - 1e-3


def test_popular_lengths_keep_their_shares() -> None:
    """Half a token around a length holds exactly the share between its two points; a gap holds nothing."""
    table = Quantiles(at=(0, 0.3, 0.3, 1), tokens=(9.5, 10.5, 999.5, 1000.5))
    lengths = table.quantile((np.arange(1000) + 0.5) / 1000)
    assert np.unique(lengths, return_counts=True)[0].tolist() == [10, 1000]
    assert np.count_nonzero(lengths == 10) == 300
    assert table.bounds() == (10, 1000)


@pytest.mark.parametrize(("at", "tokens", "complaint"), [
    ((0, 0.5), (1, 2), "goes from 0 to 1"), ((0.1, 1), (1, 2), "goes from 0 to 1"),
    ((0, 1), (1, 2, 3), "one each"), ((0, 0.6, 0.5, 1), (1, 2, 3, 4), "`at` must never decrease"),
    ((0, 1), (5, 4), "`tokens` must never decrease"), ((0, 1), (0, 4), "greater than or equal to 0.5"),
    ((0, 1), (1, float("nan")), "less than"), ((0,), (1,), "at least 2")])
def test_a_table_that_is_none_is_refused(at: Any, tokens: Any, complaint: str) -> None:
    """With what is wrong in it."""
    with pytest.raises(ValidationError, match=complaint):
        TypeAdapter(Lengths).validate_python({"kind": "quantiles", "at": at, "tokens": tokens})
