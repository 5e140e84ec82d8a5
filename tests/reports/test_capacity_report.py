"""The report of a search for a server's capacity: complete, and whole whatever is missing."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reports import capacity_screen, load_capacity, render
from reports.capacity_file import CAPACITY_FILE
from tests.tuner.test_capacity import config, seek
from tuner import capacity as search
from tuner.capacity_result import EXIT_CODES
from workloads.errors import EvidenceError, UsageError


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search that was confirmed one step below what it had found."""
    directory = tmp_path_factory.mktemp("capacity") / "s"
    seek(directory, config())
    return directory


@pytest.fixture
def changed(found: Path, tmp_path: Path) -> Any:
    """Writes capacity.json of that search with other values into a directory without its runs."""
    def write(**values: Any) -> Path:
        content = json.loads((found / CAPACITY_FILE).read_text()) | values
        (tmp_path / CAPACITY_FILE).write_text(json.dumps(content))
        return tmp_path

    return write


def screen_of(directory: Path) -> str:
    written = io.StringIO()
    Console(width=80, file=written).print(
        capacity_screen(load_capacity(directory), {"result": "r/capacity.json"}))
    return written.getvalue()


def test_both_rooms_call_the_file_the_same() -> None:
    """What the search writes is what the report looks for."""
    assert search.CAPACITY_FILE == CAPACITY_FILE


def test_the_report_says_what_was_found_and_how(found: Path) -> None:
    """Verdict, server, SLO, every rate, and the confirming run's own report are in it."""
    told = render([found], "md")
    result = json.loads((found / CAPACITY_FILE).read_text())
    assert "**Confirmed.**" in told
    assert "http://127.0.0.1:8000 runs scripted-model" in told
    assert re.search(r"\| tbt:p99.*holds", told)
    for run in (*result["runs"], *result["attempts"]):
        assert f"| {run['run'].removeprefix('runs/')} |" in told
    assert f"## The confirming run: results\n\n| figure | {result['confirmed']['run'][5:]} |" in told
    assert all(warning[1:40] in told for warning in result["warnings"])
    assert "## Definitions" in told


def test_html_and_json_hold_the_same(found: Path) -> None:
    """No anchor of the page is there twice; the JSON is strict and has the whole result."""
    page = render([found], "html")
    assert "Capacity of scripted-model" in page
    ids = re.findall(r'<section[^>]* id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    told = json.loads(render([found / CAPACITY_FILE], "json"), parse_constant=pytest.fail)
    assert told["kind"] == "capacity"
    assert told["capacity"] == json.loads((found / CAPACITY_FILE).read_text())
    assert told["run"]["valid"] is True


def test_the_screen_fits_80_columns(found: Path) -> None:
    """Each rate has a line that says whether it held; nothing is cut off."""
    told = screen_of(found)
    assert told.startswith("Confirmed. The SLO holds at")
    assert "…" not in told
    assert "holds, proof" in told
    assert "r/capacity.json" in told


@pytest.mark.parametrize("verdict", [*EXIT_CODES, "something_newer"])
def test_every_verdict_is_shown_in_words(changed: Any, verdict: str) -> None:
    """Also one that a newer version may write."""
    directory = changed(verdict=verdict, verdict_text="because of that")
    assert "because of that" in render([directory], "md").lower()
    assert verdict not in screen_of(directory).split(".")[0]


def test_runs_that_are_gone_are_said_to_be_missing(changed: Any) -> None:
    """The figures of capacity.json are shown all the same."""
    told = render([changed()], "md")
    assert "Missing" in told
    assert "008-confirm" in told


def test_a_search_of_which_nothing_is_known_yet_is_shown(changed: Any) -> None:
    """Stopped before its first run there are no figures, and that is said."""
    directory = changed(verdict="unfinished", runs=[], attempts=[], confirmed=None, capacity_rps=None,
                        environment={}, server={}, warnings=None, slo="odd", wall_seconds=None, workload=[])
    for told in (render([directory], "md"), render([directory], "html"), screen_of(directory)):
        assert "No run has been measured yet" in told


def test_text_from_the_server_is_no_markup(changed: Any) -> None:
    """A model's name can hold anything, and steers neither page nor terminal."""
    directory = changed(environment={"engine": "x", "model": "<script>alert(1)</script>\x1b[31m[bold]"})
    assert "<script>alert(1)" not in render([directory], "html")
    assert "\x1b" not in screen_of(directory)
    assert "[bold]" in screen_of(directory)


def test_what_is_no_search_is_refused(tmp_path: Path, changed: Any) -> None:
    """One line that says what is wrong with the file; a search is not compared with a run."""
    (tmp_path / "a").mkdir()
    for text, told in (("{", "not valid JSON"), ("[]", "lacks"), ('{"schema_version": 1}', "lacks"),
                       ('{"schema_version": 9, "verdict": "x"}', "upgrade stallfree")):
        (tmp_path / "a" / CAPACITY_FILE).write_text(text)
        with pytest.raises(EvidenceError, match=told):
            render([tmp_path / "a"], "md")
    with pytest.raises(UsageError, match="reported alone"):
        render([changed(), tmp_path / "a"], "md")
