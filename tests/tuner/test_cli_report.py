"""`tune report`: where the report goes, and what is refused."""

import json
import webbrowser

import numpy as np
import pytest

from bench import Outcome, RunRecorder, save_run, summarise
from tuner.cli.main import main
from workloads import Plan

MS = 1_000_000


@pytest.fixture
def report(monkeypatch, tmp_path, capsys):
    """Runs `tune report` in a directory that holds the runs a and b; returns code, stdout and stderr."""
    for name in ("a", "b"):
        _save(tmp_path / name, name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main(["report", *arguments])
        return left.value.code, *capsys.readouterr()

    return run


def _save(path, label):
    n, none = 5, np.full(5, -1)
    plan = Plan(intended_ns=np.arange(n) * 100 * MS, input_len=np.full(n, 16), output_len=np.full(n, 3),
                component=np.zeros(n), prefix_group=none, session=none, turn=np.zeros(n), num_warmups=0,
                seed=1, rate_rps=10.0, component_names=("chat",))
    recorder = RunRecorder(plan, meta={"rate_rps": 10.0, "label": label})
    for row in range(n):
        sent_ns = row * 100 * MS
        recorder.sent(row, sent_ns)
        for gap in (20, 40, 60):
            recorder.read(row, sent_ns + gap * MS, 1)
        recorder.ended(row, sent_ns + 60 * MS, Outcome.OK)
    run = recorder.run()
    save_run(run, path, summary=summarise(run).as_dict())


def test_html_goes_into_the_directory_that_is_reported(report, tmp_path):
    """Without flags it is report.html in the run's directory; its path is printed."""
    code, out, _ = report("a")
    assert (code, out) == (0, "a/report.html\n")
    assert (tmp_path / "a" / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_several_runs_are_compared_beside_the_first(report, tmp_path):
    """Runs side by side belong to none of them: comparison.html lies beside the first."""
    code, out, _ = report("a", "b")
    assert (code, out) == (0, "comparison.html\n")
    assert (tmp_path / "comparison.html").stat().st_size > 1000


def test_md_and_json_go_to_standard_output(report):
    """Nothing else is printed there, so that it can be piped."""
    code, out, err = report("a", "b", "--format", "json")
    assert (code, err) == (0, "")
    assert [run["name"] for run in json.loads(out)["runs"]] == ["a", "b"]
    code, out, _ = report("a", "--format", "md")
    assert code == 0
    assert out.startswith("#")


@pytest.mark.parametrize("name", ["x.md", "x.json", "x.html", "x.txt"])
def test_the_format_follows_the_name_of_the_output(report, tmp_path, name):
    """A file named .md or .json gets that format, every other one HTML."""
    assert report("a", "--output", name)[:2] == (0, f"{name}\n")
    text = (tmp_path / name).read_text()
    assert {"x.md": "#", "x.json": "{"}.get(name, "<") == text.lstrip()[0]


def test_open_shows_the_file_in_a_browser(report, monkeypatch, tmp_path):
    """The browser gets the file's address; where there is none, a line says so."""
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: shown.append(url) or len(shown) == 1)
    assert report("a", "--open")[0::2] == (0, "")
    assert shown == [(tmp_path / "a" / "report.html").as_uri()]
    code, _, err = report("a", "--open")
    assert code == 0
    assert "open a/report.html yourself" in err


@pytest.mark.parametrize(("arguments", "code", "told"), [
    ((), 64, "PATH"),
    (("nope",), 64, "nope does not exist"),
    (("a", "--format", "pdf"), 64, "html, md, json"),
    (("a", "--format", "md", "--open"), 64, "--output"),
    (("a", "--output", "a/run.json/x.html"), 64, "cannot write"),
    ((".",), 3, "run.json"),
])
def test_what_cannot_be_reported_is_one_line(report, arguments, code, told):
    """Wrong usage and unreadable evidence end with their exit code and one line."""
    left, out, err = report(*arguments)
    assert left == code
    assert out == ""
    assert err.count("\n") == 1
    assert told in err


def test_a_broken_run_is_refused_without_a_traceback(report, tmp_path):
    """A directory whose tables are damaged is invalid evidence."""
    (tmp_path / "a" / "reads.parquet").write_bytes(b"PAR1")
    code, _, err = report("a", "b")
    assert code == 3
    assert err.count("\n") == 1
