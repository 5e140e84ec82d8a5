import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import summarise
from reports.evidence import Evidence
from reports.html_page import html_page
from reports.markdown import markdown
from reports.study import runs_of
from reports.study_file import load_study, study_from
from reports.study_report import study_document
from tuner.slo import parse_slo
from workloads.errors import EvidenceError, UsageError

NO_EVIDENCE = Evidence(None, None, (), alike=True)
KEYS = ("verdict", "verdict_text", "recommended", "default", "slo", "deadlines", "workload", "trials",
        "engine_starts", "wall_seconds", "environment", "warnings", "objective", "created")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(("knobs", "search", "confirmed", "runs", "figures", "holds", "judgement",
                         "objectives", "rate_rps", "token_budget", "p99_tbt_ms", "fluidity_p10", "outcome",
                         "text", "curve",
                         "components", "capacity_rps", "number", "limit", "metric", "stat", "run")),
        inner, max_size=5),
    max_leaves=25,
)


def test_a_finished_study_is_read_whole(finished: Path) -> None:
    """Every trial, both settings and the SLO are there, with the figures that the file holds."""
    raw = json.loads((finished / "recommendation.json").read_text())
    study = load_study(finished)
    assert [trial.number for trial in study.trials] == list(range(9))
    assert study.recommended is not None
    assert study.recommended.confirmed is not None
    stored = raw["recommended"]["confirmed"]["figures"]
    assert dict(study.recommended.confirmed.values) == stored
    assert [objective.text for objective in study.slo] == ["tbt:p99<=120ms", "fluidity:p10>=0.9"]


def test_the_file_itself_is_as_good_as_its_directory(finished: Path) -> None:
    """A path to recommendation.json and one to its directory give the same study."""
    assert load_study(finished / "recommendation.json") == load_study(finished)


def test_a_setting_has_each_of_its_runs_once(finished: Path) -> None:
    """Search figures repeat a trial's run; the confirmed run is one more."""
    study = load_study(finished)
    assert study.default is not None
    assert [run.run for run in runs_of(study, study.default)] == [
        "runs/trial-00-0", "runs/trial-00-1", "runs/confirm-default",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "no study"),
        ("{}", "no study"),
        ('{"schema_version": 2, "trials": []}', "schema version 2"),
    ],
)
def test_what_is_no_study_is_refused_in_one_line(tmp_path: Path, content: str, says: str) -> None:
    """Broken JSON, other JSON and a newer schema are named for what they are."""
    (tmp_path / "recommendation.json").write_text(content)
    with pytest.raises(EvidenceError, match=says) as refused:
        load_study(tmp_path)
    assert "\n" not in str(refused.value)


def test_missing_paths_are_refused(tmp_path: Path) -> None:
    """A directory without a study and a path without anything are different mistakes."""
    with pytest.raises(EvidenceError, match="no study"):
        load_study(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        load_study(tmp_path / "nowhere.json")


def test_the_trial_is_judged_at_its_highest_rate_that_held(finished: Path) -> None:
    """A trial that held stands for its best rate; one that never held for its lowest."""
    trials = load_study(finished).trials
    best = trials[1].judged
    worst = trials[0].judged
    assert best is not None
    assert worst is not None
    assert (best.holds, best.rate_rps) == (True, 1.2)
    assert (worst.holds, worst.rate_rps) == (False, 0.8)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)))
def test_any_half_written_study_still_renders(parts: dict[str, Any]) -> None:
    """Whatever is missing or of the wrong shape, the page and the Markdown are made."""
    study = study_from({"schema_version": 1, "trials": [], **parts}, Path("study/recommendation.json"))
    document = study_document(study, NO_EVIDENCE)
    assert html_page(document).startswith("<!doctype html>")
    assert markdown(document).startswith("# ")


def test_what_the_tuner_writes_is_understood(make_run: Any) -> None:
    """A judgement and figures in the tuner's own spelling give limits, verdicts and figures in ms."""
    summary = summarise(make_run(budget=2048))
    judged = parse_slo(["tbt:p99<=0.12s"]).judge(summary).as_dict()
    run = {"rate_rps": 1.2, "holds": False, "judgement": judged, "figures": summary.as_dict()}
    raw = {"schema_version": 1, "trials": [{"number": 0, "outcome": "slo_violated", "runs": [run]}]}
    read = study_from(raw, Path("x")).trials[0].runs[0]
    tbt, errors = read.judgement.objectives
    assert (tbt.text, tbt.objective, tbt.limit, tbt.unit) == ("tbt:p99<=0.12s", "tbt:p99<=120ms", 120.0, "ms")
    assert tbt.observed == pytest.approx(read.values["p99_tbt_ms"], abs=1e-6)
    assert (errors.implicit, errors.holds) == (True, True)
    assert read.values["median_tbt_ms"] is not None
