"""Evenly filled random numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.stratified import evened, stratified, whole_blocks

_SEEDS = st.integers(0, 2**32)


@given(_SEEDS, st.integers(0, 3000), st.integers(0, 3000))
def test_fewer_numbers_are_a_prefix_of_more(seed: int, one: int, other: int) -> None:
    """How many follow does not change the first ones; all lie in [0, 1)."""
    few, many = sorted((one, other))
    short, long = (stratified(n, np.random.default_rng(seed)) for n in (few, many))
    assert (len(short), len(long)) == (few, many)
    np.testing.assert_array_equal(long[:few], short)
    assert np.all((long >= 0) & (long < 1))


@given(_SEEDS, st.integers(1, 3))
def test_every_block_fills_all_strata_once(seed: int, blocks: int) -> None:
    """Each 1,024 numbers have one of every 1,024th, each 64 one of every 64th."""
    numbers = stratified(blocks * 1024, np.random.default_rng(seed))
    for size in (64, 1024):
        strata = np.sort((numbers.reshape(-1, size) * size).astype(int), axis=1)
        np.testing.assert_array_equal(strata, np.tile(np.arange(size), (len(strata), 1)))


def test_neighbours_tell_nothing_of_one_another() -> None:
    """Successive numbers are uncorrelated, and so are those some places apart."""
    numbers = stratified(200_000, np.random.default_rng(1))
    for apart in (1, 2, 16, 64):
        assert abs(np.corrcoef(numbers[:-apart], numbers[apart:])[0, 1]) < 0.03


@given(_SEEDS, st.integers(1, 3000), st.floats(0.01, 10))
def test_evened_gaps_last_as_long_as_their_number(seed: int, n: int, shape: float) -> None:
    """Every 1,024 gaps last 1,024, also where all of them are zero."""
    gaps = np.random.default_rng(seed).standard_gamma(shape, whole_blocks(n))
    for given_gaps in (gaps, np.zeros_like(gaps)):
        np.testing.assert_allclose(evened(given_gaps).reshape(-1, 1024).sum(axis=1), 1024)
