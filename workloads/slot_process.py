"""Arrivals of a fitted trace: its rates of equal slots, in an order drawn anew."""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from workloads.errors import UsageError
from workloads.stratified import stratified

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Stream = Callable[[str], np.random.Generator]
Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
SlotSeconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]

_NORMAL = NormalDist()
_FEW = 32.0
"""Up to so many expected arrivals their number is drawn exactly; above, by its expansion around the normal
distribution, whose error is below a tenth of an arrival there."""
_TABLE = 96
_FEWEST_A_CYCLE = 0.01
"""Fewer requests would be sought in thousands of empty cycles."""


class RepeatedRates(BaseModel, frozen=True, extra="forbid"):
    """Relative rates of slots of equal length that repeat, such as the 24 hours of a day."""

    slot_s: SlotSeconds
    factors: Annotated[tuple[Factor, ...], Field(min_length=1, max_length=1000)]
    """Relative to one another; only their ratios count."""

    @model_validator(mode="after")
    def _check_some_rate(self) -> Self:
        if not any(self.factors):
            raise ValueError("at least one of the factors must be above 0")
        return self

    @property
    def rates(self) -> Float64:
        """The factors with a mean of 1."""
        factors = np.array(self.factors)
        return np.asarray(factors / factors.mean())

    @property
    def period_s(self) -> float:
        """Until the rates repeat."""
        return self.slot_s * len(self.factors)

    def at(self, seconds: Float64) -> Float64:
        """The relative rate at these times, with a mean of 1 over a period."""
        slot = (seconds // self.slot_s).astype(np.int64) % len(self.factors)
        return np.asarray(self.rates[slot])

    def reached_s(self, arrivals: Float64) -> Float64:
        """Seconds at which these rates add up to each of `arrivals` seconds of the mean rate."""
        whole, rest = np.divmod(arrivals, self.period_s)
        edges = np.concatenate([[0.0], np.cumsum(self.rates)]) * self.slot_s
        # From the right, so that an arrival at an edge waits for no slot without arrivals after it.
        slot = np.clip(np.searchsorted(edges, rest, side="left") - 1, 0, len(self.factors) - 1)
        within = (rest - edges[slot]) / np.where(self.rates[slot] > 0, self.rates[slot], 1.0)
        return np.asarray(whole * self.period_s + slot * self.slot_s + np.clip(within, 0, self.slot_s))


class Slots(RepeatedRates, frozen=True):
    """Each cycle has a slot of every factor, in an order of its own: its rate and the unevenness of its
    slots are those of the factors, not only on average. Slots stay in seconds whatever the rate.

    The number of arrivals of a slot is Poisson distributed. A cycle begins and ends where the rate is near
    its mean, and the first slot begins with an arrival, as a trace does.
    """

    kind: Literal["slots"] = "slots"
    correlation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Rank correlation of a slot and the next, about."""
    persistence: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of a slot and the one k later it is correlation * persistence ** (k - 1); at least `correlation`."""
    burstiness: Annotated[float, Field(ge=0.01, le=1e3)] = 1.0
    """Shape of the gamma distribution of the gaps within a slot: 1 as a Poisson process, less is burstier."""
    over: RepeatedRates | None = None
    """Slow changes that multiply the slots' rates, such as those of the hours of a day."""

    def arrivals_s(self, n: int, rate_rps: float, stream: Stream, *, even: bool = False) -> Float64:
        """See `arrival_processes.Process`."""
        if rate_rps * self.period_s < _FEWEST_A_CYCLE:
            raise UsageError(f"at {rate_rps:g} requests/s hardly any slot of the arrivals has a request: "
                             f"raise the rate or choose other arrivals")
        pieces: list[Float64] = []
        cycle = count = 0
        while count < n:
            pieces.append(self._cycle(cycle, rate_rps, stream(f"arrivals-{cycle}"), even=even))
            count += len(pieces[-1])
            cycle += 1
        return np.concatenate(pieces)[:n]

    def describe(self) -> str:
        """One line for a person, without a full stop."""
        over = f", over {len(self.over.factors)} slots of {self.over.slot_s:g} s" if self.over else ""
        return (f"rates of {len(self.factors)} slots of {self.slot_s:g} s in random order (correlation "
                f"{self.correlation:g}, burstiness within {self.burstiness:g}){over}")

    def _cycle(self, number: int, rate_rps: float, rng: np.random.Generator, *, even: bool) -> Float64:
        in_order = np.sort(self.rates)
        rates: Float64 = in_order[_turned(self.ranks(rng), in_order)]
        begins_s = np.asarray((number * len(rates) + np.arange(len(rates))) * self.slot_s, dtype=np.float64)
        if self.over is not None:
            rates = np.asarray(rates * self.over.at(np.asarray(begins_s + self.slot_s / 2)))
        expected: Float64 = rates * (rate_rps * self.slot_s)
        chances = np.empty(len(rates))
        # Slots of one rate in random order, or opposites would be neighbours and minutes all alike.
        by_rate = np.lexsort((rng.spawn(1)[0].random(len(rates)), rates))
        chances[by_rate] = _opposites(len(rates), rng) if even else rng.random(len(rates))
        counts = _poisson(expected, chances)
        return self._placed(counts, begins_s, rng, first=number == 0)

    def ranks(self, rng: np.random.Generator) -> Int64:
        """Which of the sorted factors each slot has: the ranks of a first-order autoregressive process
        under white noise, so that the correlation falls from `correlation` by `persistence` a slot."""
        count, persistence = len(self.factors), max(self.persistence, self.correlation)
        share = self.correlation / persistence if persistence else 0.0
        noise, steps = rng.standard_normal((2, count))
        steps[1:] *= math.sqrt(1 - persistence**2)
        state, states = 0.0, np.empty(count)
        for i, step in enumerate(steps.tolist()):
            state = persistence * state + step
            states[i] = state
        values = math.sqrt(share) * states + math.sqrt(1 - share) * noise
        return np.argsort(np.argsort(values))

    def _placed(self, counts: Int64, begins_s: Float64, rng: np.random.Generator, *, first: bool) -> Float64:
        """Arrivals within their slots: renewals, given their number."""
        ends = np.cumsum(counts + 1)
        gaps = rng.standard_gamma(self.burstiness, int(ends[-1]))
        starts = ends - (counts + 1)
        if first and counts[0]:
            gaps[0] = 0.0
        sums = np.add.reduceat(gaps, starts)
        slot = np.repeat(np.arange(len(counts)), counts + 1)
        shares = np.where(sums[slot] > 0, gaps / np.where(sums > 0, sums, 1.0)[slot], 1 / (counts[slot] + 1))
        reached = np.cumsum(shares)
        reached -= np.concatenate([[0.0], reached[ends[:-1] - 1]])[slot]
        inside = np.ones(len(gaps), dtype=bool)
        inside[ends - 1] = False   # the gap from the last arrival to the end of the slot
        arrivals = begins_s[slot[inside]] + np.clip(reached[inside], 0, 1) * self.slot_s
        return np.asarray(np.maximum.accumulate(arrivals)) if len(arrivals) else np.zeros(0)


def _opposites(n: int, rng: np.random.Generator) -> Float64:
    """Uniform numbers whose neighbours are u and 1 - u: slots of about one rate then have too many and too
    few arrivals in turn, and neither the rate nor the dispersion of a cycle is a matter of luck."""
    halves = stratified(-(-n // 2), rng)
    return np.asarray(np.stack([halves, 1 - halves], axis=1).ravel()[:n])


def _turned(ranks: Int64, rates: Float64) -> Int64:
    """The ring of slots cut between two neighbours whose rates are nearest to the mean."""
    away = np.abs(rates[ranks] - 1.0)
    return np.roll(ranks, -int(np.argmin(away + np.roll(away, 1))))


def _poisson(expected: Float64, chances: Float64) -> Int64:
    """The quantiles of Poisson distributions of these means."""
    counts = np.zeros(len(expected), dtype=np.int64)
    few = (expected > 0) & (expected <= _FEW)
    if few.any():
        numbers = np.arange(_TABLE)
        log_factorials = np.concatenate([[0.0], np.cumsum(np.log(numbers[1:]))])
        means = expected[few][:, None]
        below = np.cumsum(np.exp(numbers * np.log(means) - means - log_factorials), axis=1)
        counts[few] = (below <= chances[few][:, None]).sum(axis=1)
    many = expected > _FEW
    if many.any():
        inside = np.clip(chances[many], 1e-12, 1 - 1e-12)
        normal = np.fromiter(map(_NORMAL.inv_cdf, inside.tolist()), np.float64, len(inside))
        means = expected[many]
        # Cornish and Fisher's expansion, to the skewness.
        values = means + normal * np.sqrt(means) + (normal**2 - 1) / 6
        counts[many] = np.maximum(np.rint(values), 0).astype(np.int64)
    return counts
