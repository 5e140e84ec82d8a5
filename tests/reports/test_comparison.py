import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.comparison import capacity_words, change_text, compare, optimism, traded
from reports.quantities import NONE, canonical, change, digits, duration, figure_key, quantity, show
from reports.study_file import load_study, study_from


def two(default: dict[str, Any], recommended: dict[str, Any], **more: Any) -> Any:
    """A study with only confirmed figures of both settings."""
    def setting(budget: int, figures: dict[str, Any]) -> dict[str, Any]:
        rate = figures.pop("rate_rps", 1.0)
        return {"knobs": {"token_budget": budget, "max_seqs": 8},
                "confirmed": {"rate_rps": rate, "figures": figures, "capacity_rps": None, "holds": None}}

    raw = {"schema_version": 1, "trials": [], "default": setting(2048, default),
           "recommended": setting(128, recommended), **more}
    return study_from(raw, Path("s/recommendation.json"))


def test_gains_and_costs_are_told_apart_by_the_direction_of_the_metric() -> None:
    """Less latency and more throughput are gains, the reverse is paid; the figures stand beside."""
    study = two({"p99_tbt_ms": 200.0, "p99_ttft_ms": 500.0, "output_throughput": 100.0},
                {"p99_tbt_ms": 80.0, "p99_ttft_ms": 700.0, "output_throughput": 101.0})
    comparison = compare(study)
    assert comparison is not None
    assert [sentence.replace("\u00a0", " ") for sentence in traded(comparison)] == [
        "Gained: p99 TBT 80 ms instead of 200 ms (−60 %).",
        "Paid: p99 TTFT 700 ms instead of 500 ms (+40 %).",
        "Within 3 % of the default: output throughput.",
    ]


def test_every_number_in_the_prose_is_a_figure_of_the_study(finished: Path) -> None:
    """The sentences write exactly the confirmed figures that the file holds."""
    raw = json.loads((finished / "recommendation.json").read_text())
    comparison = compare(load_study(finished))
    assert comparison is not None
    prose = " ".join(traded(comparison))
    for key in ("p99_tbt_ms", "max_tbt_ms", "p99_ttft_ms"):
        for name in ("default", "recommended"):
            assert quantity(key).show(raw[name]["confirmed"]["figures"][key]) in prose


def test_different_loads_are_warned_of() -> None:
    """Figures at different rates are shown with the warning that they are not like for like."""
    comparison = compare(two({"p99_tbt_ms": 9.0, "rate_rps": 1.0}, {"p99_tbt_ms": 9.0, "rate_rps": 2.0}))
    assert comparison is not None
    assert "not like for like" in comparison.caution


@pytest.mark.parametrize(
    ("confirmed", "capacity"),
    [({"rate_rps": 1.2, "holds": True}, 1.0), ({"rate_rps": 1.2, "holds": False}, 1.0),
     ({"rate_rps": 1.0, "holds": False}, None), ({"rate_rps": 1.2, "holds": True, "capacity_rps": 1.2}, 1.2)],
)
def test_a_capacity_that_a_fresh_engine_refuted_is_not_shown(
    confirmed: dict[str, Any], capacity: float | None
) -> None:
    """The search's capacity stands in for a confirmed one unless the fresh engine failed at that rate."""
    setting = {"knobs": {}, "search": {"rate_rps": 1.0, "capacity_rps": 1.0}, "confirmed": confirmed}
    raw = {"schema_version": 1, "trials": [], "default": setting, "recommended": setting}
    comparison = compare(study_from(raw, Path("x")))
    assert comparison is not None
    assert comparison.of("capacity_rps").recommended == capacity
    assert ("the search's" in comparison.basis) is (capacity == 1.0)


def test_nothing_is_compared_without_both_settings() -> None:
    """A study without a default or a recommendation has no comparison."""
    assert compare(study_from({"schema_version": 1, "trials": []}, Path("x"))) is None


def test_a_missing_figure_is_neither_gain_nor_cost() -> None:
    """What only one of the two has is not judged and not spoken of."""
    comparison = compare(two({"p99_tbt_ms": None}, {"p99_tbt_ms": 80.0}))
    assert comparison is not None
    assert comparison.of("p99_tbt_ms").effect == ""
    assert traded(comparison) == ()


