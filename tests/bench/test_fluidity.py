from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fluidity import FluidityResult, fluid_token_rate, fluidity_index, fluidity_of_requests
from bench.token_times import TokenArrivals

MS = 1_000_000
gaps_of_one = st.lists(st.integers(0, 300), max_size=30)
gaps_of_many = st.lists(gaps_of_one, max_size=12)
deadlines = st.integers(0, 200)
steps = st.integers(1, 60)


def by_definition(gaps: list[int], prefill: int, decode: int) -> tuple[int, int]:
    slack = total = missed = 0
    for i, gap in enumerate(gaps):
        due = prefill if i == 0 else decode
        if gap <= due + slack:
            slack += due - gap
            total += 1
        else:
            misses = (gap - slack - due) // decode + 1
            missed += misses
            total += misses
            slack = 0
    return total, missed


def arrivals_of(requests: list[list[int]]) -> TokenArrivals:
    offsets = np.cumsum([0, *map(len, requests)], dtype=np.int64)
    return TokenArrivals.from_gaps(np.array(list(chain(*requests)), dtype=np.int64), offsets)


VECTORS = [
    ([100] + [20] * 9, 10, 0, 1),
    ([101, 25, 25, 25], 4, 1, 0.75),
    ([50, 70, 25, 25], 4, 0, 1),
    ([100] + [20] * 8 + [65] + [25] * 3, 13, 0, 1),
    ([100, 65] + [20] * 8 + [25] * 3, 14, 2, 12 / 14),
    ([100, 75, 25], 5, 3, 0.4),
    ([100, 62.5, 25], 4, 2, 0.5),
    ([180, 25, 25], 6, 4, 2 / 6),
    ([100, 25, 0, 0, 0, 100, 0, 0, 0], 9, 0, 1),
    ([90], 1, 0, 1),
    ([130], 2, 2, 0),
    ([], 0, 0, None),
]


@pytest.mark.parametrize(("gaps_ms", "total", "missed", "index"), VECTORS)
def test_vectors(gaps_ms: list[float], total: int, missed: int, index: float | None) -> None:
    """Every vector of the definition comes out exactly."""
    gaps = [int(gap * MS) for gap in gaps_ms]
    assert fluidity_index(gaps, 100 * MS, 25 * MS) == FluidityResult(total, missed, pytest.approx(index))


def test_wrong_units_are_refused() -> None:
    """Milliseconds as floats, negative gaps and a zero decode deadline are refused, not rounded."""
    with pytest.raises(TypeError, match="whole nanoseconds"):
        fluidity_index([0.1, 0.025], 100, 25)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="negative"):
        fluidity_index([-1], 100, 25)
    with pytest.raises(ValueError, match="at least 1 ns"):
        fluidity_index([1], 100, 0)
    with pytest.raises(ValueError, match="too long"):
        fluidity_index([1, 1], 100, 1 << 62)


@given(gaps_of_many, deadlines, steps)
def test_all_requests_at_once_equal_the_recurrence(
    requests: list[list[int]], prefill: int, decode: int
) -> None:
    """The closed form over many requests gives the figures of the token-by-token definition."""
    found = fluidity_of_requests(arrivals_of(requests), prefill, decode)
    expected = [by_definition(r, prefill, decode) for r in requests]
    assert list(zip(found.total, found.missed, strict=True)) == expected


@given(gaps_of_one, deadlines, steps)
def test_one_late_token_is_one_stall(gaps: list[int], prefill: int, decode: int) -> None:
    """Hits and late tokens add up to the tokens; a stall is at least 1 ns and none exceeds their sum."""
    found = fluidity_of_requests(arrivals_of([gaps]), prefill, decode)
    late, late_ns, longest = int(found.late_tokens[0]), int(found.late_ns[0]), int(found.longest_ns[0])
    assert found.total[0] - found.missed[0] + late == len(gaps)
    assert late <= late_ns
    assert (longest > 0) == (late > 0)
    assert longest <= late_ns


