"""Runs over HTTP: what failed and why, how they were loaded, counted and timed, what both sides say."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from bench import ClientHealth, Outcome, Run, Validity, judge_validity, save_run
from reports import load_view, render, run_screen, view_run
from reports.run_view import RunView

SERVER = {"name": "vllm", "version": "0.32.0", "model": "tiny", "fingerprint": {
    "api": "completions", "prompts": "text", "kernel_stamps": True, "tls": False}}
DELTA = {"restarted": False, "preemptions": 3, "prefix_queries": 48_000, "prefix_hits": 12_000,
         "prefix_hit_rate": 0.25, "prompt_tokens": 48_000, "generation_tokens": 18_480,
         "finished": {"length": 150, "<b>stop</b>": 4}, "finished_requests": 154}
STAGE = {"name": "30s@1", "kind": "steady", "offered_rps": 1.0, "achieved_rps": 0.98, "num_requests": 30,
         "failed": 2, "p50_ttft_ms": 480.0, "p99_ttft_ms": None, "p99_tbt_ms": 70.0, "max_tbt_ms": 102.0,
         "sustainable": True}
RAMP = {**STAGE, "name": "60s@1..4", "kind": "ramp", "failed": 0, "sustainable": None}
HOSTILE = "HTTP 429: <script>alert(1)</script> [bold]slow\x1b[2J down"


@pytest.fixture
def served(make_run: Any) -> Run:
    """A run over HTTP of which six requests failed in four ways."""
    run: Run = make_run(
        requests=160, failed=6, engine=SERVER, max_concurrency=20, token_count_source="usage",
        token_count_sources={"usage": 150, "events": 4},
        warnings=["the server does not take ignore_eos: answers end where the model ends them"],
        server_metrics={"before": {"cache_config": {"block_size": "16"}}, "after": {}, "delta": DELTA},
        workers=[{"requests": 80}, {"requests": 80}],
        stages=[{"name": "30s@1", "start_rps": 1.0, "end_rps": 1.0},
                {"name": "60s@1..4", "start_rps": 1.0, "end_rps": 4.0}])
    outcome, status, due = run.outcome.copy(), run.status.copy(), run.due_ns.copy()
    outcome[:6] = [Outcome.HTTP_STATUS] * 3 + [Outcome.TRUNCATED] * 2 + [Outcome.CONNECT]
    status[:3] = 429, 429, 503
    due[40:80] -= 500_000_000
    prompts = np.where(run.ok, 303, -1).astype(np.int32)
    client = ClientHealth(1_000_000, 2_000_000, 3_000_000, 20_000, 300_000, 4_000_000, 0.002, 0.41)
    return replace(
        run, outcome=outcome, status=status, prompt_tokens=prompts, client=client,
        intended_ns=np.where(due < run.due_ns, due, run.intended_ns),
        error={0: HOSTILE, 2: "HTTP 503: starting", 3: "the stream ended after 3 tokens without [DONE]"})


def screen(view: RunView) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(run_screen(view, None, {}))
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written.replace("\u00a0", " ")


def one_line(printed: str) -> str:
    return " ".join(printed.split())


def test_failures_stand_with_the_successes(served: Run) -> None:
    """The line that counts the successes gives the failed share, the kinds and the HTTP statuses."""
    text = one_line(screen(view_run(served)))
    assert text.startswith("Valid. 154 of 160 requests succeeded in 2 stages of 1 to 4 requests/s with at "
                           "most 20 in flight, 18 326 gaps between tokens. 6 did not (failed: 3.75 %): "
                           "2 http status 429, 2 truncated, 1 connect, 1 http status 503.")


def test_the_first_error_of_each_kind_is_quoted(served: Run) -> None:
    """What the first failed request of a kind said is shown, whoever said it, and cannot steer anything."""
    text = screen(view_run(served))
    assert "First of 2 http status 429: HTTP 429: <script>alert(1)</script> [bold]slow[2J" in text
    assert "First of 1 http status 503: HTTP 503: starting" in text
    assert "First of 2 truncated: the stream ended after 3 tokens" in text
    assert "First of 1 connect" not in text
    assert "\x1b" not in text


def test_a_failure_is_told_once(served: Run) -> None:
    """The note of the validity that quotes the same error is not repeated; other notes are."""
    served = replace(served, validity=judge_validity(served))
    assert any("6 of 160 requests failed" in note for note in served.validity.notes)
    noted = replace(served.validity, notes=(*served.validity.notes, "another note"))
    text = one_line(screen(view_run(replace(served, validity=noted))))
    assert text.count("HTTP 429: <script>") == 1
    assert "Note: another note" in text


@pytest.mark.parametrize("form", ["html", "md"])
def test_what_a_server_says_stays_text(served: Run, tmp_path: Path, form: str) -> None:
    """Errors, counters and reasons that quote a server become no markup."""
    quoting = replace(served, validity=Validity(False, (HOSTILE,), (HOSTILE,)))
    page = render([save_run(quoting, tmp_path / "run")], form)
    assert "<script>alert" not in page
    assert "<b>" not in page.replace("\\<b", "")
    assert "\x1b" not in page


def test_what_did_not_reach_the_server_is_told_apart(make_run: Any) -> None:
    """The failed share is of the requests that were attempted; requests never sent are counted beside it."""
    run = make_run(requests=100, failed=10)
    outcome = run.outcome.copy()
    outcome[:5] = Outcome.NOT_SENT
    text = one_line(screen(view_run(replace(run, outcome=outcome))))
    assert "10 did not (failed: 5.26 % of those attempted): 5 error, 5 not sent." in text


def test_all_failed_is_said_with_its_reasons(make_run: Any, tmp_path: Path) -> None:
    """With zero successes every format still says what failed, and why, and shows no figure as 0."""
    run = make_run(requests=5, failed=5, engine=SERVER, token_count_source="usage")
    run = replace(run, outcome=np.full(5, Outcome.CONNECT, dtype=np.int8), error={0: "connection refused"})
    text = one_line(screen(view_run(run)))
    assert "0 of 5 requests succeeded" in text
    assert "5 did not (failed: 100 %): 5 connect." in text
    assert "First of 5 connect: connection refused" in text
    assert "TTFT" not in text
    judged = one_line(screen(view_run(replace(run, validity=judge_validity(run)))))
    assert "Invalid: not one request succeeded (5 connect): connection refused" in judged
    assert judged.count("connection refused") == 1
    path = save_run(run, tmp_path / "run")
    for form in ("html", "md"):
        assert "connection refused" in render([path], form)
    assert json.loads(render([path], "json"))["runs"][0]["failures"] == [
        {"kind": "connect", "count": 5, "status": None, "first_error": "connection refused"}]


def test_lengths_and_their_counter_are_said_in_words(served: Run) -> None:
    """Tokens asked for and obtained, the form of the prompts, and who counted, mixtures too."""
    told = view_run(served).tokens
    assert told["Prompt tokens"].replace("\u00a0", " ") == (
        "46 200 planned, 46 662 counted by the server (+1 %)")
    assert told["Answer tokens"].replace("\u00a0", " ") == "18 480 planned, 18 480 came"
    assert told["Prompts sent as"] == "text"
    assert told["Tokens counted by"].endswith("is a guess (answers: 150 by usage, 4 by events)")


@pytest.mark.parametrize(("meta", "load", "rule"), [
    ({"rate_rps": 2.0}, "at 2 requests/s", "open loop"),
    ({"rate_rps": 2.0, "max_concurrency": 8}, "at 2 requests/s with at most 8 in flight", "Under a cap"),
    ({"rate_rps": "inf", "max_concurrency": 8}, "in a closed loop of 8", "In a closed loop"),
    ({"rate_rps": "inf"}, "with all sent at once", "at once"),
    ({"rate_rps": None}, "", "open loop"),
])
def test_the_load_is_named(make_run: Any, meta: dict[str, Any], load: str, rule: str) -> None:
    """Open loop, cap, closed loop and all at once are told apart, and so is what they mean."""
    run = make_run()
    view = view_run(replace(run, meta={**run.meta, **meta}))
    assert view.load.replace("\u00a0", " ") == load
    assert rule in view.rules[0]


def test_latency_from_the_intended_send_shows_where_it_differs(served: Run, make_run: Any) -> None:
    """Where a cap held requests back both latencies stand side by side, and how many waited."""
    text = one_line(screen(view_run(served)))
    assert "Mean TTFT from intended send" in text
    assert "p99 TTFT from intended send" in text
    assert "40 of 160 requests (25 %) waited for one of the 20 places, 500 ms in the median" in text
    assert "from intended send" not in screen(view_run(make_run()))


def test_the_client_is_described(served: Run) -> None:
    """How late it was, how tokens were stamped, and how busy it was; a cap's wait is not its lateness."""
    told = {name: value.replace("\u00a0", " ") for name, value in view_run(served).client.items()}
    assert told["Requests sent late"].endswith("longest 0.398 ms")
    assert told == {
        "Requests sent late": told["Requests sent late"],
        "Tokens stamped": "by the kernel, at their arrival",
        "Wait in the socket": "median 0.02 ms, p99 0.3 ms, longest 4 ms",
        "Read together": "0.2 % of the messages, with a later one",
        "Event loop late": "median 1 ms, p99 2 ms, longest 3 ms",
        "Processor time": "41 % of a core",
        "Workers": "2; figures are the worst of theirs",
    }


