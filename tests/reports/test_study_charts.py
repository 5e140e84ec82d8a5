import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.chart_parts import value_ticks
from reports.document import Chart
from reports.load_chart import load_chart
from reports.quantities import quantity
from reports.study import Judgement
from reports.study_file import load_study, study_from
from reports.trials_chart import trials_chart

TBT = quantity("p99_tbt_ms")
KINDS = ("holds, cap", "holds, budget alone", "does not hold, cap", "does not hold, budget alone")


def drawn(chart: Chart, *names: str) -> list[tuple[Any, Any]]:
    """Every point of the traces so called, in the first panel."""
    assert chart.figure is not None
    return [
        point
        for trace in chart.figure["data"]
        if trace["name"] in names and trace["mode"] == "markers" and trace.get("yaxis", "y") == "y"
        for point in zip(trace["x"], trace["y"], strict=True)
    ]


def test_every_measured_trial_is_one_point_and_one_row(finished: Path) -> None:
    """Trials that hold and trials that miss are told apart by shape; a trial without runs is not drawn."""
    chart = trials_chart(load_study(finished))
    points = drawn(chart, *KINDS)
    assert len(points) == len(chart.data.rows) == 8
    assert sorted(row[3].text for row in chart.data.rows) == sorted(TBT.show(value) for _, value in points)
    pieces = sorted(float(row[2].text) for row in chart.data.rows)
    assert sorted(place for place, _ in points) == pytest.approx(pieces, rel=0.05)
    assert chart.figure is not None
    shapes = {trace["name"]: trace["marker"]["symbol"] for trace in chart.figure["data"]}
    kinds = [name for name in KINDS if name in shapes]
    assert len({shapes[name] for name in kinds}) == len(kinds) > 1


def test_a_cap_decides_how_large_a_piece_of_a_prompt_gets(finished: Path) -> None:
    """A setting with a large budget and a small cap is drawn at its cap, apart from a budget that small."""
    study = load_study(finished)
    capped = [replace(study.trials[1], knobs={**study.trials[1].knobs, "token_budget": 2048})] * 2
    chart = trials_chart(replace(study, trials=(study.trials[2], *capped)))
    assert study.trials[2].knobs["token_budget"] == capped[0].knobs["long_prefill_token_threshold"] == 64
    assert [row[2].text for row in chart.data.rows] == ["64", "64", "64"]
    places = [x for x, _ in drawn(chart, *KINDS)]
    assert len(set(places)) == 3
    assert all(60 < place < 70 for place in places)
    assert "stand side by side" in chart.reading


