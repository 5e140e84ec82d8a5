"""How long messages lay in their sockets, and what that says about a run."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.read_delay import ReadDelays
from bench.run import ClientHealth, Run

MS = 1_000_000
RunOf = Callable[..., Run]


@given(st.lists(st.integers(1, 50_000_000_000), min_size=1, max_size=300))
def test_percentiles_are_right_to_a_percent(delays: list[int]) -> None:
    """Whatever the delays, p50 and p99 lie within one percent above a sample at that rank."""
    histogram = ReadDelays()
    histogram.add(delays, [False] * len(delays))
    health = histogram.health(ClientHealth())
    ranked = sorted(delays)
    assert health.read_delay_max_ns == ranked[-1]
    for share, got in ((0.5, health.read_delay_p50_ns), (0.99, health.read_delay_p99_ns)):
        sample = ranked[max(0, -(-len(ranked) * round(share * 100) // 100) - 1)]
        assert got is not None
        assert sample * 0.98 - 1 <= got <= sample * 1.02 + 1


def test_delays_that_nobody_told_are_unknown_not_zero() -> None:
    """Over TLS the kernel's time is not to be had: None, and only the merged share is known."""
    histogram = ReadDelays()
    histogram.add([0, 0, 0, 0], [True, False, False, True])
    assert histogram.health(ClientHealth(loop_lag_p99_ns=5)) == ClientHealth(
        loop_lag_p99_ns=5, merged_share=0.25)
    assert ReadDelays().health(ClientHealth()) == ClientHealth()


@pytest.mark.parametrize(("delay_ms", "merged", "valid"), [
    (1, 0.2, True),       # a server that sends several at once to a client that is quick
    (40, 0.0, True),      # a client that is late, of whose messages each has its own stamp
    (40, 0.0008, True),   # too few to touch a 99th percentile
    (40, 0.02, False),    # a late client joined what came apart
])
def test_a_late_client_is_invalid_once_its_lateness_touches_the_times(
        run_of: RunOf, delay_ms: float, merged: float, valid: bool) -> None:
    """The kernel's stamps are right however late a read is, except for messages read together."""
    client = ClientHealth(
        loop_lag_p99_ns=200 * MS, read_delay_p99_ns=round(delay_ms * MS), merged_share=merged)
    run = run_of([[(100, 1), (120, 1)]] * 200, client=client)
    assert run.validity.valid is valid
    if not valid:
        assert "messages lay in their sockets for 40.0 ms (p99), and 2.0% of them were read together" in (
            run.validity.reasons[0])


def test_one_message_of_a_short_run_does_not_void_it(run_of: RunOf) -> None:
    """Two of 80 are more than a thousandth, and still only two."""
    client = ClientHealth(read_delay_p99_ns=12 * MS, merged_share=2 / 80)
    assert run_of([[(100, 1), (120, 1)]] * 40, client=client).validity.valid


def test_a_saturated_core_is_invalid(run_of: RunOf) -> None:
    """A client that computes all the time has none to send or read in time; it says what to do."""
    busy = run_of([[(100, 1), (120, 1)]] * 40, client=ClientHealth(cpu_share=0.99))
    assert "busy for 99% of the time: use more --workers" in busy.validity.reasons[0]
    assert run_of([[(100, 1), (120, 1)]] * 40, client=ClientHealth(cpu_share=0.6)).validity.valid
