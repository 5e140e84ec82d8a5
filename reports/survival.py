"""The distribution of the gaps between tokens as a sketch whose size does not grow with the run."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

TAIL = 1e-4
"""The sketch ends at the 99.99th percentile."""


def _levels() -> tuple[float, ...]:
    body = np.linspace(0.98, 0.12, 44)
    tail = 10.0 ** np.linspace(-1, -4, 91)
    named = (0.5, 0.1, 0.05, 0.01, 0.001, TAIL)
    return tuple(sorted({float(f"{level:.6g}") for level in (*body, *tail, *named)}, reverse=True))


LEVELS = _levels()
"""Shares of gaps that are longer than the sketch's value, falling; one grid for every run."""


@dataclass(frozen=True, slots=True)
class Survival:
    """For each level of LEVELS the gap in ms that this share of all gaps exceeds.

    None where fewer than one gap would lie beyond: percentiles of too few samples are not
    stated. `longest_ms` is the longest gap, `share_zero` the share of gaps of 0 (several
    tokens came in one read), `n` the number of gaps, `n_longer` how many of them are longer than
    `limit_ms`; both are None where there is no limit.
    """

    gap_ms: tuple[float | None, ...]
    n: int
    longest_ms: float | None
    share_zero: float | None
    limit_ms: float | None = None
    n_longer: int | None = None

    def at(self, level: float) -> float | None:
        """The gap that this share of all gaps exceeds; `level` is one of LEVELS."""
        return self.gap_ms[LEVELS.index(level)]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `share_longer` and `gap_ms` are parallel lists."""
        return {
            "share_longer": list(LEVELS),
            "gap_ms": list(self.gap_ms),
            "n": self.n,
            "longest_ms": self.longest_ms,
            "share_zero": self.share_zero,
            "limit_ms": self.limit_ms,
            "n_longer": self.n_longer,
        }


def survival(gaps_ns: npt.NDArray[np.int64], limit_ms: float | None = None) -> Survival:
    """The sketch of pooled gaps between tokens, shape (n,), in nanoseconds; percentiles are linear."""
    n = len(gaps_ns)
    n_longer = None if limit_ms is None else int(np.count_nonzero(gaps_ns > limit_ms * 1e6))
    if n == 0:
        return Survival((None,) * len(LEVELS), 0, None, None, limit_ms, n_longer)
    gaps = np.quantile(gaps_ns, 1.0 - np.asarray(LEVELS)) / 1e6
    # 1e-9 forgives the rounding of levels such as 0.01 in n * level >= 1.
    sayable = tuple(
        round(float(gap), 4) if n * level >= 1 - 1e-9 else None
        for gap, level in zip(gaps, LEVELS, strict=True)
    )
    longest_ms, share_zero = round(float(gaps_ns.max()) / 1e6, 4), float(np.mean(gaps_ns == 0))
    return Survival(sayable, n, longest_ms, share_zero, limit_ms, n_longer)
