from dataclasses import replace
from pathlib import Path
from typing import Any

from reports.document import Chart
from reports.load_chart import load_chart
from reports.quantities import quantity, show
from reports.study_file import load_study, study_from
from reports.trials_chart import trials_chart

TBT = quantity("p99_tbt_ms")


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
    points = drawn(chart, "holds", "does not hold")
    assert len(points) == len(chart.data.rows) == 8
    written = {(row[1].text, row[2].text) for row in chart.data.rows}
    assert written == {(show(budget), TBT.show(value)) for budget, value in points}
    assert chart.figure is not None
    shapes = {trace["name"]: trace["marker"]["symbol"] for trace in chart.figure["data"]}
    assert shapes["holds"] != shapes["does not hold"]


def test_the_reading_counts_what_the_table_holds(finished: Path) -> None:
    """The sentence above the trials names as many holding trials as the table does."""
    chart = trials_chart(load_study(finished))
    held = sum(row[4].text == "holds" for row in chart.data.rows)
    assert chart.reading.startswith(f"{held} of 9 trials held the SLO")


def test_a_trial_that_only_p99_would_praise_is_pointed_out(finished: Path) -> None:
    """A setting below the TBT line that misses another objective is counted in the reading."""
    study = load_study(finished)
    judged = study.trials[2]
    missed = replace(judged, runs=tuple(replace(run, holds=False) for run in judged.runs))
    changed = replace(study, trials=(*study.trials[:2], missed, *study.trials[3:]))
    assert "1 trial lies below the line and still does not hold" in trials_chart(changed).reading


def test_a_run_that_met_the_slo_but_not_the_load_is_called_overloaded(finished: Path) -> None:
    """A backlog can fail a run whose objectives all hold; the word says so."""
    run = load_study(finished).trials[1].runs[0]
    assert run.slo_word == "holds"
    assert replace(run, holds=False).slo_word == "overloaded"


def test_load_shows_every_run_of_both_settings(finished: Path) -> None:
    """Two search runs and the confirmed one of each setting are points and rows."""
    chart = load_chart(load_study(finished))
    points = drawn(chart, "default", "recommended")
    assert len(points) == len(chart.data.rows) == 6
    assert [row[2].text for row in chart.data.rows] == [TBT.show(value) for _, value in points]


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
    assert chart.title == "Token budget against longest gap between tokens"
    assert chart.figure["layout"]["shapes"][0]["y0"] == 1000.0
