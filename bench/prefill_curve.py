"""How long a lone prompt takes, measured once and then frozen: the base of every prefill deadline.

Tuning must not measure it again: a slow setting would relax its own deadline.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bench.lone_requests import LoneRequests
from bench.run import Bool, Int64
from engine_adapter.clock import Clock
from engine_adapter.seam import Engine, EngineInfo
from workloads.errors import EvidenceError


@dataclass(frozen=True, slots=True)
class PrefillCurve:
    """Time to first token of a lone prompt by its length, non-decreasing, linear between the
    measured lengths; below the shortest its time is kept, beyond the longest the last segment goes on.
    """

    tokens: tuple[int, ...]
    """Measured prompt lengths, ascending."""
    times_ns: tuple[int, ...]
    """Median of each length's repeats, made non-decreasing."""
    samples_ns: tuple[tuple[int, ...], ...] = ()
    """The repeats themselves, in order of measuring."""
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    """Of the engine that was measured, with its knobs."""

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.times_ns):
            raise ValueError("a prefill curve needs at least one length, and a time for each")
        if list(self.tokens) != sorted(set(self.tokens)) or list(self.times_ns) != sorted(self.times_ns):
            raise ValueError("a prefill curve ascends in its lengths and does not fall in its times")

    def prefill_ns(self, input_len: npt.ArrayLike) -> Int64:
        """Nanoseconds of a lone prefill for each prompt length; shape of `input_len`."""
        lengths = np.asarray(input_len, dtype=np.float64)
        inside = np.interp(lengths, self.tokens, self.times_ns)
        beyond = np.maximum(lengths - self.tokens[-1], 0) * self._last_slope()
        return np.rint(inside + beyond).astype(np.int64)

    def extrapolates(self, input_len: npt.ArrayLike) -> Bool:
        """Which prompt lengths are longer than any that was measured."""
        return np.asarray(input_len) > self.tokens[-1]

    def digest(self) -> str:
        """A short name of exactly this curve, for the runs that were judged by it."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "tokens": list(self.tokens), "times_ns": list(self.times_ns),
            "samples_ns": [list(samples) for samples in self.samples_ns],
            "fingerprint": dict(self.fingerprint),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`. EvidenceError when `values` is no such curve."""
        try:
            return cls(
                tuple(map(int, values["tokens"])), tuple(map(int, values["times_ns"])),
                tuple(tuple(map(int, samples)) for samples in values.get("samples_ns", ())),
                dict(values.get("fingerprint", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EvidenceError(f"this is no prefill curve ({error}): measure it again") from error

    def _last_slope(self) -> float:
        if len(self.tokens) == 1:
            return self.times_ns[0] / self.tokens[0]
        (t0, t1), (y0, y1) = self.tokens[-2:], self.times_ns[-2:]
        return (y1 - y0) / (t1 - t0)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """When a reader expects tokens: the first after a lone prefill plus `slack_ns`, then one every
    `decode_ns`."""

    curve: PrefillCurve
    slack_ns: int
    decode_ns: int

    def prefill_deadline_ns(self, input_len: npt.ArrayLike) -> Int64:
        """Deadline of the first token by prompt length, from the sending on; shape of `input_len`."""
        deadline: Int64 = self.curve.prefill_ns(input_len) + self.slack_ns
        return deadline

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"curve": self.curve.as_dict(), "slack_ns": self.slack_ns, "decode_ns": self.decode_ns}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`. EvidenceError when `values` holds no deadlines."""
        try:
            curve = PrefillCurve.from_dict(values["curve"])
            return cls(curve, int(values["slack_ns"]), int(values["decode_ns"]))
        except (KeyError, TypeError, ValueError) as error:
            raise EvidenceError(f"these are no deadlines ({error!r}): measure the curve again") from error


async def measure_prefill_curve(
    engine: Engine, info: EngineInfo, lengths: Sequence[int], *, clock: Clock, salt: str,
    repeats: int = 5, timeout_s: float = 120.0,
) -> PrefillCurve:
    """Time lone prompts of each of `lengths` on an otherwise idle engine.

    For each length one dropped warm-up, then `repeats` requests of one token with fresh prompts,
    one after the other; their median. Refused lengths, a crash or a hang raise EngineError.
    """
    ask = LoneRequests(engine, info, clock=clock, salt=f"prefill curve {salt}", timeout_s=timeout_s)
    ascending = sorted(set(lengths))
    samples = []
    for length in ascending:
        await ask.first_token_ns(length)
        samples.append(tuple([await ask.first_token_ns(length) for _ in range(repeats)]))
    medians = np.array([np.median(repeats_ns) for repeats_ns in samples])
    return PrefillCurve(
        tuple(ascending), tuple(non_decreasing(medians)), tuple(samples),
        {**info.fingerprint, "model": info.model,
         "knobs": None if info.knobs is None else info.knobs.as_dict()},
    )


def non_decreasing(values: npt.NDArray[np.float64]) -> list[int]:
    """Isotonic regression (pool adjacent violators): the closest sequence that does not fall.

    A running maximum would let one slow median lift every longer length.
    """
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            above, count = pools.pop()
            mean, size = (above * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    return [round(mean) for mean, size in pools for _ in range(size)]
