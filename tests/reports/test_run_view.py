from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import Validity, save_run
from reports import load_view, view_run
from reports.html_page import html_page
from reports.run_report import run_document
from reports.run_view import distinct_names, setup_rows


def test_a_stored_summary_is_what_is_shown(tmp_path: Path, make_run: Any) -> None:
    """Figures judged with deadlines at measuring time, such as fluidity, come from the run's own file."""
    summary = {"fluidity_index_p10": 0.87, "p50_tbt_ms": 21.5, "p99_ttft_ms": None, "seed": 1}
    view = load_view(save_run(make_run(requests=3), tmp_path / "run", summary=summary))
    assert dict(view.figures) == {"fluidity_p10": 0.87, "median_tbt_ms": 21.5}


def test_without_a_stored_summary_the_figures_are_computed(make_run: Any) -> None:
    """A run that was saved without its summary still has every figure that needs no deadlines."""
    figures = view_run(make_run()).figures
    assert figures["p99_tbt_ms"] is not None
    assert "fluidity_p10" not in figures


def test_what_makes_a_run_invalid_stands_before_its_figures(make_run: Any) -> None:
    """An invalid run says so first, with the reason, ahead of any result."""
    late = replace(make_run(), validity=Validity(False, ("the client sent late: 80 ms",), ("few requests",)))
    page = html_page(run_document([view_run(late, path="runs/late")]))
    assert page.index("the client sent late: 80 ms") < page.index('<section id="results"')
    assert ">Invalid</p>" in page
    assert "few requests" in page


def test_an_overloaded_run_says_why(make_run: Any) -> None:
    """When the engine could not keep up, the reasons stand with the verdict."""
    view = view_run(make_run(), summary={"sustainable": False, "sustainable_reasons": ["the backlog grew"]})
    assert "the load was not sustainable: the backlog grew" in html_page(run_document([view]))


def test_only_real_differences_of_the_set_up_are_listed(make_run: Any) -> None:
    """The salt, the date and the time an engine took to start differ always and are left out."""
    views = [
        view_run(make_run(budget=budget, salt=str(budget), date=str(budget),
                          engine={"name": "vllm", "start_seconds": float(budget)}))
        for budget in (64, 128)
    ]
    differing, same = setup_rows(views)
    assert differing == [("Knobs token budget", "64", "128")]
    assert ("Engine name", "vllm") in same


def test_equal_names_are_told_apart(make_run: Any) -> None:
    """Two runs with one label are numbered; a label stands for the path."""
    views = [view_run(make_run(label="a"), path="x/1"), view_run(make_run(label="a"), path="x/2"),
             view_run(make_run(), path="x/3")]
    assert distinct_names(views) == ["a (1)", "a (2)", "3"]


def test_control_characters_do_not_reach_the_terminal(make_run: Any) -> None:
    """A label cannot carry escape sequences."""
    assert view_run(make_run(label="a\x1b[2Jb\x00")).name == "a[2Jb"
