from collections.abc import Callable

import numpy as np
import pytest

from bench.prefill_curve import Deadlines, PrefillCurve
from bench.run import Run
from bench.sustainability import sustainable

RunOf = Callable[..., Run]


def queue_run(run_of: RunOf, n: int, load: float, seed: int, servers: int = 4) -> Run:
    """Poisson arrivals at `load` times what `servers` servers of 1 s a request can serve."""
    rng = np.random.default_rng(seed)
    every_s = 1 / (load * servers)
    arrivals = np.cumsum(rng.exponential(every_s, n))
    free = np.zeros(servers)
    requests = []
    for arrival in arrivals:
        server = int(free.argmin())
        begin = max(arrival, free[server])
        free[server] = begin + rng.uniform(0.5, 1.5)
        requests.append([((begin - arrival) * 1e3 + 20, 1), ((free[server] - arrival) * 1e3, 1)])
    return run_of(requests, every_ms=every_s * 1e3, rate_rps=1 / every_s)


@pytest.mark.parametrize("n", [30, 300])
def test_a_light_load_is_never_called_a_backlog(run_of: RunOf, n: int) -> None:
    """At half load no run of thirty, nor of three hundred requests, cries wolf."""
    verdicts = [sustainable(queue_run(run_of, n, 0.5, seed)) for seed in range(40)]
    assert [v.reasons for v in verdicts if not v.sustainable] == []


@pytest.mark.parametrize(("n", "load"), [(60, 2.5), (100, 1.6), (300, 1.3)])
def test_an_overloaded_queue_is_caught(run_of: RunOf, n: int, load: float) -> None:
    """A queue that grows for the whole run is seen, whatever its median delay is by then."""
    verdicts = [sustainable(queue_run(run_of, n, load, seed)) for seed in range(20)]
    assert sum(not v.sustainable for v in verdicts) >= 19


def test_the_backlog_is_seen_before_the_median_delay_is(run_of: RunOf) -> None:
    """With every delay below 2 s, a queue that grows by half a second a second is still a backlog."""
    requests = [[(20 + 12 * i, 1), (300 + 12 * i, 1)] for i in range(120)]
    verdict = sustainable(run_of(requests, every_ms=25, rate_rps=40))
    assert "backlog grew" in verdict.reasons[0]


def test_a_median_delay_above_two_seconds_is_not_sustained(run_of: RunOf) -> None:
    """Sarathi-Serve's rule; without a step log the time beyond a lone prefill is the delay."""
    run = run_of([[(2_500, 1)]] * 8)
    assert "2.50 s is above 2 s (by ttft)" in sustainable(run).reasons[0]
    slow_prefill = Deadlines(PrefillCurve((16,), (1_000_000_000,)), 0, 1_000_000)
    verdict = sustainable(run, slow_prefill)
    assert verdict.sustainable
    assert (verdict.median_delay_ns, verdict.delay_source) == (1_500_000_000, "ttft beyond a lone prefill")


def test_nothing_measured_claims_nothing(run_of: RunOf) -> None:
    """An empty run has no delay and no backlog."""
    verdict = sustainable(run_of([]))
    assert verdict.sustainable
    assert verdict.median_delay_ns is verdict.in_flight_late is None