def test_all_at_once_is_no_schedule(make_run: Any) -> None:
    """A client that sends everything at once is not called late."""
    run = make_run()
    view = view_run(replace(run, meta={**run.meta, "rate_rps": "inf"}))
    assert view.client["Requests sent late"] == "all at once: there was no schedule to keep"


def test_the_servers_own_counters_are_shown(served: Run) -> None:
    """Finished requests by reason against those sent, preemptions and the share of the prefix cache."""
    told = {name: value.replace("\u00a0", " ") for name, value in view_run(served).server.items()}
    assert told["Finished requests"] == "154 (length 150, <b>stop</b> 4); this run sent 160"
    assert told["Preemptions"] == "3"
    assert told["Found in the prefix cache"] == "12 000 of 48 000 prompt tokens (25 %)"
    restarted = {**served.meta, "server_metrics": {"delta": {"restarted": True}}}
    assert list(view_run(replace(served, meta=restarted)).server) == ["Restarted"]


def test_stages_have_a_table(served: Run, tmp_path: Path) -> None:
    """One row a stage in every format, at 80 columns too; a ramp has no verdict, and what no stage has
    no column."""
    summary = {"stages": [STAGE, RAMP], "p99_tbt_ms": 70.0}
    text = screen(view_run(served, summary=summary))
    row = next(line for line in text.splitlines() if line.lstrip().startswith("60s@1..4"))
    assert row.split() == ["60s@1..4", "1", "0.98", "30", "0", "480", "70", "102", "—"]
    path = save_run(served, tmp_path / "run", summary=summary)
    page = render([path], "html")
    assert '<section id="stages"' in page
    assert "no ramp-up is in them" in page
    assert "pooled fluidity" not in page
    assert "| 30s@1 | steady | 1 |" in render([path], "md")
    assert json.loads(render([path], "json"))["runs"][0]["stages"] == [STAGE, RAMP]