@given(gaps_of_one, deadlines, steps, steps)
def test_more_time_a_token_never_lowers_fluidity(
    gaps: list[int], prefill: int, decode: int, more: int
) -> None:
    """Fluidity does not fall when the decode deadline grows, so bisection is safe."""
    slow, fast = (fluidity_index(gaps, prefill, d).index for d in (decode + more, decode))
    assert slow is None or fast is None or slow >= fast


@given(gaps_of_one, deadlines, steps, st.integers(1, 10**6))
def test_the_unit_of_time_does_not_matter(gaps: list[int], prefill: int, decode: int, scale: int) -> None:
    """Scaling every gap and both deadlines alike changes nothing."""
    scaled = fluidity_index([gap * scale for gap in gaps], prefill * scale, decode * scale)
    assert scaled == fluidity_index(gaps, prefill, decode)


bursts_of_many = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=8), min_size=1, max_size=6)


@given(bursts_of_many, deadlines, steps)
def test_a_read_of_several_tokens_counts_as_gap_then_zeros(
    bursts: list[list[int]], prefill: int, decode: int
) -> None:
    """Judging reads gives the figures of judging their tokens one by one, as gap, 0, ..., 0."""
    gap = 70
    reads = TokenArrivals(
        np.cumsum([0, *map(len, bursts)], dtype=np.int64),
        np.concatenate([np.arange(1, len(b) + 1) * gap for b in bursts]).astype(np.int64),
        np.array(list(chain(*bursts)), dtype=np.int64),
    )
    tokens = [list(chain(*([gap] + [0] * (k - 1) for k in burst))) for burst in bursts]
    found = fluidity_of_requests(reads, prefill, decode)
    expected = [by_definition(t, prefill, decode) for t in tokens]
    assert list(zip(found.total, found.missed, strict=True)) == expected


def test_very_long_times_do_not_overflow() -> None:
    """Requests whose lateness together exceeds 64 bits are still judged exactly."""
    huge = 3 << 60
    found = fluidity_of_requests(arrivals_of([[huge, 5]] * 5), 0, 10)
    assert found.longest_ns.tolist() == [huge] * 5
    assert found.late_tokens.tolist() == [1] * 5


def rate_by_definition(requests: list[list[int]]) -> float | None:
    bodies = [request[1:] for request in requests if len(request) > 1]
    if not bodies:
        return None
    for decode in range(1, 302):
        reached = 0
        for gaps in bodies:
            total, missed = by_definition([0, *gaps], 0, decode)
            reached += missed * 10 <= total - 1
        if reached * 100 >= 99 * len(bodies):
            return None if decode == 1 else 1e9 / decode
    raise AssertionError("the longest gap is always long enough")


@given(gaps_of_many)
def test_fluid_token_rate_is_the_smallest_deadline_that_99_percent_reach(requests: list[list[int]]) -> None:
    """Bisection with dropping of settled requests finds what trying every deadline finds."""
    assert fluid_token_rate(arrivals_of(requests)) == rate_by_definition(requests)


def test_fluid_token_rate_of_a_steady_stream() -> None:
    """A token every 20 ms is read at 50 tokens a second whatever its first token did; one-token
    answers have no rate and do not raise anybody's."""
    steady = [[900 * MS] + [20 * MS] * 9, [5 * MS] + [20 * MS] * 9]
    assert fluid_token_rate(arrivals_of(steady)) == pytest.approx(50)
    assert fluid_token_rate(arrivals_of([*steady, [MS]])) == pytest.approx(50)
    assert fluid_token_rate(arrivals_of([[MS], []])) is None


def test_an_answer_in_one_piece_has_no_rate() -> None:
    """When the whole answer arrives in one read its speed is undefined, not huge."""
    assert fluid_token_rate(arrivals_of([[5 * MS, 0, 0, 0]])) is None
