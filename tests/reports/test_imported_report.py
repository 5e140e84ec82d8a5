"""Results of other tools, and our own result files, in reports: HTML, Markdown, JSON and the terminal."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from bench import summarise
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


@pytest.fixture
def own(tmp_path, make_run):
    """Writes our result file of a small run with some of its keys changed."""
    def write(name="own.json", **values):
        document = json.loads(json.dumps(summarise(make_run(requests=5)).as_dict()))
        known = {"plan_digest": "x", "model_id": "tiny", "request_rate": 30.0, "valid": True,
                 "invalid_reasons": [], "validity_notes": []}
        file = tmp_path / name
        file.write_text(json.dumps(document | known | values))
        return file
    return write


def shown(*files):
    """The screen of these files at 80 columns."""
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        console.print(imported_screen(load_imported(files)))
    return captured.get()


def test_an_invalid_result_of_ours_says_so_first(own):
    """Terminal, Markdown, HTML and JSON name it and its reasons; it is never merely imported."""
    file = own(valid=False, invalid_reasons=["held back"], validity_notes=["few requests"])
    screen, md, page = shown(file), render([file], "md"), render([file], "html")
    assert screen.startswith("Invalid. ")
    assert "**Invalid.** The figures do not describe the engine" in md
    for text in (screen, md, page):
        assert "held back" in text
        assert "few requests" in text
        assert "Imported" not in text
    (result,) = json.loads(render([file], "json"))["results"]
    assert (result["valid"], result["invalid_reasons"], result["validity_notes"]) == (
        False, ["held back"], ["few requests"])


def test_a_result_of_ours_is_valid_only_where_it_says_so(own):
    """A file that does not judge its run is neither."""
    assert shown(own()).startswith("Valid. ")
    assert "**Valid.**" in render([own()], "md")
    assert shown(own(valid=None)).startswith("Validity unknown. ")


def test_an_invalid_result_beside_others_is_named(own):
    """The headline says which one; valid ones beside results that nobody judged are not all valid."""
    bad, good = own("bad.json", valid=False), own("good.json")
    assert "**Invalid.** The figures do not describe the engine: invalid is bad.json." in render(
        [good, bad], "md")
    assert "**Side by side.**" in render([good, DETAILED], "md")


def test_the_client_of_our_files_is_shown(own):
    """Its lateness stands in the file, so nothing says that it does not."""
    file = own(p99_schedule_lag_ms=1.09, n={"schedule_lag": 120}, client_read_delay_p99_ms=0.111,
               client_merged_share=0.02, client_cpu_share=0.25, max_concurrency=None)
    for text in (shown(file), render([file], "md")):
        told = re.sub(r"[\s\N{NO-BREAK SPACE}]+", " ", text)
        for said in ("p99 1.09 ms", "p99 0.111 ms", "2 % of the messages", "25 % of a core"):
            assert said in told
        assert "does not say how late" not in told


def test_p99_tbt_of_our_files_needs_no_lists(own):
    """What the file states is shown with the samples behind it, each in its unit."""
    text = render([own(p99_tbt_ms=21.2, stalled_time_ms=12.0, achieved_rate_fraction=0.559,
                       n={"tbt": 540, "stall": 60, "achieved_rate": 60})], "md")
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert "| p99 TBT | 21.2 ms | 540 | the tool |" in text
    assert "| Stalled time of all requests | 12 ms | 60 | the tool |" in text
    assert "| Achieved / requested rate | 0.559 | 60 | the tool |" in text


def test_a_closed_loop_is_called_one(own):
    """All at once is a load without a cap."""
    assert "in a closed loop of 4," in render([own(request_rate="inf", max_concurrency=4)], "md")
    assert "all sent at once" in render([own(request_rate="inf", max_concurrency=None)], "md")
    assert "in a closed loop of 4," in render([DATA / "vllm-appended.json"], "md")


def test_the_title_speaks_of_other_tools_only_where_there_are(own):
    """Ours are ours, a mixture stands side by side."""
    files = [own("a.json"), own("b.json")]
    for paths, title in ((files, "# 2 results of stallfree"),
                         ([files[0], DETAILED], "# 2 results side by side"),
                         ([DETAILED, DATA / "vllm.json"], "# 2 results of other tools")):
        assert render(paths, "md").startswith(title + "\n")


def test_a_path_that_does_not_exist_could_have_been_a_file(tmp_path):
    """The message names result files too."""
    with pytest.raises(UsageError, match="give a study or run directory, or a result file"):
        render([tmp_path / "none.json"], "md")
