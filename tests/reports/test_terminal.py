import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from reports import judgement_from, load_study, load_view, run_screen, study_screen, view_run
from reports.study_file import study_from
from reports.terminal import shell_lines

SLO = {"holds": False, "objectives": [
    {"text": "tbt:p99<=120ms", "observed": 483.2, "limit": 120.0, "unit": "ms", "n": 23800, "holds": False,
     "why": ""},
]}


def printed(screen: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(screen)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text).replace("\u00a0", " ")


def test_the_last_screen_of_a_tuning_fits_one_terminal(finished: Path) -> None:
    """Verdict, comparison, trade, SLO, command and files within 80 columns and 45 lines."""
    text = printed(study_screen(load_study(finished), {"report": "study/report.html"}))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 45
    for said in ("Recommended.", "p99 TBT", "Gained:", "Paid:", "missed", "holds", "vllm serve tiny",
                 "study/report.html"):
        assert said in text


def test_the_last_screen_of_an_empty_study_says_so() -> None:
    """Interrupted before the first trial: the screen tells that nothing was measured."""
    study = study_from({"schema_version": 1, "trials": []}, Path("s/recommendation.json"))
    text = printed(study_screen(study, {}))
    assert "Unfinished" in text
    assert "No trial has finished" in text


def test_the_last_screen_of_a_run_starts_with_its_validity(finished: Path) -> None:
    """Validity, counts, figures and each line of the SLO with n and its verdict in words."""
    view = load_view(finished / "runs" / "confirm-default")
    text = printed(run_screen(view, judgement_from(SLO), {"run": "runs/x"}))
    assert text.startswith("Valid. 200 of 200 requests succeeded at 1.20 requests/s")
    assert "483 ms (n = 23800) missed" in text


@pytest.mark.parametrize(("requests", "failed"), [(3, 3), (0, 0)])
def test_a_run_without_successes_has_no_figures(make_run: Any, requests: int, failed: int) -> None:
    """Only failures or nothing at all: the screen says it instead of printing zeros."""
    text = printed(run_screen(view_run(make_run(requests=requests, failed=failed)), None, {}))
    assert f"0 of {requests} requests succeeded" in text
    assert "TBT" not in text


def test_long_commands_can_be_copied_from_the_screen() -> None:
    """A command is broken between flags with backslashes, never inside a word."""
    command = "vllm serve 'my model' " + " ".join(f"--flag-number-{n} {n}" for n in range(12))
    lines = shell_lines(command).splitlines()
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert max(map(len, lines)) <= 78
    assert " ".join(line.removesuffix(" \\").strip() for line in lines) == command


def test_the_screen_leaves_one_blank_line_and_breaks_no_row(finished: Path) -> None:
    """No two blank lines follow one another, and each figure stands on one line at 80 columns."""
    lines = [line.rstrip() for line in printed(study_screen(load_study(finished), {})).splitlines()]
    assert all(one or other for one, other in pairwise(lines))
    (gap,) = [line for line in lines if line.lstrip().startswith("Longest gap between")]
    assert gap.split()[:4] == ["Longest", "gap", "between", "tokens"]
    assert any("none down to 0.8" in line for line in lines)


def test_what_spoilt_the_confirmation_is_on_the_screen(finished: Path) -> None:
    """A confirmation that failed says why, once."""
    study = load_study(finished)
    assert study.recommended is not None
    spoilt = replace(study, recommended=replace(study.recommended, note="the client sent late"))
    assert "Warning: Confirmation of the recommended setting: the client sent late." in printed(
        study_screen(spoilt, {}), width=200)
    warned = replace(spoilt, warnings=("the client sent late",))
    assert printed(study_screen(warned, {})).count("client sent late") == 1
