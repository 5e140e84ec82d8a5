"""From recorded arrival times to a process with their rate, their bursts and their slow changes."""

import math
import zlib
from functools import partial

import numpy as np
import numpy.typing as npt

from workloads.arrival_processes import AllAtOnce, ArrivalProcess, Gamma, Poisson
from workloads.fitting.mixture import mean_ranks
from workloads.slot_process import RepeatedRates, Slots
from workloads.traces.arrival_counts import ArrivalCounts

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

SLOT_S = 10.0
"""As the index of dispersion at 10 s is to be kept, whatever order the slots come in."""
_MOST_SLOTS = 360
"""Those of an hour."""
_FEWEST_SLOTS = 16
_FEWEST_ROWS = 30
"""From fewer no dispersion can be told."""
_HOUR_S = 3600.0
_HOURS_FROM = 6
"""Of a trace of so many hours the hours have rates of their own."""
_WEEK_HOURS = 168
_SIMULATED = 60_000
"""Arrivals per try, about, while the shape within slots is sought."""
_TRIES = 14
_TICKING = 1.5
"""Times more dispersion at 1 s than at 10 s: of a clock with coarse ticks."""
_EVEN = 0.9
"""Below this dispersion at 10 s a trace is too even for slots, whose counts are Poisson distributed."""
_SEED = 20
_SLOTS_A_MINUTE = 6
_PERSISTENCES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def fitted_arrivals(arrival_ns: Int64) -> ArrivalProcess:
    """A process like these arrivals (ascending); its rate is a matter of its own.

    Slots of 10 s for a trace of at least 160 s, gamma distributed gaps for a shorter one, for fewer than 30
    requests or less than one an hour, and for what is more even than a Poisson process; `all-at-once`
    where no time passes.
    """
    if len(arrival_ns) < 2:
        return Poisson()
    if arrival_ns[0] == arrival_ns[-1]:
        return AllAtOnce()
    counts = ArrivalCounts()
    counts.add(arrival_ns)
    slots, dispersion = counts.span_ns / (SLOT_S * 1e9), counts.dispersion(10, whole=True)
    too_few = slots < _FEWEST_SLOTS or counts.n < _FEWEST_ROWS or counts.n / slots * _MOST_SLOTS < 1
    if too_few or dispersion is None or dispersion < _EVEN:
        return _renewals(counts.gap_cv)
    rates = _slot_rates(arrival_ns)
    over = _hours(rates) if len(rates) * SLOT_S >= _HOURS_FROM * _HOUR_S else None
    return _slots(rates, over, counts)


def _renewals(gap_cv: float | None) -> ArrivalProcess:
    if gap_cv is None or abs(gap_cv - 1) < 0.05:
        return Poisson()
    return Gamma(cv=_digits(min(max(gap_cv, 0.001), 30.0)))


