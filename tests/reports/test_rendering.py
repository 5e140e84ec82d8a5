import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench import OutputError, save_run
from reports import load_study, render, write_report
from workloads.errors import EvidenceError, UsageError

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)"> | `x` [a](javascript:b) \ud800'


class Page(HTMLParser):
    """The tags of a page, its scripts apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and not self.scripts[-1]:
            self.scripts[-1] = data


def poison(value: Any) -> Any:
    """The same document with every name and sentence replaced by hostile text."""
    if isinstance(value, dict):
        return {key: poison(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poison(item) for item in value]
    return HOSTILE if isinstance(value, str) and not value.startswith("runs/") else value


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page)


def test_the_page_has_every_part_in_order(finished: Path) -> None:
    """Verdict first, definitions last, three charts each with a reading and its data."""
    page = render([finished], "html")
    assert sections(page) == ["verdict", "comparison", "gaps", "load", "tried", "workload", "environment",
                              "definitions"]
    assert re.findall(r'data-chart="([^"]+)"', page) == ["chart-survival", "chart-load", "chart-trials"]
    assert page.count("<summary>Data of this chart</summary>") == 3
    assert "vllm serve tiny --max-num-batched-tokens 128 --max-num-seqs 32" in page


def test_objectives_are_found_under_either_spelling(finished: Path) -> None:
    """The SLO table matches an objective to its result although the user spelt it otherwise."""
    page = render([finished], "html")
    row = re.search(r">fluidity:p10&gt;=0.9</th>(.*?)</tr>", page, re.DOTALL)
    assert row is not None
    assert "holds" in row[1]
    assert "not judged" not in row[1]


def test_the_same_study_gives_the_same_bytes(finished: Path) -> None:
    """No time of day, no random identifier: reports can be compared and cached."""
    for kind in ("html", "md", "json"):
        assert render([finished], kind) == render([finished], kind)


def test_the_page_stays_small_and_loads_nothing(finished: Path) -> None:
    """At most 6 MB, plotly once, nothing with an address, and a policy that forbids every connection."""
    page = render([finished], "html")
    assert len(page.encode()) <= 6_000_000
    assert page.count("plotly.js v") == 1
    parsed = Page(page)
    for tag, attributes in parsed.tags:
        address = attributes.get("src") or (attributes.get("href") if tag in ("link", "a") else None)
        assert address is None or address.startswith(("#", "data:")), (tag, attributes)
    policy = next(str(a["content"]) for t, a in parsed.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe-inline'; img" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_charts_offer_no_upload(finished: Path) -> None:
    """plotly's button that sends the chart to a cloud service is off in every chart."""
    scripts = Page(render([finished], "html")).scripts
    charts = [json.loads(script) for script in scripts if script.startswith("{")]
    assert len(charts) == 3
    for chart in charts:
        assert chart["config"]["showSendToCloud"] is False
        assert chart["config"]["plotlyServerURL"] == ""
        assert chart["config"]["displaylogo"] is False


def test_plotly_accepts_every_figure(finished: Path) -> None:
    """Each figure is valid for plotly itself once the page's colours are put in."""
    from plotly.graph_objects import Figure

    for script in Page(render([finished], "html")).scripts:
        if script.startswith("{"):
            chart = json.loads(re.sub(r"var\(--[a-z]+\)", "#123456", script))
            Figure(data=chart["data"], layout=chart["layout"])


def test_hostile_text_stays_text(builder: Any, finished: Path) -> None:
    """Names from outside become neither tags nor scripts, in the page, its charts or the Markdown."""
    raw = json.loads((finished / "recommendation.json").read_text())
    study = builder.write(poison(raw) | {"verdict": HOSTILE})
    page, clean = render([study], "html"), render([finished], "html")
    tags = [tag for tag, _ in Page(page).tags]
    assert tags.count("script") <= [tag for tag, _ in Page(clean).tags].count("script")
    assert "img" not in tags
    assert not any(name.startswith("on") for _, attributes in Page(page).tags for name in attributes)
    prose = re.sub(r"(?s)^(`{3,})$.*?^\1$", "", render([study], "md"), flags=re.MULTILINE)
    assert not re.search(r"(?<!\\)<(script|img)", prose)
    json.loads(render([study], "json"))


