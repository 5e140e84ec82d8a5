import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.chart_parts import ACCENT
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
    assert (sketch.n, sketch.longest_ms, sketch.share_longer(100.0)) == (0, None, None)
    chart = survival_chart([Curve("default", ACCENT, "solid", sketch)])
    assert chart.figure is None
    assert "No run with gaps" in chart.reading


def test_the_share_beyond_the_limit_is_read_from_the_sketch() -> None:
    """Three percent of stalls beyond the limit are reported as three percent."""
    gaps = np.full(10_000, 20_000_000)
    gaps[:300] = np.linspace(300e6, 900e6, 300)
    sketch = survival(gaps)
    assert sketch.share_longer(120.0) == pytest.approx(0.03, rel=0.15)
    assert sketch.share_longer(1000.0) == 0.0


def test_the_table_holds_what_the_chart_draws() -> None:
    """Every point of a curve is a row of the chart's table."""
    sketch = survival(np.arange(1, 5001) * 1_000_000)
    chart = survival_chart([Curve("default", ACCENT, "solid", sketch)], limit_ms=120.0)
    assert chart.figure is not None
    assert len(chart.data.rows) == len(chart.figure["data"][0]["x"]) + 2
    assert "the longest is 5000\u00a0ms" in chart.reading
