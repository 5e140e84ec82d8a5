"""How far the cost is off, by kind of step, on steps that it was not fitted to."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tuner.calibration.observed import Bool, Float64, Int64, ObservedSteps


@dataclass(frozen=True, slots=True)
class Regime:
    """Relative errors of the steps of one kind."""

    group: str
    name: str
    n: int
    median_abs: float
    p90_abs: float
    bias: float
    """Of the time of all of them together: above 0 the cost says too much."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the group."""
        return {name: value for name, value in asdict(self).items() if name != "group"}


def regimes_of(observed: ObservedSteps, predicted_ns: Float64, runs: Sequence[str]) -> list[Regime]:
    """The errors of `predicted_ns`, one a step: of all steps, by kind, by the largest chunk and the longest
    prefix in the step, by the number of decoding requests where there are no chunks, and by run, whose names
    `runs` holds. Kinds without steps are left out."""
    return [
        _regime(group, name, observed.took_ns[member], predicted_ns[member])
        for group, name, member in _members(observed, runs) if member.any()
    ]


def _members(observed: ObservedSteps, runs: Sequence[str]) -> Iterator[tuple[str, str, Bool]]:
    chunked, decoding = observed.chunks > 0, observed.decodes > 0
    yield "all", "all steps", np.ones(len(observed), dtype=np.bool_)
    yield "kind", "decode only", ~chunked
    yield "kind", "mixed", chunked & decoding
    yield "kind", "prefill only", chunked & ~decoding
    yield "kind", "of a size new to the run", observed.new_shape
    yield from _binned("largest chunk", observed.most_per_step(observed.chunk_tokens), 16, chunked)
    yield from _binned("longest prefix", observed.most_per_step(observed.chunk_prefix), 256, chunked)
    yield from _binned("decodes", observed.decodes, 1, ~chunked)
    for number, name in enumerate(runs):
        yield "run", name, observed.run == number


def _binned(group: str, values: Int64, first: int, among: Bool) -> Iterator[tuple[str, str, Bool]]:
    """0, 1 to `first`, and from there four times as far with each bin."""
    yield group, "none", among & (values == 0)
    low, high = 1, first
    while low <= values.max(initial=0):
        name = str(high) if low == high else f"{low} to {high}"
        yield group, name, among & (values >= low) & (values <= high)
        low, high = high + 1, high * 4


def _regime(group: str, name: str, took_ns: Float64, predicted_ns: Float64) -> Regime:
    off = np.abs(predicted_ns / took_ns - 1)
    return Regime(group, name, len(off), float(np.median(off)), float(np.percentile(off, 90)),
                  float(predicted_ns.sum() / took_ns.sum() - 1))
