"""Random numbers that fill their range evenly in every stretch, not only in the long run."""

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

BLOCK = 1024
_COARSE = 64
_FINE = BLOCK // _COARSE


def stratified(n: int, rng: np.random.Generator) -> Float64:
    """`n` numbers in [0, 1), shape (n,): each is uniform, every 64 from the first on hold one of each
    64th, and every 1,024 one of each 1,024th.

    So a sample has the quantiles of its distribution without the luck of the draw. Fewer numbers are a
    prefix of more. Within 64 numbers the order is random: neighbours tell next to nothing of one another.
    """
    blocks = [_block(rng) for _ in range(-(-n // BLOCK))]
    return np.concatenate(blocks)[:n] if blocks else np.zeros(0)


def evened(gaps: Float64) -> Float64:
    """Gaps of mean 1, each 1,024 of them from the first on scaled to last 1,024; the number of gaps is a
    multiple of 1,024. A stretch of nothing but zeros becomes even."""
    blocks = gaps.reshape(-1, BLOCK)
    sums = blocks.sum(axis=1, keepdims=True)
    scaled = np.where(sums > 0, blocks * (BLOCK / np.where(sums > 0, sums, 1.0)), 1.0)
    return np.asarray(scaled.ravel(), dtype=np.float64)


def whole_blocks(n: int) -> int:
    """`n`, rounded up to a multiple of 1,024."""
    return -(-n // BLOCK) * BLOCK


def _block(rng: np.random.Generator) -> Float64:
    # Column c holds the parts of the c-th 64th in random order; each row, one of every 64th, is shuffled.
    fine = rng.permuted(np.tile(np.arange(_FINE), (_COARSE, 1)), axis=1).T
    strata = rng.permuted(np.arange(_COARSE) * _FINE + fine, axis=1)
    return (strata.ravel() + rng.random(BLOCK)) / BLOCK
