"""Load that changes over time: stages of a constant, a rising or a falling request rate, and pauses."""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError

Float64 = npt.NDArray[np.float64]
Int16 = npt.NDArray[np.int16]
Shape = Literal["linear", "exponential"]
Kind = Literal["steady", "ramp", "pause"]

_LONGEST_S = 1e9   # a generation; keeps every offset within int64 nanoseconds
_HIGHEST_RPS = 1e9
_MOST_STAGES = 1000
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_STAGE = re.compile(
    r"(?P<time>[^@]*?)\s*(?P<unit>ms|s|m|h)\s*@\s*(?P<start>[^@]+?)(?:\s*\.\.\s*(?P<end>[^@]+?))?"
    r"\s*(?P<exponential>exp)?")
_EXAMPLE = "write for example 30s@2,60s@2..8,30s@8 (seconds @ requests per second)"


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the schedule. Its rate goes from `start_rps` to `end_rps` in time: by equal
    steps a second (linear) or by equal factors a second (exponential).

    UsageError for a duration that is not above 0 or endless, a negative or endless rate, and an
    exponential ramp from or to a rate of 0.
    """

    duration_s: float
    start_rps: float
    end_rps: float
    shape: Shape = "linear"
    name: str = ""
    """For people; where it is left out, the stage as `parse_stages` takes it."""

    def __post_init__(self) -> None:
        for field in ("duration_s", "start_rps", "end_rps"):
            object.__setattr__(self, field, float(getattr(self, field)))   # 4 and 4.0 are one plan
        if not 0 < self.duration_s <= _LONGEST_S:
            raise UsageError(f"a stage lasts above 0 and at most {_LONGEST_S:g} seconds; "
                             f"got {self.duration_s:g}")
        if not (0 <= self.start_rps <= _HIGHEST_RPS and 0 <= self.end_rps <= _HIGHEST_RPS):
            raise UsageError(f"the rate of a stage is 0 (a pause) to {_HIGHEST_RPS:g} requests/s; "
                             f"got {self._rates()}")
        if self.shape not in ("linear", "exponential"):
            raise UsageError(f"unknown shape of a stage {self.shape!r}; known: linear, exponential")
        if self.shape == "exponential" and not (self.start_rps and self.end_rps):
            raise UsageError(f"an exponential ramp cannot touch a rate of 0: start and end above it, or make "
                             f"it linear; got {self._rates()}")
        if not self.name:
            object.__setattr__(self, "name", str(self))

    def __str__(self) -> str:
        exponential = "exp" if self.shape == "exponential" else ""
        return f"{self.duration_s:g}s@{self._rates()}{exponential}"

    def _rates(self) -> str:
        end = "" if self.start_rps == self.end_rps else f"..{self.end_rps:g}"
        return f"{self.start_rps:g}{end}"

    @property
    def kind(self) -> Kind:
        """`steady`; `ramp`, whose requests describe a load that is not constant; `pause`, without any."""
        if self.start_rps != self.end_rps:
            return "ramp"
        return "steady" if self.start_rps else "pause"

    def expected(self) -> float:
        """Mean number of arrivals in the stage: the integral of its rate."""
        if growth := self._growth():
            return self.start_rps * math.expm1(growth * self.duration_s) / growth
        return (self.start_rps + self.end_rps) / 2 * self.duration_s

    def reached_s(self, arrivals: Float64) -> Float64:
        """Seconds into the stage at which its rate adds up to each of `arrivals`, below `expected()`.

        The inverse of the integral in closed form, in the form that does not cancel.
        """
        if growth := self._growth():
            seconds = np.log1p(arrivals * growth / self.start_rps) / growth
        else:
            slope = (self.end_rps - self.start_rps) / self.duration_s
            rate = np.sqrt(np.maximum(self.start_rps**2 + 2 * slope * arrivals, 0))   # there and then
            seconds = 2 * arrivals / np.where(arrivals > 0, self.start_rps + rate, 1)
        within: Float64 = np.clip(seconds, 0, self.duration_s)
        return within

    def _growth(self) -> float:
        """Logarithm of the factor by which the rate of an exponential ramp grows each second; else 0."""
        if self.shape != "exponential":
            return 0.0
        return (math.log(self.end_rps) - math.log(self.start_rps)) / self.duration_s

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, `kind` with them."""
        return {"name": self.name, "kind": self.kind, "duration_s": self.duration_s,
                "start_rps": self.start_rps, "end_rps": self.end_rps, "shape": self.shape}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        return cls(**{name: value for name, value in values.items() if name != "kind"})


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Stages one after the other. UsageError without a stage, and where no stage has requests."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise UsageError(f"no stage given: {_EXAMPLE}")
        if len(self.stages) > _MOST_STAGES:
            raise UsageError(f"at most {_MOST_STAGES} stages; got {len(self.stages)}")
        if not self.duration_s <= _LONGEST_S:
            raise UsageError(f"the stages last {self.duration_s:g} seconds together: at most {_LONGEST_S:g}")
        if not self.expected():
            raise UsageError("every stage is a pause: give one of them a rate above 0")

    def __str__(self) -> str:
        return ",".join(map(str, self.stages))

    @property
    def duration_s(self) -> float:
        """Seconds from the start of the first stage to the end of the last."""
        return math.fsum(stage.duration_s for stage in self.stages)

    @property
    def mean_rps(self) -> float:
        """Requests per second over all stages, pauses included."""
        return self.expected() / self.duration_s

    def expected(self) -> float:
        """Mean number of arrivals over all stages."""
        return math.fsum(stage.expected() for stage in self.stages)

    @property
    def first_rps(self) -> float:
        """The rate that it begins with; the mean of its first stage with requests where that is 0."""
        first = next(stage for stage in self.stages if stage.expected() > 0)
        return self.stages[0].start_rps or first.expected() / first.duration_s

    def place(self, arrivals: Float64) -> tuple[Float64, Int16]:
        """Seconds from the start at which the cumulative rate reaches each of `arrivals`, and its stage.

        Arrivals of a process of unit rate become arrivals of this rate, in order and with their
        burstiness (time rescaling). Beyond the last stage its final rate goes on, in the same
        stage; at a final rate of 0 that is never: infinity.
        """
        edges = np.concatenate([[0.0], np.cumsum([stage.expected() for stage in self.stages])])
        begins_s = np.concatenate([[0.0], np.cumsum([stage.duration_s for stage in self.stages])])
        stage_of = np.searchsorted(edges[1:], arrivals, side="right")
        seconds = np.empty(len(arrivals))
        for index, stage in enumerate(self.stages):
            rows = stage_of == index
            seconds[rows] = begins_s[index] + stage.reached_s(arrivals[rows] - edges[index])
        late = stage_of == len(self.stages)
        final_rps = self.stages[-1].end_rps
        seconds[late] = begins_s[-1] + (arrivals[late] - edges[-1]) / final_rps if final_rps else math.inf
        return seconds, np.minimum(stage_of, len(self.stages) - 1).astype(np.int16)

    @classmethod
    def ramp(cls, strategy: str, start_rps: float, end_rps: float, *, num_prompts: int | None = None,
             duration_s: float | None = None) -> Self:
        """One stage for vLLM's --ramp-up-strategy, --ramp-up-start-rps and --ramp-up-end-rps.

        It lasts `duration_s`, or as long as `num_prompts` arrivals take on average; exactly one
        is given. The rate is a function of time, as the help of these flags says. In vLLM 0.32
        itself (benchmarks/serve.py) it is one of the request's number, by which a linear ramp is
        an exponential one in time and takes longer: what our `exponential` does.
        """
        if strategy not in ("linear", "exponential"):
            raise UsageError(f"unknown --ramp-up-strategy {strategy!r}; known: linear, exponential")
        if (num_prompts is None) == (duration_s is None):
            raise UsageError("give either a number of requests or a duration for the ramp")
        shape: Shape = "linear" if strategy == "linear" else "exponential"
        if duration_s is None:
            second = Stage(1, start_rps, end_rps, shape).expected()
            if not second:
                raise UsageError("a ramp from 0 to 0 requests/s sends nothing: raise --ramp-up-end-rps")
            duration_s = (num_prompts or 0) / second
        return cls((Stage(duration_s, start_rps, end_rps, shape),))


def parse_stages(text: str) -> RateProfile:
    """Stages as `30s@2,60s@2..8,30s@8`: each a duration (ms, s, m or h) at a rate in requests per
    second, or from one rate to another; `60s@2..8exp` rises by equal factors. A rate of 0 is a pause.
    UsageError, one line, for anything else."""
    if not text.strip():
        raise UsageError(f"no stage given: {_EXAMPLE}")
    return RateProfile(tuple(_stage(part.strip()) for part in text.split(",")))


def _stage(text: str) -> Stage:
    if (match := _STAGE.fullmatch(text)) is None:
        raise UsageError(f"stage {text[:40]!r} is not DURATION@RATE or DURATION@RATE..RATE: {_EXAMPLE}")
    start = _number(match["start"], text)
    end = start if match["end"] is None else _number(match["end"], text)
    try:
        return Stage(_number(match["time"], text) * _SECONDS[match["unit"]], start, end,
                     "exponential" if match["exponential"] else "linear")
    except UsageError as error:
        raise UsageError(f"stage {text[:40]!r}: {error}") from error


def _number(text: str, stage: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"stage {stage[:40]!r}: {text[:20]!r} is not a number; {_EXAMPLE}") from None
