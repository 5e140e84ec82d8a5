import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.chart_parts import ACCENT
from reports.objectives import ChartMetric
from reports.quantities import quantity
from reports.survival import LEVELS, survival
from reports.survival_chart import Curve, survival_chart

GAPS = st.lists(st.integers(0, 10**10), min_size=1, max_size=400)


@given(GAPS)
def test_the_sketch_never_falls_and_ends_at_the_longest_gap(gaps: list[int]) -> None:
    """Rarer gaps are longer ones, and none is longer than the longest."""
    sketch = survival(np.array(gaps, dtype=np.int64))
    known = [gap for gap in sketch.gap_ms if gap is not None]
    assert known == sorted(known)
    assert sketch.longest_ms == round(max(gaps) / 1e6, 4)
    assert all(gap <= sketch.longest_ms for gap in known)


@given(GAPS)
def test_percentiles_of_too_few_gaps_are_not_stated(gaps: list[int]) -> None:
    """A level is given exactly where at least one gap lies beyond it."""
    sketch = survival(np.array(gaps, dtype=np.int64))
    assert [gap is not None for gap in sketch.gap_ms] == [len(gaps) * level >= 1 - 1e-9 for level in LEVELS]


def test_the_sketch_keeps_its_size_for_a_million_gaps() -> None:
    """At most 200 points to the 99.99th percentile, which equals numpy's."""
    gaps = np.random.default_rng(0).lognormal(17, 1, 1_000_000).astype(np.int64)
    sketch = survival(gaps)
    assert len(sketch.gap_ms) <= 200
    assert sketch.at(1e-4) == pytest.approx(np.percentile(gaps, 99.99) / 1e6)


def test_no_gaps_give_no_figures() -> None:
    """Runs of one-token answers have no distribution; the chart says so."""
    sketch = survival(np.zeros(0, dtype=np.int64))
    assert (sketch.n, sketch.longest_ms, sketch.n_longer) == (0, None, None)
    chart = survival_chart([Curve("default", ACCENT, "solid", sketch)])
    assert chart.figure is None
    assert "No run with gaps" in chart.reading


@given(GAPS, st.integers(1, 10**4))
def test_gaps_beyond_the_limit_are_counted_one_by_one(gaps: list[int], limit_ms: int) -> None:
    """A gap of exactly the limit is within it."""
    sketch = survival(np.array(gaps, dtype=np.int64), limit_ms)
    assert sketch.n_longer == sum(gap > limit_ms * 1_000_000 for gap in gaps)
    assert survival(np.array(gaps, dtype=np.int64)).n_longer is None


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("p99_tbt_ms", 0.01), ("p99.9_tbt_ms", 0.001), ("median_tbt_ms", 0.5), ("max_tbt_ms", 0.0),
     ("mean_tbt_ms", None)],
)
def test_the_slo_on_a_percentile_is_an_area_that_no_line_may_enter(key: str, allowed: float | None) -> None:
    """A p99 leaves 1 in 100 gaps beyond the limit; a mean can only be drawn as a line."""
    slo = ChartMetric(quantity(key), 120.0)
    sketch = survival(np.arange(1, 5001) * 1_000_000, 120.0)
    chart = survival_chart([Curve("default", ACCENT, "solid", sketch)], slo=slo)
    assert chart.figure is not None
    areas = [shape for shape in chart.figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert slo.allowed_share == pytest.approx(allowed)
    assert ("shaded area" in chart.reading) is bool(areas) is (allowed is not None)
    for area in areas:
        assert area["x0"] == 120.0
        assert area["y0"] == pytest.approx(allowed) if allowed else area["y0"] < 1 / 5000
    assert "4880 of 5000 (98\u00a0%) are longer than the limit of 120\u00a0ms" in chart.reading


def test_the_table_holds_what_the_chart_draws() -> None:
    """Every point of a curve is a row of the chart's table."""
    sketch = survival(np.arange(1, 5001) * 1_000_000)
    chart = survival_chart([Curve("default", ACCENT, "solid", sketch)])
    assert chart.figure is not None
    assert len(chart.data.rows) == len(chart.figure["data"][0]["x"]) + 1
    assert (chart.figure["data"][0]["x"][-1], chart.figure["data"][0]["y"][-1]) == (5000.0, 1 / 5000)
    assert "the longest is 5000\u00a0ms" in chart.reading