def test_set_up_names_the_load_and_not_the_measurements(served: Run) -> None:
    """Stages, workers and the server's cache are set-up; counters and warnings stand elsewhere."""
    setup = view_run(served).setup
    assert setup["Stages"] == "30s@1, 60s@1..4"
    assert setup["Workers"] == "2"
    assert setup["Max concurrency"] == "20"
    assert setup["Server cache block size"] == "16"
    assert not [name for name in setup if "delta" in name or "arnings" in name]


def test_a_run_directory_from_before_these_columns_is_read(make_run: Any, tmp_path: Path) -> None:
    """An old run has no status, error, due time or stage, and its report is whole all the same."""
    path = save_run(make_run(requests=40, failed=2), tmp_path / "run")
    table = pq.read_table(path / "requests.parquet")
    later = ["due_ns", "stage", "prompt_tokens", "status", "error"]
    pq.write_table(table.drop_columns(later), path / "requests.parquet")
    head = json.loads((path / "run.json").read_text())
    head["client"] = {name: value for name, value in head["client"].items() if name.startswith("loop")}
    (path / "run.json").write_text(json.dumps(head))
    view = load_view(path)
    assert "2 did not (failed: 5 %): 2 error." in one_line(screen(view))
    assert not view.server
    assert not view.stages
    for form in ("html", "md", "json"):
        assert render([path], form)
