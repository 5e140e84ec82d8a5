"""Tables of quantiles of recorded lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.fitting.length_tables import length_table
from workloads.lengths import Fixed, Quantiles

_LENGTHS = st.lists(st.integers(1, 200_000), min_size=1, max_size=400)
_EVEN = (np.arange(20_000) + 0.5) / 20_000


@given(_LENGTHS, st.integers(2, 60))
def test_any_lengths_have_a_table_around_them(lengths: list[int], points: int) -> None:
    """It has not many more points than asked for, and its bounds go at most to the next two-digit number."""
    table = length_table(np.array(lengths), points=points)
    low, high = table.bounds()
    assert min(lengths) * 0.9 - 1 <= low <= min(lengths)
    assert max(lengths) <= high <= max(lengths) * 1.1 + 1
    assert isinstance(table, Fixed) or len(table.at) <= max(points + 1, 10)


@given(_LENGTHS, st.integers(1, 5000))
def test_no_length_is_above_the_longest(lengths: list[int], longest: int) -> None:
    """Longer ones count as that one, and never is one drawn."""
    assert length_table(np.array(lengths), points=20, longest=longest).bounds()[1] <= longest


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_those_of_the_lengths(seed: int) -> None:
    """p50, p90 and p99 of log-normal, popular and small lengths are within 2 % or half a token."""
    rng = np.random.default_rng(seed)
    samples = {
        "log-normal": np.exp(rng.normal(7, 1.3, 9000)).astype(int) + 1,
        "small": rng.geometric(0.07, 9000),
        "popular": rng.choice([7, 13, 4096, 4142, 7436], 9000),
        "cut": np.minimum(np.exp(rng.normal(7, 1, 9000)).astype(int) + 1, 2048),
    }
    for lengths in samples.values():
        drawn = length_table(lengths, points=40).quantile(_EVEN)
        for percentile in (50, 90, 99):
            wanted = np.percentile(lengths, percentile)
            assert np.percentile(drawn, percentile) == pytest.approx(wanted, rel=0.02, abs=0.5)


def test_rare_lengths_are_not_told() -> None:
    """Of lengths that differ all, no inner point is nearer than three rows to the next, and none has more
    than three digits."""
    lengths = np.random.default_rng(1).choice(900_000, 300, replace=False) + 10_000
    table = length_table(lengths, points=60)
    assert isinstance(table, Quantiles)
    assert min(np.diff(table.at)) >= 3 / 300 - 1e-4
    assert all(float(f"{tokens:.3g}") == tokens for tokens in table.tokens[1:-1])
    assert (table.tokens[0] + 0.5) % 1000 == (table.tokens[-1] - 0.5) % 10_000 == 0


def test_a_popular_length_keeps_its_share() -> None:
    """Exactly as many draws as rows have it."""
    lengths = np.concatenate([np.full(3000, 4096), np.random.default_rng(0).integers(1, 4000, 7000)])
    drawn = length_table(lengths, points=30).quantile(_EVEN)
    assert np.mean(drawn == 4096) == pytest.approx(0.3, abs=0.002)