def _slot_rates(arrival_ns: Int64) -> Float64:
    """Arrivals per slot; the last, which the trace does not fill, is scaled up or left out."""
    seconds = (arrival_ns - arrival_ns[0]) / 1e9
    counts = np.bincount((seconds // SLOT_S).astype(np.int64)).astype(np.float64)
    filled = seconds[-1] / SLOT_S - (len(counts) - 1)
    if filled < 0.5:
        return np.asarray(counts[:-1])
    counts[-1] /= filled
    return counts


def _hours(rates: Float64) -> RepeatedRates:
    """Of traces of more than a week: of the hours of a week."""
    hour = (np.arange(len(rates)) * SLOT_S // _HOUR_S).astype(np.int64) % _WEEK_HOURS
    means = np.bincount(hour, rates) / np.bincount(hour)
    return RepeatedRates(slot_s=_HOUR_S, factors=tuple(_digits(f) for f in (means / means.mean()).tolist()))


def _slots(rates: Float64, over: RepeatedRates | None, counts: ArrivalCounts) -> ArrivalProcess:
    per_slot = float(rates.mean())
    middles = np.asarray((np.arange(len(rates)) + 0.5) * SLOT_S, dtype=np.float64)
    slow = np.ones(len(rates)) if over is None else over.at(middles)
    relative = np.divide(rates / per_slot, slow, out=np.zeros(len(rates)), where=slow > 0)[slow > 0]
    spread = float((slow**2).mean() / slow.mean() ** 2)
    squares = {width: _mean_square(counts.dispersion(width, whole=True) or 1.0, per_slot * width / SLOT_S)
               / spread for width in (1, 10, 60)}
    factors = _with_mean_square(_compressed(np.sort(relative)), max(squares[10], 1.0))
    correlation, persistence = _order(factors, relative, squares[60])
    slots = Slots(slot_s=SLOT_S, factors=_as_listed(factors), correlation=_digits(correlation),
                  persistence=_digits(persistence))
    burstiness = _burstiness(slots, per_slot, squares)
    return slots.model_copy(update={"burstiness": burstiness, "over": over})


def _mean_square(dispersion: float, mean: float) -> float:
    """Of the relative rate of windows with `mean` arrivals, which are Poisson distributed around it: that
    adds 1 to the index of dispersion. Mean squares of rates that multiply one another multiply."""
    return 1 + (dispersion - 1) / mean


def _compressed(ordered: Float64) -> Float64:
    """At most 360 numbers with the same mean: means of equal parts. They are so many that whole cycles of
    them last as long as the trace, as only whole cycles have exactly its rate."""
    cycles = -(-len(ordered) // _MOST_SLOTS)
    return np.array([part.mean() for part in np.array_split(ordered, round(len(ordered) / cycles))])


def _with_mean_square(raw: Float64, wanted: float) -> Float64:
    """Powers of `raw` with a mean of 1 and, as near as can be, this mean square; what is 0 stays 0."""
    def powered(power: float) -> Float64:
        factors = np.where(raw > 0, raw, 1.0) ** power * (raw > 0)
        return np.asarray(factors / factors.mean())

    low, high = 0.0, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if (powered(middle) ** 2).mean() < wanted else (low, middle)
    return powered((low + high) / 2)


def _order(factors: Float64, relative: Float64, wanted: float) -> tuple[float, float]:
    """Correlation and persistence of the order of slots: for each persistence the correlation at which the
    mean square of the rates of minutes is `wanted`; of these, where neighbours are as much alike as in the
    trace."""
    alike = _next_correlation(relative)
    best, nearest = (0.0, 0.0), math.inf
    for persistence in _PERSISTENCES:
        low, high = 0.0, persistence
        for _ in range(7):
            middle = (low + high) / 2
            found, seen = _of_orders(factors, middle, persistence)
            low, high = (middle, high) if found < wanted else (low, middle)
        away = abs(seen - alike) + abs(found - wanted) / max(wanted - 1, 0.01)
        if away < nearest:
            best, nearest = (middle, persistence), away
    return best


def _of_orders(factors: Float64, correlation: float, persistence: float) -> tuple[float, float]:
    """Mean square of the rates of minutes, and rank correlation of neighbours, as means over some orders."""
    slots = Slots(slot_s=SLOT_S, factors=tuple(factors.tolist()), correlation=correlation,
                  persistence=persistence)
    ordered = np.sort(slots.rates)
    whole = len(factors) // _SLOTS_A_MINUTE * _SLOTS_A_MINUTE
    rng = np.random.default_rng(_SEED)
    found, alike = [], []
    for _ in range(12):
        rates = ordered[slots.ranks(rng)]
        minutes = rates[:whole].reshape(-1, _SLOTS_A_MINUTE).mean(axis=1)
        found.append(float((minutes**2).mean() / minutes.mean() ** 2))
        alike.append(_next_correlation(rates))
    return float(np.mean(found)), float(np.mean(alike))


def _next_correlation(rates: Float64) -> float:
    """Rank correlation of slots and the next."""
    ranks = mean_ranks(rates)
    one, other = ranks[:-1], ranks[1:]
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else 0.0


def _burstiness(slots: Slots, per_slot: float, squares: dict[int, float]) -> float:
    """The shape of the gaps within slots at which the dispersion at 1 s is the trace's.

    Far more dispersion at 1 s than at 10 s comes of clocks that tick every few seconds, as Mooncake's
    conversations have it; these requests are spread as a Poisson process.
    """
    wanted, longer = (1 + (squares[width] - 1) * per_slot * width / SLOT_S for width in (1, 10))
    if wanted > _TICKING * max(longer, 1.0):
        return 1.0
    kept = max(round(_SIMULATED / per_slot), _FEWEST_SLOTS)
    if len(slots.factors) > kept:   # a sample of the slots tells as much
        places = np.linspace(0, len(slots.factors) - 1, kept).round().astype(np.int64)
        sampled = Slots(slot_s=SLOT_S, factors=tuple(np.array(slots.factors)[places].tolist()))
        wanted *= float(np.mean(sampled.rates**2) / np.mean(slots.rates**2))
        slots = sampled
    low, high = math.log(0.02), math.log(50.0)
    for _ in range(_TRIES):
        middle = (low + high) / 2
        tried = slots.model_copy(update={"burstiness": math.exp(middle)})
        low, high = (middle, high) if _dispersion_at_1s(tried, per_slot) > wanted else (low, middle)
    return _digits(math.exp((low + high) / 2))


def _dispersion_at_1s(slots: Slots, per_slot: float) -> float:
    """Of a cycle, as a mean over two seeds."""
    count, found = max(round(per_slot * len(slots.factors)), 2), []
    for seed in (_SEED, _SEED + 1):
        arrivals = slots.arrivals_s(count, per_slot / SLOT_S, partial(_stream, seed), even=True)
        simulated = ArrivalCounts()
        simulated.add(np.rint(arrivals * 1e9).astype(np.int64))
        found.append(simulated.dispersion(1, whole=True) or 1.0)
    return float(np.mean(found))


def _stream(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _as_listed(factors: Float64) -> tuple[float, ...]:
    return tuple(_digits(factor) for factor in factors.tolist())


def _digits(value: float) -> float:
    return float(f"{value:.3g}")
