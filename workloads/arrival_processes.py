"""How requests come: the processes that a workload may name, told apart by `kind`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from workloads.arrivals import arrival_offsets_ns, unit_rate_arrivals, whole_ns
from workloads.errors import UsageError
from workloads.slot_process import RepeatedRates, Slots, SlotSeconds
from workloads.stratified import evened, whole_blocks

_MOST_STATES = 10_000_000
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Stream = Callable[[str], np.random.Generator]
"""A generator of its own for each name, the same for the same name."""
_Shape = Annotated[float, Field(ge=0.001, le=1e6)]


class Process(BaseModel, ABC, frozen=True, extra="forbid"):
    """What every process answers. Fewer arrivals are a prefix of more."""

    @abstractmethod
    def arrivals_s(self, n: int, rate_rps: float, stream: Stream, *, even: bool = False) -> Float64:
        """Seconds to each of `n` arrivals at a mean rate of `rate_rps`: shape (n,), ascending, above 0.

        `even` draws as `stratified` does: the rate of every thousand arrivals is the mean rate.
        """

    @abstractmethod
    def describe(self) -> str:
        """One line for a person, without a full stop."""


class _Renewal(Process, frozen=True):
    """Gaps are independent and scale with the rate; other processes have a time of their own, in seconds."""

    @abstractmethod
    def unit_arrivals(self, n: int, rng: np.random.Generator) -> Float64:
        """Arrivals of a mean gap of 1, shape (n,)."""

    def drawn(self, n: int, stream: Stream, *, even: bool) -> Float64:
        """The same of the process's own stream; `even`: every 1,024 gaps are scaled to last 1,024."""
        if not even:
            return self.unit_arrivals(n, stream("arrivals"))
        arrivals = self.unit_arrivals(whole_blocks(n), stream("arrivals"))
        return np.asarray(np.cumsum(evened(np.diff(arrivals, prepend=0.0)))[:n])

    def arrivals_s(self, n: int, rate_rps: float, stream: Stream, *, even: bool = False) -> Float64:
        return self.drawn(n, stream, even=even) / rate_rps


class Poisson(_Renewal, frozen=True):
    """Independent arrivals: gaps are exponential."""

    kind: Literal["poisson"] = "poisson"

    def unit_arrivals(self, n: int, rng: np.random.Generator) -> Float64:
        return unit_rate_arrivals(n, 1.0, rng)

    def describe(self) -> str:
        return "Poisson"


class Gamma(_Renewal, frozen=True):
    """Gaps are gamma distributed, of this `shape` or this coefficient of variation, `cv` = 1 / sqrt(shape);
    a shape of 1 is Poisson, less is burstier."""

    kind: Literal["gamma"] = "gamma"
    shape: _Shape | None = None
    cv: Annotated[float, Field(ge=0.001, le=30)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.shape is None) == (self.cv is None):
            raise ValueError("give either shape or cv")
        return self

    def unit_arrivals(self, n: int, rng: np.random.Generator) -> Float64:
        shape = 1 / self.cv**2 if self.cv is not None else self.shape
        assert shape is not None   # by _check_one
        return unit_rate_arrivals(n, shape, rng)

    def describe(self) -> str:
        return "gamma, " + (f"cv {self.cv:g}" if self.cv is not None else f"shape {self.shape:g}")


class Weibull(_Renewal, frozen=True):
    """Gaps are Weibull distributed; a shape of 1 is Poisson, less is burstier."""

    kind: Literal["weibull"] = "weibull"
    shape: Annotated[float, Field(ge=0.05, le=1e3)]

    def unit_arrivals(self, n: int, rng: np.random.Generator) -> Float64:
        return np.asarray(np.cumsum(rng.weibull(self.shape, n) / math.gamma(1 + 1 / self.shape)))

    def describe(self) -> str:
        return f"Weibull, shape {self.shape:g}"


class Constant(_Renewal, frozen=True):
    """Every gap is the same."""

    kind: Literal["constant"] = "constant"

    def unit_arrivals(self, n: int, rng: np.random.Generator) -> Float64:
        return unit_rate_arrivals(n, math.inf, rng)

    def describe(self) -> str:
        return "constant"


class _Modulated(Process, frozen=True):
    """A rate that changes with time; arrivals come as gamma renewals of that rate."""

    burstiness: _Shape = 1.0
    """Shape of the gamma distribution of the gaps while the rate is steady: 1 is Poisson."""

    @abstractmethod
    def _reached_s(self, arrivals_s: Float64, stream: Stream) -> Float64:
        """When the rate, of a mean of 1, adds up to each of `arrivals_s`."""

    def arrivals_s(self, n: int, rate_rps: float, stream: Stream, *, even: bool = False) -> Float64:
        steady = Gamma(shape=self.burstiness).arrivals_s(n, rate_rps, stream, even=even)
        return self._reached_s(steady, stream)


