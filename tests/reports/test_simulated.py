"""What nobody measured says so: in every form of a report, of runs, studies and result files."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import save_run, summarise
from reports import load_capacity, load_study, load_view, render, run_screen, study_screen
from reports.capacity_terminal import capacity_screen
from reports.imported_terminal import imported_screen
from reports.rendering import load_imported
from reports.run_view import setup_rows
from reports.simulated import simulation_of
from tests.reports.test_terminal import printed

TOLD = {"hardware": "a100-sxm", "model": "yi-34b", "rule": "vllm-v1", "cost": "computed from the sheets",
        "errors": "median TBT within 5 % on held-out steps"}
ENGINE = {"name": "simulator", "version": "0.32", "model": "yi-34b",
          "fingerprint": {"dtype": "bf16", "simulated": TOLD}}
FORMATS = ("html", "md")


@pytest.fixture
def simulated(tmp_path: Path, make_run: Any) -> Path:
    """The directory of a simulated run."""
    run = make_run(engine=ENGINE)
    return save_run(run, tmp_path / "simulated", summary=summarise(run).as_dict())


@pytest.fixture
def measured(tmp_path: Path, make_run: Any) -> Path:
    """The directory of a measured run."""
    return save_run(make_run(), tmp_path / "measured")


@pytest.fixture
def simulated_study(builder: Any, finished: Path) -> Path:
    """The directory of a study whose engine was simulated."""
    data = json.loads((finished / "recommendation.json").read_text())
    data["environment"] |= {"engine": "simulator", "fingerprint": ENGINE["fingerprint"]}
    directory: Path = builder.write(data)
    return directory


@pytest.mark.parametrize("form", FORMATS)
def test_a_simulated_run_says_so_before_any_figure(simulated: Path, form: str) -> None:
    """Title, badge, status and a sentence with hardware, model, rule, cost and known error."""
    page = render([simulated], form)
    assert "Simulated run simulated" in page
    head = page[: page.index("Results")] if form == "md" else page[: page.index('<section id="results"')]
    for said in ("No engine was measured", "a100-sxm", "yi-34b", "vllm-v1", "computed from the sheets",
                 "edian TBT within 5 % on held-out steps"):
        assert said.replace("-", "\\-") in head or said in head
    assert ('class="badge">Simulated<' in page) if form == "html" else ("**SIMULATED**" in page)


def test_measured_runs_wear_no_mark(measured: Path) -> None:
    """Of a run on an engine no word says simulated, and JSON says null."""
    for form in FORMATS:
        page = render([measured], form)
        assert "imulated" not in page.replace(".notice-simulated", "")
    assert json.loads(render([measured], "json"))["runs"][0]["simulated"] is None


def test_simulated_against_measured_is_a_difference_of_the_set_up(simulated: Path, measured: Path) -> None:
    """Side by side the title says how many are simulated, and the first difference is that one is."""
    differing, _ = setup_rows([load_view(simulated), load_view(measured)])
    assert differing[0] == ("Figures", "simulated", "measured")
    assert ("Scheduling rule", "vllm-v1", "") in differing
    for form in FORMATS:
        assert "2 runs compared, 1 of them simulated" in render([simulated, measured], form)
    view = json.loads(render([simulated, measured], "json"))
    assert {"setting": "Figures", "values": ["simulated", "measured"]} in view["setup_differences"]
    assert [run["simulated"] for run in view["runs"]] == [TOLD, None]


def test_the_screen_of_a_simulated_run_begins_with_it(simulated: Path) -> None:
    """In a terminal the first word is SIMULATED, and the sentence follows."""
    text = printed(run_screen(load_view(simulated), None, {}))
    assert text.startswith("SIMULATED. 160 of 160 requests succeeded")
    assert "No engine was measured" in text
    assert "vllm-v1" in text


def test_a_simulated_study_says_so_everywhere(simulated_study: Path) -> None:
    """Title, verdict, the section of the gaps and JSON are marked, and nothing claims a measurement."""
    page = render([simulated_study], "html")
    assert "<h1>Simulated scheduler settings" in page
    assert ">Simulated: recommended<" in page
    gaps = page[page.index('<section id="gaps"'): page.index('<section id="load"')]
    assert "No engine was measured" in gaps
    assert "freshly started engines" not in page
    assert "reported exactly these settings" not in page
    assert "# Simulated scheduler settings" in render([simulated_study], "md")
    assert json.loads(render([simulated_study], "json"))["simulated"] == TOLD
    text = printed(study_screen(load_study(simulated_study), {}))
    assert text.startswith("SIMULATED: recommended.")
    assert "No engine was measured" in text


def test_a_simulated_search_for_a_capacity_says_so(tmp_path: Path) -> None:
    """The same for what `tune run` finds where no setting can be changed."""
    (tmp_path / "capacity.json").write_text(json.dumps({
        "schema_version": 1, "verdict": "confirmed", "verdict_text": "it holds",
        "environment": {"engine": "simulator", "fingerprint": {"simulated": TOLD}}}))
    assert "<h1>Simulated capacity" in render([tmp_path], "html")
    assert json.loads(render([tmp_path], "json"))["simulated"] == TOLD
    text = printed(capacity_screen(load_capacity(tmp_path), {}))
    assert text.startswith("SIMULATED: confirmed.")


def test_a_result_file_of_a_simulated_run_says_so(tmp_path: Path, make_run: Any) -> None:
    """A file of --save-result keeps the mark wherever it is read."""
    file = tmp_path / "result.json"
    told = summarise(make_run(engine=ENGINE, plan_digest="ab")).as_dict()
    file.write_text(json.dumps(told))
    for form in FORMATS:
        page = render([file], form)
        assert "Simulated" in page
        assert "measured by stallfree" not in page
    assert json.loads(render([file], "json"))["results"][0]["simulated"] is True
    assert printed(imported_screen(load_imported([file]))).startswith("SIMULATED. result.json.")


def test_what_is_not_known_of_a_simulation_is_left_out() -> None:
    """A simulator that tells nothing of itself is marked all the same, and its error is called unknown."""
    bare = simulation_of("simulator", None)
    assert bare is not None
    assert bare.facts() == {}
    assert "not known" in bare.sentence()
    assert simulation_of("vllm", {"dtype": "bf16"}) is None
    assert simulation_of("x", {"simulated": {"rule": "orca"}}) is not None