def test_an_empty_study_says_what_is_missing(builder: Any) -> None:
    """Before its first trial a study renders, without the chart library, and names every gap."""
    study = builder.write({"schema_version": 1, "verdict": "unfinished", "trials": []})
    page = render([study], "html")
    assert "plotly.js v" not in page
    for said in ("No trial has finished", "There is no recommendation yet", "names no SLO",
                 "default setting has not been measured", "does not describe its workload"):
        assert said in page
    assert json.loads(render([study], "json"))["gaps"] == {"default": None, "recommended": None}


def test_a_study_whose_trials_all_failed_is_no_success(builder: Any) -> None:
    """Failed trials are listed with their reasons, and no figure stands for them."""
    trial = {"knobs": {"token_budget": 64, "max_seqs": 8}, "outcome": "start_failed", "runs": [],
             "note": "no memory for the KV cache"}
    study = builder.write({"schema_version": 1, "verdict": "slo_infeasible", "recommended": None,
                           "trials": [{**trial, "number": n} for n in range(3)]})
    page = render([study], "html")
    assert page.count("no memory for the KV cache") == 3
    assert "SLO not met by any setting" in page
    assert "No finished trial has a p99 TBT" in page


def test_a_study_without_its_runs_keeps_its_tables(builder: Any, finished: Path) -> None:
    """When the run directories are gone the page says which and shows the rest."""
    study = builder.write(json.loads((finished / "recommendation.json").read_text()))
    page = render([study], "html")
    assert "The run of the default setting cannot be read" in page
    assert re.findall(r'data-chart="([^"]+)"', page) == ["chart-load", "chart-trials"]


def test_markdown_holds_the_same_verdict_and_figures(finished: Path) -> None:
    """A pull request shows the verdict, the command and the comparison of the page, within GitHub's limit."""
    text = render([finished], "md")
    study = load_study(finished)
    assert study.verdict_text in text
    assert "```\nvllm serve tiny" in text
    assert "| p99 TBT (ms) |" in text
    assert len(text) < 65_536


def test_runs_show_set_up_before_results(finished: Path) -> None:
    """Two runs side by side: validity, what differs in the set-up, then the figures, then how the
    client fared."""
    runs = [finished / "runs" / name for name in ("confirm-default", "confirm-recommended")]
    page = render(runs, "html")
    assert sections(page) == ["verdict", "setup", "results", "gaps", "client", "definitions"]
    view = json.loads(render(runs, "json"))
    assert {"setting": "Knobs token budget", "values": ["2048", "128"]} in view["setup_differences"]
    assert [run["name"] for run in view["runs"]] == ["confirm-default", "confirm-recommended"]


@pytest.mark.parametrize(("requests", "failed", "tokens"), [(1, 0, 1), (1, 0, 2), (5, 5, 4), (0, 0, 1)])
def test_tiny_and_failed_runs_render(
    tmp_path: Path, make_run: Any, requests: int, failed: int, tokens: int
) -> None:
    """One request, only failures or none at all: every format is made, with dashes instead of figures."""
    path = save_run(make_run(requests=requests, failed=failed, tokens=tokens), tmp_path / "run")
    for kind in ("html", "md", "json"):
        assert render([path], kind)
    assert json.loads(render([path], "json"))["runs"][0]["gaps"]["n"] == (tokens - 1) * (requests - failed)


def test_what_cannot_be_reported_is_refused_in_one_line(tmp_path: Path, finished: Path) -> None:
    """No paths, unknown formats, mixtures and directories that hold neither are user errors."""
    for paths, kind, error in (
        ([], "html", UsageError), ([finished], "pdf", UsageError), ([finished, finished], "html", UsageError),
        ([tmp_path / "gone"], "html", UsageError), ([tmp_path], "html", EvidenceError),
    ):
        with pytest.raises(error) as refused:
            render(paths, kind)
        assert "\n" not in str(refused.value)


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, finished: Path) -> None:
    """The file is complete, readable like any other, and leaves nothing beside it."""
    output = write_report([finished], "md", tmp_path / "new" / "report.md")
    assert output.read_text() == render([finished], "md")
    assert os.listdir(output.parent) == ["report.md"]


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path, finished: Path) -> None:
    """A directory in the way is named, and the finished study stays as it was."""
    (tmp_path / "file").write_text("")
    for output in (tmp_path, tmp_path / "file" / "report.md"):
        with pytest.raises(OutputError, match="cannot write") as refused:
            write_report([finished], "md", output)
        assert "\n" not in str(refused.value)
    assert os.listdir(tmp_path) == ["file"]