class OnOff(_Modulated, frozen=True):
    """Bursts: states of exponential length in turn, with requests in one and few or none in the other."""

    kind: Literal["on-off"] = "on-off"
    on_s: SlotSeconds
    """Mean length of a burst, in seconds whatever the rate."""
    off_s: SlotSeconds
    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The rate outside bursts, relative to that within."""

    def _reached_s(self, arrivals_s: Float64, stream: Stream) -> Float64:
        on_rate = (self.on_s + self.off_s) / (self.on_s + self.low * self.off_s)
        rng = stream("arrivals-states")
        starts_on = rng.random() < self.on_s / (self.on_s + self.off_s)
        lengths, rates = (self.on_s, self.off_s), (on_rate, self.low * on_rate)
        if not starts_on:
            lengths, rates = lengths[::-1], rates[::-1]
        drawn = np.zeros((0, 2))
        while float((drawn * rates).sum()) <= arrivals_s[-1]:
            # Lengths are drawn in turn, so that more of them begin with the same.
            more = rng.standard_exponential((max(256, len(drawn)), 2)) * lengths
            drawn = np.concatenate([drawn, more])
            if len(drawn) > _MOST_STATES:
                raise UsageError(f"bursts of {self.on_s:g} s on and {self.off_s:g} s off are too short for "
                                 f"so long a run: it would have more than {_MOST_STATES} of them")
        ends_s = np.concatenate([[0.0], np.cumsum(drawn)])
        sums = np.concatenate([[0.0], np.cumsum(drawn * rates)])
        return np.asarray(np.interp(arrivals_s, sums, ends_s), dtype=np.float64)

    def describe(self) -> str:
        low = f", {self.low:g} of that rate between them" if self.low else ""
        return f"bursts of {self.on_s:g} s on, {self.off_s:g} s off{low}"


class Profile(_Modulated, RepeatedRates, frozen=True):
    """Rates that repeat, such as the 24 hours of a day: slot_s 3600 and 24 factors."""

    kind: Literal["profile"] = "profile"

    def _reached_s(self, arrivals_s: Float64, stream: Stream) -> Float64:
        return self.reached_s(arrivals_s)

    def describe(self) -> str:
        return f"rates of {len(self.factors)} slots of {self.slot_s:g} s that repeat"


class AllAtOnce(Process, frozen=True):
    """Every request is sent at the start, whatever the rate."""

    kind: Literal["all-at-once"] = "all-at-once"

    def arrivals_s(self, n: int, rate_rps: float, stream: Stream, *, even: bool = False) -> Float64:
        return np.zeros(n)

    def describe(self) -> str:
        return "all at once"


ArrivalProcess = Annotated[
    Poisson | Gamma | Weibull | Constant | OnOff | Profile | Slots | AllAtOnce, Field(discriminator="kind")]
"""A field of this type takes any of the processes."""


def process_offsets_ns(process: ArrivalProcess, n: int, rate_rps: float, stream: Stream, *,
                       even: bool = False) -> Int64:
    """Nanoseconds to each of `n` arrivals, shape (n,), never decreasing; a rate of infinity puts all at 0,
    at any other the first is after 0. UsageError for a rate or a number that cannot be."""
    if isinstance(process, AllAtOnce) or math.isinf(rate_rps):
        return arrival_offsets_ns(n, math.inf, 1.0, stream("arrivals"))
    if not rate_rps > 0:
        raise UsageError(f"the request rate must be above 0 per second (inf: all at once); got {rate_rps:g}")
    if n < 1:
        raise UsageError(f"a plan needs at least 1 request; got {n}")
    with np.errstate(over="ignore", invalid="ignore"):   # refused just below
        if isinstance(process, _Renewal):
            offsets_ns = process.drawn(n, stream, even=even) * (1e9 / rate_rps)   # the rounding of old plans
        else:
            offsets_ns = process.arrivals_s(n, rate_rps, stream, even=even) * 1e9
    return whole_ns(offsets_ns)


def unit_arrivals_for_stages(process: ArrivalProcess, n: int, stream: Stream, *, even: bool) -> Float64:
    """Arrivals of a mean gap of 1, for stages to place; UsageError for a process with a time of its own."""
    if not isinstance(process, _Renewal):
        raise UsageError(f"stages say themselves how the rate changes: they take no arrivals of kind "
                         f"{process.kind!r}, only poisson, gamma, weibull and constant")
    return process.drawn(n, stream, even=even)


def gamma_of(burstiness: float) -> ArrivalProcess:
    """The process of vLLM's --burstiness; any number, as `unit_rate_arrivals` refuses what cannot be."""
    return Gamma.model_construct(shape=burstiness)
