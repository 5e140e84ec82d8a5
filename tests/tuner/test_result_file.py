"""The result file of `vllm bench serve`: parallel lists, seconds, null for what is not there."""

import json
import math
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import Outcome, OutputError, RunRecorder
from bench.files import write_json
from tuner.result_file import request_lists, result_name
from workloads import Plan

SECOND = 1_000_000_000
READS = st.lists(st.tuples(st.integers(1, 10**10), st.integers(1, 5)), max_size=6)
REQUESTS = st.lists(st.tuples(st.sampled_from(list(Outcome)), READS), min_size=1, max_size=8)


def run_of(requests, warmups=0, rate_rps=2.0, **meta):
    """A run of (outcome, reads as (gap in ns, tokens)), one request a second."""
    n = len(requests)
    none = np.full(n, -1)
    plan = Plan(intended_ns=np.arange(n) * SECOND, input_len=np.arange(n) + 5, output_len=np.full(n, 9),
                component=np.zeros(n), prefix_group=none, session=none, turn=np.zeros(n), num_warmups=warmups,
                seed=1, rate_rps=rate_rps, component_names=("a",))
    recorder = RunRecorder(plan, start_ns=SECOND, meta={"rate_rps": rate_rps, **meta})
    for row, (outcome, reads) in enumerate(requests):
        if outcome is Outcome.NOT_SENT:
            continue
        at_ns = SECOND * (row + 1)
        recorder.sent(row, at_ns)
        for gap_ns, tokens in reads:
            at_ns += gap_ns
            recorder.read(row, at_ns, tokens)
        if outcome is not Outcome.CUT_SHORT:
            recorder.ended(row, at_ns, outcome)
    return recorder.run()


def test_the_lists_are_in_seconds_with_null_for_no_value():
    """A success, a refusal without tokens, and a request never sent; the warm-up is left out."""
    lists = request_lists(run_of([
        (Outcome.OK, [(SECOND, 1)]),
        (Outcome.OK, [(SECOND // 2, 1), (SECOND // 4, 2)]),
        (Outcome.REJECTED, []),
        (Outcome.NOT_SENT, []),
    ], warmups=1))
    assert lists == {
        "input_lens": [6, 7, 8], "output_lens": [3, 0, 0], "success": [True, False, False],
        "start_times": [2.0, 3.0, None], "ttfts": [0.5, None, None], "latencies": [0.75, None, None],
        "itls": [[0.25], [], []], "queue_times": [0.0, 0.0, None], "errors": ["", "rejected", "not_sent"],
    }


@given(REQUESTS)
def test_the_lists_are_parallel_and_agree_with_each_other(requests):
    """One entry a request in every list; TTFT and gaps of a success add up to its latency."""
    lists = request_lists(run_of(requests))
    json.dumps(lists, allow_nan=False)
    assert {len(entries) for entries in lists.values()} == {len(requests)}
    for row, good in enumerate(lists["success"]):
        assert good == (lists["errors"][row] == "") == (lists["latencies"][row] is not None)
        if good:
            parts = lists["ttfts"][row] + math.fsum(lists["itls"][row])
            assert parts == pytest.approx(lists["latencies"][row])


@pytest.mark.parametrize(("rate", "label", "expected"), [
    (2.0, None, "vllm-2qps-tiny-20250102-030405.json"),
    (math.inf, "a/b", "a_b-infqps-tiny-20250102-030405.json"),
])
def test_the_name_is_vllms(rate, label, expected):
    """Label or backend, rate, model, time; a slash in a label makes no directory."""
    run = run_of([(Outcome.OK, [(1, 1)])], rate_rps=rate, label=label,
                 engine={"name": "vllm", "model": "/models/tiny"})
    assert result_name(run, datetime(2025, 1, 2, 3, 4, 5)) == expected


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    """An earlier file is replaced; where nothing can be written the error names the path."""
    path = tmp_path / "r.json"
    for content in ({"a": 1}, {"a": 2}):
        write_json(path, content)
        assert json.loads(path.read_text()) == content
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OutputError, match=r"r\.json/x"):
        write_json(path / "x", {})