def test_a_default_that_never_held_has_no_capacity_to_compare(finished: Path) -> None:
    """The report says that the default held the SLO at no rate, instead of a bare dash."""
    comparison = compare(load_study(finished))
    assert comparison is not None
    assert comparison.default_failed_down_to_rps == 0.8
    assert "at no rate down to 0.8\u00a0requests/s" in traded(comparison)[0]
    assert capacity_words(comparison)[0] == "none down to 0.8"


def test_the_optimism_of_the_search_is_stated(finished: Path) -> None:
    """Search and confirmed figures of the recommendation stand side by side."""
    study = load_study(finished)
    assert study.recommended is not None
    assert "p99 TBT" in optimism(study.recommended)


def test_latencies_of_search_and_confirmation_name_their_rates(finished: Path) -> None:
    """Where the confirmation had to step down, its figures are not those of the search's rate."""
    chosen = load_study(finished).recommended
    assert chosen is not None
    assert chosen.search is not None
    assert chosen.confirmed is not None
    lower = replace(chosen, search=replace(chosen.search, rate_rps=1.4))
    assert "those at 1.40\u00a0requests/s, the others at 1.20" in optimism(lower)
    assert "the others at" not in optimism(replace(chosen, search=chosen.confirmed))


def test_equal_figures_without_a_better_direction_are_no_change() -> None:
    """As many completed requests as before is said in words, not as a percentage of zero."""
    comparison = compare(two({"completed": 69.0}, {"completed": 69.0}))
    assert comparison is not None
    assert change_text(comparison.of("completed")) == "no change"


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [(None, "ms", NONE), (0.0, "", "0"), (98.34, "ms", "98.3 ms"), (1234.5, "ms", "1234 ms"),
     (12_345.0, "ms", "12.3 s"), (1.354, "requests/s", "1.35 requests/s"), (0.00042, "", "0.00042"),
     (-0.308, "", "−0.308"), (0.9, "", "0.9"),
     (1_234_567.0, "", "1 234 567"), (1e-12, "", "0")],
)
def test_numbers_are_written_for_people(value: float | None, unit: str, written: str) -> None:
    """Three significant digits, no exponents, a dash where there is nothing."""
    assert show(value, unit).replace("\u00a0", " ") == written


@given(st.floats(min_value=1e-5, max_value=1e12))
def test_written_numbers_are_within_their_last_digit(value: float) -> None:
    """Reading the written number back gives the value to half a percent, or to a whole from 100 on."""
    read = float(digits(value).replace("\u00a0", ""))
    assert read == pytest.approx(value, rel=0.006, abs=0.51e-6)


@pytest.mark.parametrize(("old", "new", "said"), [(100.0, 50.0, "−50 %"), (1.0, 4.0, "×4"), (0.0, 1.0, ""),
                                                  (None, 1.0, ""), (100.0, 100.4, "±0 %")])
def test_changes_are_relative(old: float | None, new: float | None, said: str) -> None:
    """Percent, a factor from three times on, and nothing where there is no base."""
    assert change(old, new).replace("\u00a0", " ") == said


def test_names_of_figures_have_one_spelling() -> None:
    """Both spellings of runs and studies reach the same figure, and objectives find it."""
    assert canonical("fluidity_index_p01") == figure_key("fluidity", "p1") == "fluidity_p1"
    assert canonical("p50_tbt_ms") == figure_key("tbt", "p50") == "median_tbt_ms"
    assert canonical("fluidity_index_service") == figure_key("fluidity", "pooled") == "fluidity_pooled"
    assert quantity("p99.9_tbt_ms").label == "p99.9 TBT"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, NONE), (4.26, "4.26 s"), (92.0, "92 s"), (425.0, "7 min 05 s"), (7800.0, "2 h 10 min")],
)
def test_durations_are_written_for_people(seconds: float | None, said: str) -> None:
    """Seconds, minutes or hours, whichever a person would say."""
    assert duration(seconds).replace("\u00a0", " ") == said
