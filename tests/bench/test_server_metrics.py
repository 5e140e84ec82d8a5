"""What a server's counters say against a run."""

from dataclasses import replace

import pytest

from bench.server_metrics import Expected, Findings, findings
from engine_adapter.http.server_metrics import ServerMetrics

BEFORE = ServerMetrics("vllm", running=0, waiting=0, preemptions=5, prompt_tokens=1000, prefix_queries=1000,
                       prefix_hits=100, finished={"length": 10, "abort": 0})
AFTER = replace(BEFORE, prompt_tokens=11_000, prefix_queries=11_000, finished={"length": 29, "abort": 1})
ASKED = Expected(requests=20, prompt_tokens=10_000)


def test_a_run_of_its_own_on_a_cold_cache_has_nothing_against_it():
    """Exactly the requests of the run, no hits, no preemptions."""
    assert findings(BEFORE, AFTER, ASKED) == Findings()


@pytest.mark.parametrize(("hits", "shared", "warm"), [
    (120, 0, False), (121, 0, True), (5000, 0, True), (5000, 5000, False), (5120, 5000, False),
    (5121, 5000, True),
])
def test_a_cache_that_knows_more_than_the_plan_explains_was_warm(hits, shared, warm):
    """1 % of the prompt tokens, and one token a request, are forgiven."""
    after = replace(AFTER, prefix_hits=100 + hits)
    expected = replace(ASKED, shared_prompt_tokens=shared)
    asked = replace(after, prefix_queries=1000 + 10_000)
    found = findings(BEFORE, asked, expected)
    assert bool(found.reasons) is warm
    assert all("prefix cache was warm" in reason for reason in found.reasons)


def test_requests_of_others_make_the_run_invalid():
    """The server finished more than was sent."""
    after = replace(AFTER, finished={"length": 31, "abort": 1})
    (reason,) = findings(BEFORE, after, ASKED).reasons
    assert "it finished 22 requests, 20 were sent" in reason


def test_fewer_finished_requests_are_no_sign_of_others():
    """Some of ours were refused or are still being cancelled."""
    assert findings(BEFORE, replace(AFTER, finished={"length": 15}), ASKED) == Findings()


@pytest.mark.parametrize(("engine", "reasons", "notes"), [("vllm", 1, 0), ("sglang", 0, 1)])
def test_a_server_that_was_busy_before(engine, reasons, notes):
    """A reason where gauges are exact; a note where an idle server may show old ones."""
    before, after = replace(BEFORE, engine=engine, waiting=2), replace(AFTER, engine=engine)
    found = findings(before, after, ASKED)
    assert (len(found.reasons), len(found.notes)) == (reasons, notes)
    assert "busy before the run: 0 requests running, 2 waiting" in (*found.reasons, *found.notes)[0]


def test_preemptions_are_noted():
    """They are the engine's own doing: the run stays valid."""
    found = findings(BEFORE, replace(AFTER, preemptions=8), ASKED)
    assert found.reasons == ()
    assert found.notes[0].startswith("3 preemptions")


def test_a_restart_is_a_reason_and_the_only_one():
    """Nothing else can be said about a server that began anew."""
    found = findings(BEFORE, replace(AFTER, prompt_tokens=3, finished={"length": 99}), ASKED)
    assert found.reasons == ("the server restarted during the run: its counters began anew",)


@pytest.mark.parametrize("looks", [(None, AFTER), (BEFORE, None), (None, None)])
def test_what_was_not_checked_is_said(looks):
    """Without two looks nothing is claimed, and the reader knows it."""
    found = findings(*looks, ASKED)
    assert found.reasons == ()
    assert "not checked" in found.notes[0]


def test_absent_figures_are_no_findings():
    """A server that shows nothing of use is neither warm nor shared."""
    nothing = ServerMetrics("llama.cpp")
    assert findings(nothing, nothing, ASKED) == Findings()
