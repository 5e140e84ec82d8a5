"""Results of other tools in reports: HTML, Markdown, JSON and the terminal."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from bench.foreign import load_results
from reports import imported_screen, load_imported, render
from tuner.cli.main import main
from workloads import UsageError

DATA = Path(__file__).parents[1] / "data" / "foreign"
FILES = sorted(path for path in DATA.rglob("*.json*"))
DETAILED = DATA / "vllm-detailed.json"


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_every_result_can_be_shown(file, form):
    """The tool is named in every format; nothing is NaN."""
    text = render([file], form)
    assert load_results(file)[0].tool in text
    assert not re.search(r"\bnan\b|NaN", text)


def test_markdown_names_figures_samples_and_differences():
    """One row a figure with the samples behind it; definitions say where the tool's differ."""
    text = render([DETAILED], "md").replace("\N{NO-BREAK SPACE}", " ")
    assert "| Mean TTFT | 32.3 ms | 12 | its samples |" in text
    assert "| Request throughput | 32.6 requests/s | 12 | the tool |" in text
    assert "vllm bench serve: the first message with a choice counts" in text
    assert "does not say how late the tool's client was" in text
    assert "p99 TTFT" not in text  # twelve requests have none


def test_results_stand_side_by_side():
    """Each has a column; a figure that only one has is a dash in the others."""
    text = render([DATA / "guidellm.json", DATA / "vllm.json"], "md")
    assert "| figure | guidellm.json (1) | guidellm.json (2) | vllm.json |" in text
    assert re.search(r"\| Mean ITL \| — \| — \| 5.00\s?ms \|", text)
    assert "12 of 12 requests succeeded, at 40" in text


def test_warnings_come_before_the_figures():
    """A result without a success says so, and has no table of latencies."""
    text = render([DATA / "aiperf-failed" / "profile_export.jsonl"], "md")
    assert text.index("no request succeeded") < text.index("## Figures")
    assert "TTFT" not in text


def test_json_holds_every_figure_with_its_reason():
    """Refused figures are there with why; an endless rate is the text inf."""
    whole = json.loads(render([DATA / "vllm-appended.json"], "json"))
    first = whole["results"][0]
    refused = next(item for item in first["figures"] if (item["metric"], item["stat"]) == ("ttft", "p99"))
    assert (whole["kind"], first["rate_rps"], refused["value"]) == ("imported", "inf", None)
    assert "needs at least 100 samples" in refused["why_missing"]


def test_text_of_a_file_cannot_become_markup(tmp_path):
    """The model's name is text from outside."""
    file = tmp_path / "x.json"
    file.write_text(DETAILED.read_text().replace('"paced"', '"<script>alert(1)</script>"'))
    assert "<script>alert" not in render([file], "html")


def test_the_terminal_is_readable_at_80_columns():
    """Nothing is wider, and the figures are there."""
    console = Console(width=80, record=True, file=None, force_terminal=False)
    with console.capture() as shown:
        console.print(imported_screen(load_imported([DETAILED])))
    lines = shown.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["Mean", "TTFT", "32.3", "ms", "12", "its", "samples"] for line in lines)


def test_report_shows_a_result_in_the_terminal(capsys, tmp_path, monkeypatch):
    """Without --format and --output nothing is written; with them as for runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for arguments, told in (((), "12 of 12 requests succeeded"), (("--format", "md"), "# Result of vllm"),
                            (("--output", "x.html"), "x.html")):
        with pytest.raises(SystemExit) as left:
            main(["report", str(DETAILED), *arguments])
        assert left.value.code == 0
        assert told in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]


def test_files_and_directories_are_not_mixed(tmp_path):
    """A result of another tool is not comparable with a run of ours without a word."""
    with pytest.raises(UsageError, match="one by one"):
        render([DETAILED, tmp_path], "md")
