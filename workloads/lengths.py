"""How long prompts and answers are: distributions of token counts, told apart by `kind`.

Every distribution is its quantile function, applied to uniform numbers. One draw uses exactly
one uniform number, whatever the distribution, so the draws of a longer sample start with those
of a shorter one and a row's draw does not depend on the rows around it.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, PrivateAttr, model_validator

from workloads.length_file import MAX_TOKENS, read_lengths

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Tokens = Annotated[int, Field(strict=True, ge=1, le=MAX_TOKENS)]

_MEAN_POINTS = 4096
_NORMAL = NormalDist()
_SMALLEST_PROBABILITY = 2.0**-60   # the normal quantile is infinite at 0 and at 1
_LARGEST_PROBABILITY = 1.0 - 2.0**-53


class Distribution(BaseModel, ABC, frozen=True, extra="forbid"):
    """What every length distribution answers. All lengths are whole tokens, at least 1."""

    @abstractmethod
    def quantile(self, probabilities: Float64) -> Int64:
        """The length at each probability in [0, 1); same shape as `probabilities`."""

    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The shortest and the longest length that can be drawn, in tokens."""

    @abstractmethod
    def describe(self) -> str:
        """One line for a person, without a full stop."""

    def sample(self, n: int, rng: np.random.Generator) -> Int64:
        """`n` lengths in tokens, shape (n,); uses `n` uniform numbers of `rng`."""
        return self.quantile(rng.random(n))

    def mean(self) -> float:
        """The mean length in tokens, as the mean of 4096 evenly spread quantiles: no chance in it."""
        return float(self.quantile((np.arange(_MEAN_POINTS) + 0.5) / _MEAN_POINTS).mean())

    def content(self) -> dict[str, Any]:
        """What decides the drawn lengths, as plain values; equal content means equal draws."""
        return self.model_dump(mode="json")


class Fixed(Distribution, frozen=True):
    """Always `tokens`."""

    kind: Literal["fixed"] = "fixed"
    tokens: Tokens

    def quantile(self, probabilities: Float64) -> Int64:
        return np.full(probabilities.shape, self.tokens, dtype=np.int64)

    def bounds(self) -> tuple[int, int]:
        return self.tokens, self.tokens

    def describe(self) -> str:
        return f"{self.tokens} tokens"


class _Bounded(Distribution, frozen=True):
    """A distribution between `low` and `high`, both included."""

    low: Tokens
    high: Tokens

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self

    def bounds(self) -> tuple[int, int]:
        return self.low, self.high