def test_trials_are_shown_by_every_objective_and_their_capacity(finished: Path) -> None:
    """TBT, fluidity and capacity stand over one axis, the first two with their limits."""
    figure = trials_chart(load_study(finished)).figure
    assert figure is not None
    titles = [figure["layout"][name]["title"]["text"] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert titles == ["p99 TBT (ms)", "p10 fluidity", "capacity (requests/s)"]
    assert [shape["yref"] for shape in figure["layout"]["shapes"]] == ["y", "y2"]
    domains = [figure["layout"][name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert domains[0][1] == 1.0
    assert domains[0][0] > domains[1][1] > domains[1][0] > domains[2][1] > domains[2][0] >= 0.0


def test_the_reading_counts_what_the_table_holds(finished: Path) -> None:
    """The sentence above the trials names as many holding trials as the table does."""
    chart = trials_chart(load_study(finished))
    held = sum(row[6].text == "holds" for row in chart.data.rows)
    assert chart.reading.startswith(f"{held} of 9 trials held the SLO")


def test_a_trial_that_only_p99_would_praise_is_pointed_out(finished: Path) -> None:
    """A setting below the TBT line that misses another objective is counted in the reading."""
    study = load_study(finished)
    judged = study.trials[2]
    missed = replace(judged, runs=tuple(replace(run, holds=False) for run in judged.runs))
    changed = replace(study, trials=(*study.trials[:2], missed, *study.trials[3:]))
    assert "1 is within the TBT limit and still misses" in trials_chart(changed).reading


def test_a_run_that_met_the_slo_and_still_does_not_count_is_told_apart(finished: Path) -> None:
    """A backlog or a late client can fail a run whose objectives all hold; the word says so."""
    run = load_study(finished).trials[1].runs[0]
    assert run.slo_word == "holds"
    assert replace(run, holds=False).slo_word == "met, run not counted"
    assert replace(run, holds=False, outcome="client_limited").slo_word == "client limited"


def test_load_shows_every_run_of_both_settings(finished: Path) -> None:
    """Two search runs and the confirmed one of each setting are points and rows."""
    chart = load_chart(load_study(finished))
    points = drawn(chart, "default", "recommended")
    assert len(points) == len(chart.data.rows) == 6
    assert [row[2].text for row in chart.data.rows] == [TBT.show(value) for _, value in points]
    assert [row[5].text for row in chart.data.rows].count("confirmation") == 2
    assert len(drawn(chart, "confirmed")) == 2


def test_the_reading_of_the_load_says_up_to_where_the_slo_held(finished: Path) -> None:
    """Held and missed rates are named with their TBT; runs that disagree are not smoothed over."""
    study = load_study(finished)
    assert study.recommended is not None
    assert "Default misses the SLO at every rate tried, down to 0.8" in load_chart(study).reading
    assert "recommended holds the SLO at every rate tried, up to 1.20" in load_chart(study).reading
    slow, fast = study.trials[1].runs

    def reading(*held: bool) -> str:
        runs = tuple(replace(run, holds=holds, judgement=Judgement(holds))
                     for run, holds in zip((slow, fast), held, strict=True))
        chosen = replace(study.recommended, search=runs[0], confirmed=None)  # type: ignore[type-var]
        trials = (replace(study.trials[1], runs=runs),)
        return load_chart(replace(study, default=None, recommended=chosen, trials=trials)).reading

    assert re.search(r"holds the SLO up to 0\.8.* and misses it from 1\.20", reading(True, False))
    assert re.search(r"holds the SLO up to 1\.20.*, but also misses it at 0\.8", reading(False, True))


def test_without_measurements_there_is_no_chart() -> None:
    """Nothing measured gives no figure and a sentence that says so."""
    study = study_from({"schema_version": 1, "trials": []}, Path("s/recommendation.json"))
    for chart in (trials_chart(study), load_chart(study)):
        assert chart.figure is None
        assert chart.reading.startswith("No ")


def test_the_limit_of_another_statistic_moves_the_charts_to_it(finished: Path) -> None:
    """An SLO on the longest gap makes the charts show the longest gap, its limit in ms."""
    study = load_study(finished)
    limit = replace(study.slo[0], text="tbt:max<=1s", stat="max", limit=1.0, unit="s")
    chart = trials_chart(replace(study, slo=(limit,)))
    assert chart.figure is not None
    assert "longest gap between tokens" in chart.title
    assert chart.figure["layout"]["shapes"][0]["y0"] == 1000.0


def test_a_run_that_only_its_client_spoilt_is_no_miss(finished: Path) -> None:
    """The reading of the load and the default's lowest failed rate leave such a run out."""
    study = load_study(finished)
    assert study.default is not None
    met = replace(study.trials[1].runs[0], holds=False)
    assert not met.missed
    alone = replace(study.default, search=met, confirmed=None)
    chart = load_chart(replace(study, default=alone, recommended=None, trials=()))
    assert chart.reading.startswith("No run of default counts.")


@given(st.lists(st.integers(1, 10**5), min_size=1, max_size=40))
def test_labels_at_values_keep_their_distance(values: list[int]) -> None:
    """Smallest and largest are always labelled, and no two labels are closer than a fortieth of the axis."""
    ticks = value_ticks([float(value) for value in values])["tickvals"]
    assert (ticks[0], ticks[-1]) == (min(values), max(values))
    assert set(ticks) <= set(values)
    whole = math.log(ticks[-1] / ticks[0])
    assert all(math.log(right / left) >= whole / 40 for left, right in pairwise(ticks))
