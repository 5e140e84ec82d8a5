"""What a calibration has seen, and what of a simulation lies beyond it."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from engine_adapter.step_log import StepLog
from tuner.calibration.observed import Bool, Int64, ObservedSteps

TELLING_SHARE = 0.01
"""Below it steps beyond what was seen change no figure."""
FEW, WIDE, LEAST_STRETCH = 8, 2.0, 16
"""Where so few steps lie between two sizes so many times, and so many tokens, apart, the table is drawn
through nothing."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The largest of each that a step of the runs had, and sizes between which they had few steps."""

    step_tokens: int
    chunk_tokens: int
    prefix_tokens: int
    decodes: int
    decode_context: int
    """Of all decoding requests of a step together."""
    sparse: tuple[tuple[int, int], ...]
    """Steps of more tokens than the first and fewer than the second of a pair were hardly seen."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`; KeyError or TypeError for anything else."""
        counts = {name: int(values[name]) for name in _SEEN}
        return cls(**counts, sparse=tuple((int(low), int(high)) for low, high in values["sparse"]))

    def beyond(self, log: StepLog) -> tuple[str, ...]:
        """Sentences about the steps of `log` for which the cost is a guess; none where it is not."""
        steps, chunks = log.steps, log.chunks
        if not len(log):
            return ()
        of_step = np.searchsorted(steps["step"], chunks["step"])
        work = np.bincount(of_step, chunks["tokens"] * (chunks["prefix"] + chunks["tokens"] / 2), len(log))
        context = steps["attention_work"] - work - steps["num_decodes"] / 2
        of_steps = {
            "step_tokens": steps["num_tokens"], "decodes": steps["num_decodes"], "decode_context": context,
            "chunk_tokens": _most(of_step, chunks["tokens"], len(log)),
            "prefix_tokens": _most(of_step, chunks["prefix"], len(log)),
        }
        told = []
        for name, what in _SEEN.items():
            most = getattr(self, name)
            told.append(_told(of_steps[name] > most, f"{what} above {most:,}, the most that was calibrated"))
        for low, high in self.sparse:
            between = (steps["num_tokens"] > low) & (steps["num_tokens"] < high)
            told.append(_told(between, f"between {low:,} and {high:,} tokens, where the calibration saw "
                                       f"hardly a step"))
        return tuple(sentence for sentence in told if sentence)


_SEEN = {
    "step_tokens": "a number of tokens", "chunk_tokens": "a chunk of a prompt",
    "prefix_tokens": "a chunk after a prefix", "decodes": "a number of decoding requests",
    "decode_context": "decoding requests with a context in all",
}


def covered_by(observed: ObservedSteps) -> Covered:
    """What `observed` holds."""
    return Covered(
        step_tokens=int(observed.tokens.max()), chunk_tokens=int(observed.chunk_tokens.max(initial=0)),
        prefix_tokens=int(observed.chunk_prefix.max(initial=0)), decodes=int(observed.decodes.max()),
        decode_context=int(observed.decode_context.max()), sparse=_sparse(np.sort(observed.tokens)))


def _sparse(tokens: Int64) -> tuple[tuple[int, int], ...]:
    """Stretches that hold FEW steps and end at WIDE times their start; those that touch become one."""
    lows, highs = tokens[:-FEW - 1], tokens[FEW + 1:]
    wide = (highs > WIDE * lows) & (highs - lows > LEAST_STRETCH)
    found: list[tuple[int, int]] = []
    for low, high in zip(lows[wide].tolist(), highs[wide].tolist(), strict=True):
        if found and low < found[-1][1]:
            low = found.pop()[0]
        found.append((low, high))
    return tuple(found)


def _most(of_step: Int64, values: Int64, steps: int) -> Int64:
    most = np.zeros(steps, dtype=np.int64)
    np.maximum.at(most, of_step, values)
    return most


def _told(beyond: Bool, what: str) -> str:
    share = float(beyond.mean())
    return f"{share:.0%} of the steps have {what}: their cost is a guess" if share >= TELLING_SHARE else ""
