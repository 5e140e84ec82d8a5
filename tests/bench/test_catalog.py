import pytest

from bench.catalog import ALIASES, CATALOG, metric_and_stat
from workloads.errors import UsageError


def test_every_metric_is_complete() -> None:
    """Each metric has a unit, a direction, a population and a one-sentence definition; only times are ns."""
    for name, metric in CATALOG.items():
        assert metric.name == name
        assert metric.definition.endswith(".")
        assert "\n" not in metric.definition
        assert metric.better == ("higher" if metric.unit == "per_s" or name in ("fluidity", "achieved_rate")
                                 else "lower")
    assert set(ALIASES.values()) <= set(CATALOG)


@pytest.mark.parametrize(
    ("name", "stat", "found"),
    [
        ("tbt", "p99", ("tbt", "p99")),
        ("tbt", "p99.0", ("tbt", "p99")),
        ("tbt", "p99.90", ("tbt", "p99.9")),
        ("ttft", "p50", ("ttft", "median")),
        ("e2el", "mean", ("e2e", "mean")),
        ("fluidity", "pooled", ("fluidity", "pooled")),
        ("fluidity", "p01", ("fluidity", "p1")),
        ("stall", "count", ("stall", "count")),
        ("error_rate", None, ("error_rate", None)),
        ("goodput", "attainment", ("goodput", "attainment")),
    ],
)
def test_names_are_understood_in_one_spelling(
    name: str, stat: str | None, found: tuple[str, str | None]
) -> None:
    """Spellings of one statistic become one."""
    metric, spelled = metric_and_stat(name, stat)
    assert (metric.name, spelled) == found


@pytest.mark.parametrize(
    ("name", "stat", "says"),
    [
        ("latency", "p99", "known: ttft, ttft_from_intended"),
        ("tbt", None, "needs a statistic: tbt:mean"),
        ("tbt", "p100", "known: tbt:mean"),
        ("tbt", "p0", "known: tbt:mean"),
        ("tbt", "pNN", "any pNN or pNN.N"),
        ("tbt", "pooled", "unknown statistic"),
        ("error_rate", "mean", "single figure"),
        ("goodput", "p99", "goodput:attainment"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(name: str, stat: str | None, says: str) -> None:
    """One line that lists what exists."""
    with pytest.raises(UsageError) as refusal:
        metric_and_stat(name, stat)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_unit_may_depend_on_the_statistic() -> None:
    """Goodput attainment is a fraction, its rates are per second; stalls are counted and timed."""
    assert CATALOG["goodput"].unit_of("attainment") == "fraction"
    assert CATALOG["goodput"].unit_of("token_rate") == "per_s"
    assert CATALOG["stall"].unit_of("count") == "count"
    assert CATALOG["stall"].unit_of("max") == "ns"
    assert CATALOG["error_rate"].unit_of(None) == "fraction"
