"""A fitted description of what prompts of one stream of requests share with earlier ones."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from workloads.lengths import Quantiles
from workloads.prompt_parts import PromptBlocks
from workloads.stratified import stratified

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Stream = Callable[[str], np.random.Generator]
_Share = Annotated[float, Field(ge=0, le=1)]

_LOOKED_AT = 16
"""So many rows of about the right length are looked at before a longer one is taken."""


class SharedParts(BaseModel, frozen=True, extra="forbid"):
    """How much of their length prompts repeat: a table of quantiles, straight lines between them."""

    at: Annotated[tuple[_Share, ...], Field(min_length=2, max_length=1000)]
    shares: tuple[_Share, ...]
    """Of the prompt, at each probability of `at`."""

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if len(self.at) != len(self.shares):
            raise ValueError(f"`at` has {len(self.at)} numbers and `shares` {len(self.shares)}: one each")
        if any(later < value for values in (self.at, self.shares) for value, later in pairwise(values)):
            raise ValueError("the numbers of `at` and of `shares` must never decrease")
        return self

    def quantile(self, probabilities: Float64) -> Float64:
        """The share at each probability."""
        return np.interp(probabilities, self.at, self.shares)


class ReuseClass(BaseModel, frozen=True, extra="forbid"):
    """What prompts of about one length repeat."""

    up_to: Annotated[int, Field(strict=True, ge=1)] | None = None
    """Longest prompt of the class, in tokens; only the last class has none."""
    continuing: _Share
    """Share of its requests that begin as an earlier prompt does, beyond what all have in common."""
    copied: SharedParts
    """Of these: how much of the prompt that is."""


class PromptReuse(BaseModel, frozen=True, extra="forbid"):
    """How much of a prompt repeats an earlier one, and how far back that one lies.

    A request continues an earlier one (of the same plan) or begins anew, with what all have in common.
    """

    block_size: Annotated[int, Field(strict=True, ge=1, le=1 << 20)]
    """Tokens that are shared or not as a whole."""
    common_blocks: Annotated[int, Field(strict=True, ge=0, le=1 << 20)] = 0
    """Blocks with which most prompts begin, such as a system prompt."""
    common_share: _Share = 1.0
    """Share of the requests that begin anew and have them."""
    classes: Annotated[tuple[ReuseClass, ...], Field(min_length=1, max_length=32)]
    """By prompt length, ascending."""
    back: Quantiles
    """How many requests ago the prompt came that is continued; a longer way where that one is too short."""

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        limits = [c.up_to for c in self.classes]
        if limits[-1] is not None or None in limits[:-1]:
            raise ValueError("every class of reuse but the last has an `up_to`")
        if any(later <= limit for limit, later in pairwise(limit for limit in limits if limit is not None)):
            raise ValueError("`up_to` must rise from class to class of reuse")
        return self


def reused_blocks(reuse: PromptReuse, input_len: npt.NDArray[np.integer], stream: Stream) -> PromptBlocks:
    """The blocks of prompts of these lengths, shape (n,), so that they repeat as much as `reuse` says.

    The last block of a prompt is cut short by its length. A prompt never repeats more than the earlier
    prompts hold, so the first of a plan repeat less. Fewer rows are a prefix of more.
    """
    length = input_len.astype(np.int64)
    counts = -(-length // reuse.block_size)
    copied = _copied(reuse, length, counts, stream)
    back = reuse.back.quantile(stratified(len(length), stream("reuse-back")))
    sources, copied = _sources(counts, copied, back)
    anew = stratified(len(length), stream("reuse-common")) < reuse.common_share
    common = np.where(anew & (copied == 0), np.minimum(reuse.common_blocks, counts), 0)
    return _with_keys(reuse, counts, sources, copied, common)


def _copied(reuse: PromptReuse, length: Int64, counts: Int64, stream: Stream) -> Int64:
    """How many of its blocks each prompt is to repeat; 0 for those that begin anew."""
    limits = [c.up_to for c in reuse.classes if c.up_to is not None]
    number = np.searchsorted(limits, length)
    copied = np.zeros(len(length), dtype=np.int64)
    for index, kind in enumerate(reuse.classes):
        rows = np.flatnonzero(number == index)
        # Two numbers of one draw: whether, and then how much.
        at = stratified(len(rows), stream(f"reuse-{index}"))
        rows, at = rows[at < kind.continuing], at[at < kind.continuing]
        shares = kind.copied.quantile(at / kind.continuing) if len(rows) else at
        # Rounded up as often as the fraction says, so that nothing is gained or lost on average.
        blocks = shares * length[rows] / reuse.block_size
        up = stratified(len(length), stream(f"reuse-rounding-{index}"))[rows]
        whole = np.floor(blocks + up).astype(np.int64)
        copied[rows] = np.where(shares >= 1, counts[rows], np.clip(whole, 0, counts[rows]))
    return copied


def _sources(counts: Int64, copied: Int64, back: Int64) -> tuple[Int64, Int64]:
    """The earlier row that each row continues, -1 for none, and how many blocks of it.

    It is the last row that is at least `back` rows ago and long enough; where none is, the longest so far.
    """
    sources = np.full(len(counts), -1, dtype=np.int64)
    granted = np.zeros(len(counts), dtype=np.int64)
    by_size: list[list[int]] = [[] for _ in range(64)]
    longest = -1
    sizes = counts.tolist()
    for row, (size, wanted, distance) in enumerate(zip(sizes, copied.tolist(), back.tolist(), strict=True)):
        if wanted and longest >= 0:
            source = _last_long_enough(by_size, sizes, wanted, max(row - distance, 0))
            sources[row] = longest if source < 0 else source
            granted[row] = min(wanted, sizes[sources[row]])
        by_size[size.bit_length()].append(row)
        if longest < 0 or size > sizes[longest]:
            longest = row
    return sources, granted


def _last_long_enough(by_size: list[list[int]], sizes: list[int], wanted: int, up_to: int) -> int:
    """The last row, up to `up_to`, of at least `wanted` blocks; -1 where there is none."""
    found = -1
    own = wanted.bit_length()
    rows = by_size[own]
    place = bisect_right(rows, up_to) - 1
    for at in range(place, max(place - _LOOKED_AT, -1), -1):
        if sizes[rows[at]] >= wanted:
            found = rows[at]
            break
    for rows in by_size[own + 1:]:   # all of these are long enough
        place = bisect_right(rows, up_to) - 1
        if place >= 0 and rows[place] > found:
            found = rows[place]
    return found


def _with_keys(reuse: PromptReuse, counts: Int64, sources: Int64, copied: Int64,
               common: Int64) -> PromptBlocks:
    offset = np.concatenate([[0], np.cumsum(counts)])
    keys = np.arange(offset[-1], dtype=np.int64) + reuse.common_blocks   # new ones, unless they are replaced
    starts = offset.tolist()
    for row in np.flatnonzero((copied > 0) | (common > 0)).tolist():
        begin = starts[row]
        if blocks := int(copied[row]):
            source = starts[sources[row]]
            keys[begin:begin + blocks] = keys[source:source + blocks]
        else:
            keys[begin:begin + int(common[row])] = np.arange(common[row])
    return PromptBlocks(reuse.block_size, keys, offset)