class Uniform(_Bounded, frozen=True):
    """Every whole number from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"

    def quantile(self, probabilities: Float64) -> Int64:
        steps = (probabilities * (self.high - self.low + 1)).astype(np.int64)
        return np.minimum(self.low + steps, self.high)

    def describe(self) -> str:
        return f"{self.low}..{self.high} tokens, uniform"


class LogNormal(_Bounded, frozen=True):
    """A log-normal truncated to `low - 0.5 .. high + 0.5`, then rounded to whole tokens.

    The truncation is exact (through the quantile function; no redrawing, no heap of values at
    the bounds). `median` and `sigma` (standard deviation of the logarithm) describe the curve
    before truncation; the median must lie within the bounds.
    """

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(gt=0, allow_inf_nan=False)
    sigma: float = Field(gt=0, le=10)

    @model_validator(mode="after")
    def _check_median(self) -> Self:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"the median ({self.median:g}) lies outside low..high ({self.low}..{self.high})")
        return self

    def quantile(self, probabilities: Float64) -> Int64:
        below, up_to = (_NORMAL.cdf(math.log(edge / self.median) / self.sigma)
                        for edge in (self.low - 0.5, self.high + 0.5))
        inside = np.clip(below + probabilities * (up_to - below), _SMALLEST_PROBABILITY, _LARGEST_PROBABILITY)
        deviations = np.fromiter(map(_NORMAL.inv_cdf, inside.ravel().tolist()), np.float64, inside.size)
        lengths = self.median * np.exp(self.sigma * deviations.reshape(inside.shape))
        return np.clip(np.rint(lengths), self.low, self.high).astype(np.int64)

    def describe(self) -> str:
        return (f"log-normal, median {self.median:g}, sigma {self.sigma:g}, "
                f"within {self.low}..{self.high} tokens")


class FromFile(Distribution, frozen=True):
    """The lengths of a file, each equally likely, drawn with replacement.

    The file is read once, when the object is made: a text file of one whole number a line, or a
    CSV file when `column` is given. In a workload file a relative path starts at the workload
    file's folder. A file that cannot be read raises UsageError with the file and the line.
    """

    kind: Literal["file"] = "file"
    path: Path
    column: str | None = None
    _sorted: list[int] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any, /) -> None:
        folder = context.get("folder", Path()) if isinstance(context, dict) else Path()
        # Of the workload that a study saves, it is read again from anywhere.
        self.__dict__["path"] = (folder / self.path).absolute()
        self._sorted.extend(sorted(read_lengths(self.path, self.column)))

    def quantile(self, probabilities: Float64) -> Int64:
        count = len(self._sorted)
        ranks = np.minimum((probabilities * count).astype(np.int64), count - 1)
        return np.take(np.array(self._sorted, dtype=np.int64), ranks)

    def bounds(self) -> tuple[int, int]:
        return self._sorted[0], self._sorted[-1]

    def mean(self) -> float:
        return sum(self._sorted) / len(self._sorted)

    def content(self) -> dict[str, Any]:
        values = np.array(self._sorted, dtype="<i8").tobytes()
        return {"kind": self.kind, "sha256": hashlib.sha256(values).hexdigest()}

    def describe(self) -> str:
        low, high = self.bounds()
        return f"{len(self._sorted)} lengths of {self.path.name}, {low}..{high} tokens"


class Quantiles(Distribution, frozen=True):
    """A table of quantiles, straight lines between them, rounded to whole tokens.

    `at` are probabilities from 0 to 1 that never decrease, `tokens` the length at each, fractions allowed:
    a length that many requests share lies between half a token less and half a token more. Equal
    probabilities make a jump.
    """

    kind: Literal["quantiles"] = "quantiles"
    at: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=2, max_length=1000)]
    tokens: tuple[Annotated[float, Field(ge=0.5, lt=MAX_TOKENS + 0.5)], ...]

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if len(self.at) != len(self.tokens):
            raise ValueError(f"`at` has {len(self.at)} numbers and `tokens` {len(self.tokens)}: one each")
        if self.at[0] != 0 or self.at[-1] != 1:
            raise ValueError(f"`at` goes from 0 to 1, not from {self.at[0]:g} to {self.at[-1]:g}")
        for name in ("at", "tokens"):
            values: tuple[float, ...] = getattr(self, name)
            if any(later < value for value, later in pairwise(values)):
                raise ValueError(f"the numbers of `{name}` must never decrease")
        return self

    def quantile(self, probabilities: Float64) -> Int64:
        at, tokens = np.array(self.at), np.array(self.tokens)
        # The last point at or below each probability; the jump at equal ones is behind it.
        left = np.clip(np.searchsorted(at, probabilities, side="right") - 1, 0, len(at) - 2)
        widths = at[left + 1] - at[left]
        parts = (probabilities - at[left]) / np.where(widths > 0, widths, 1.0)
        lengths = tokens[left] + parts * (tokens[left + 1] - tokens[left])
        low, high = self.bounds()
        return np.asarray(np.clip(np.rint(lengths), low, high), dtype=np.int64)

    def bounds(self) -> tuple[int, int]:
        # Half a token is the edge between two lengths: of the table's ends it belongs to the one within.
        low = math.floor(self.tokens[0] + 0.5)
        return low, max(low, math.ceil(self.tokens[-1] - 0.5))

    def describe(self) -> str:
        low, high = self.bounds()
        median = int(self.quantile(np.array([0.5]))[0])
        return f"a table of {len(self.at)} quantiles, median {median}, within {low}..{high} tokens"


Lengths = Annotated[Fixed | Uniform | LogNormal | FromFile | Quantiles, Field(discriminator="kind")]
"""A field of this type takes any of the distributions and tells them apart by `kind`."""
