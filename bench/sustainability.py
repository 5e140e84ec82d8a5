"""Whether the engine kept up with the load: otherwise latencies describe the length of the run."""

import math
from dataclasses import dataclass

import numpy as np

from bench.prefill_curve import Deadlines
from bench.run import NEVER, Bool, Int64, Run

MAX_MEDIAN_DELAY_NS = 2_000_000_000
"""Sarathi-Serve (arXiv 2403.02310): a load is carried while the median scheduling delay is at most 2 s."""
IN_FLIGHT_SIGMAS = 1.0
LATENCY_GROWTH = 1.5
LATENCY_RANK_SIGMAS = 2.6
"""Of the three signs of a backlog. Together, on simulated queues of 30 to 1000 requests with uniform
and log-normal service: no alarm at half load or without a queue, under a tenth at 80 %, at least
nine in ten runs of 100 requests caught at 250 % and of 300 requests at 130 %."""
MIN_ARRIVALS = 20
"""With fewer measured arrivals no backlog is claimed."""


@dataclass(frozen=True, slots=True)
class Sustainability:
    """`sustainable` with the reasons against it, and the figures behind it (None: not measurable)."""

    sustainable: bool
    reasons: tuple[str, ...]
    median_delay_ns: float | None
    delay_source: str
    """`step log`; without one `ttft beyond a lone prefill`, and without a curve `ttft`, an upper bound."""
    in_flight_early: float | None
    """Mean requests in flight over the middle third of the arrivals."""
    in_flight_late: float | None
    """The same over the last third."""


def sustainable(run: Run, deadlines: Deadlines | None = None) -> Sustainability:
    """Sarathi-Serve's rule on the median scheduling delay, and no growing backlog; measured rows only.

    A backlog grows when three signs agree. Requests in flight rose from the middle third of the
    arrival window to the last (the first may still be filling the engine) by more than a standard
    deviation of what they are when nothing queues, a difference of Poisson counts. Requests of the
    last third took 1.5 times as long as those of the first, by the median. And a rank test says
    that this is not chance. More in flight alone may be luck, slower answers alone may be longer
    ones; under overload all must come.
    """
    delays, source = _delays(run, deadlines)
    median = float(np.median(delays)) if len(delays) else None
    reasons = []
    if median is not None and median > MAX_MEDIAN_DELAY_NS:
        reasons.append(f"median scheduling delay {median / 1e9:.2f} s is above "
                       f"{MAX_MEDIAN_DELAY_NS / 1e9:g} s (by {source})")
    early, late = _in_flight_means(run)
    if early is not None and late is not None and late - early > IN_FLIGHT_SIGMAS * math.sqrt(early + late):
        growth, rank_sigmas = _latency_growth(run)
        if growth > LATENCY_GROWTH and rank_sigmas > LATENCY_RANK_SIGMAS:
            reasons.append(f"the backlog grew: {early:.1f}, then {late:.1f} requests in flight, and the last "
                           f"third of the requests took {growth:.1f} times as long as the first")
    return Sustainability(not reasons, tuple(reasons), median, source, early, late)


def scheduling_delays_ns(run: Run, rows: Bool) -> Int64:
    """Sending to first engine step of the rows that the step log knows; empty when it lost steps."""
    if run.steps.lost:  # a later chunk could pass for the first
        return np.zeros(0, dtype=np.int64)
    numbers, first_ns = run.steps.first_scheduled()
    if not len(numbers):
        return np.zeros(0, dtype=np.int64)
    place = np.minimum(np.searchsorted(numbers, run.index[rows]), len(numbers) - 1)
    known = numbers[place] == run.index[rows]
    delays: Int64 = first_ns[place[known]] - run.sent_ns[rows][known]
    return delays


def _delays(run: Run, deadlines: Deadlines | None) -> tuple[Int64, str]:
    sent = run.measured & (run.sent_ns != NEVER)
    delays = scheduling_delays_ns(run, sent)
    if len(delays):
        return delays, "step log"
    ttft = (run.first_token_ns() - run.sent_ns)[run.ok]
    if deadlines is None:
        return ttft, "ttft"
    beyond = np.maximum(ttft - deadlines.curve.prefill_ns(run.input_len[run.ok]), 0)
    return beyond, "ttft beyond a lone prefill"


def _in_flight_means(run: Run) -> tuple[float | None, float | None]:
    intended = run.intended_ns[run.measured]
    if len(intended) < MIN_ARRIVALS or intended.max() == intended.min():
        return None, None
    start, end = int(intended.min()), int(intended.max())
    third = (end - start) / 3
    return _mean_in_flight(run, start + third, end - third), _mean_in_flight(run, end - third, end)


def _mean_in_flight(run: Run, start_ns: float, end_ns: float) -> float:
    """Time average over the window; warm-up requests are in flight too."""
    sent = run.sent_ns != NEVER
    began = run.sent_ns[sent]
    ended = np.where(run.end_ns[sent] == NEVER, np.iinfo(np.int64).max, run.end_ns[sent])
    inside = np.clip(ended, start_ns, end_ns) - np.clip(began, start_ns, end_ns)
    return float(inside.sum() / (end_ns - start_ns))


def _latency_growth(run: Run) -> tuple[float, float]:
    """Time from intended to end of the last third of the measured requests against the first third:
    ratio of the medians, and standard deviations of the rank sum (Mann-Whitney) above chance."""
    rows = run.measured & (run.end_ns != NEVER)
    took_ns = (run.end_ns - run.intended_ns)[rows]
    third = len(took_ns) // 3
    if not third:
        return 1.0, 0.0
    first, last = np.sort(took_ns[:third]), took_ns[-third:]
    ratio = float(np.median(last)) / max(1.0, float(np.median(first)))
    # Ties count half.
    pairs_longer = (np.searchsorted(first, last, "left") + np.searchsorted(first, last, "right")).sum() / 2
    spread = third * math.sqrt((2 * third + 1) / 12)
    return ratio, float(pairs_longer - third * third / 2) / spread
