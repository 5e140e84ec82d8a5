"""Request logs of servers and gateways."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, log_columns, open_trace, read_trace

_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def _row(at: Any = 1_777_888_800, prompt: Any = 7, answer: Any = 3, **other: Any) -> dict[str, Any]:
    return {"timestamp": at, "usage": {"prompt_tokens": prompt, "completion_tokens": answer}, **other}


def _file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _read(path: Path, **options: Any) -> Trace:
    return read_trace(path, format="request-log", options=ReadOptions(**options))


def test_rows_are_sorted_by_their_time(tmp_path: Path) -> None:
    """A gateway writes a line when a request ends; those of one time stay in the file's order."""
    path = _file(tmp_path, _row(5, 50), _row(2.5, 25), _row(5, 51), _row(2.75, 27))
    trace = _read(path)
    assert trace.arrival_ns.tolist() == [0, 250_000_000, 2_500_000_000, 2_500_000_000]
    assert trace.input_len.tolist() == [25, 27, 50, 51]


@pytest.mark.parametrize("row", [
    {"timestamp": 5, "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}},
    {"created": 5, "usage": {"input_tokens": 7, "output_tokens": 3}},
    {"startTime": 5.0, "endTime": 9.0, "prompt_tokens": 7, "completion_tokens": 3, "status": "success"},
    {"ts": "1970-01-01T00:00:05Z", "response": {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}},
    {"custom_id": "a", "error": None,
     "response": {"status_code": 200, "body": {"created": 5, "usage": {"prompt_tokens": 7,
                                                                       "completion_tokens": 3}}}},
    {"request_time": 5, "response": "a text", "messages": [{}], "input_tokens": 7, "output_tokens": 3},
    {"time": 5, "usage": None, "prompt_tokens": 7, "completion_tokens": 3, "error": ""},
])
def test_the_usual_layouts_are_known(tmp_path: Path, row: dict[str, Any]) -> None:
    """Those of OpenAI's API and batches, of LiteLLM, and counts at the top; the format is told from them."""
    path = _file(tmp_path, row)
    assert open_trace(path).format == "request-log"
    trace = _read(path)
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([7], [3])
    assert trace.rejected == {}


def test_the_time_of_the_request_comes_before_that_of_the_line(tmp_path: Path) -> None:
    """Of several times the one at which the request began counts, in every row the same."""
    rows = [_row(90 - i, start_time=10 + i) for i in range(3)]
    assert _read(_file(tmp_path, *rows)).arrival_ns.tolist() == [0, 10**9, 2 * 10**9]
    with pytest.raises(UsageError, match=r"requests\.jsonl:2: no time where the rows before have it"):
        _read(_file(tmp_path, _row(1, start_time=1), _row(2)))


@pytest.mark.parametrize("sign", [
    {"status": "failure"}, {"status": "Error"}, {"status": 500}, {"status": "429"}, {"status_code": 404},
    {"error": {"message": "no"}}, {"error": "timeout"}, {"success": False},
    {"error": {"a": 1}, "usage": None}, {"response": {"status_code": 400}},
])
def test_failed_requests_are_counted_and_left_out(tmp_path: Path, sign: dict[str, Any]) -> None:
    """Whatever the log says it with, and whether or not they have counts."""
    trace = _read(_file(tmp_path, _row(1), _row(2, **sign), _row(3, status=200, success=True, error=False)))
    assert len(trace) == 2
    assert trace.rejected == {"failed": 1}


def test_sessions_are_told_by_an_id(tmp_path: Path) -> None:
    """Their rows are turns in order of time; a row without an id, or an empty one, stands alone."""
    trace = _read(_file(tmp_path, _row(3, session_id="b"), _row(1, session_id="a"), _row(2, session_id=""),
                        _row(4, conversation_id="a"), _row(5, metadata={"session_id": "b"})))
    assert trace.session.tolist() == [0, -1, 1, 0, 1]
    assert trace.turn.tolist() == [0, 0, 0, 1, 1]


def test_tenants_are_told_where_it_is_asked_for(tmp_path: Path) -> None:
    """Who calls is nobody's business unless `--column tenant=KEY` says so."""
    path = _file(tmp_path, _row(1, user="ann"), _row(2, user=5), _row(3), _row(4, user="ann"))
    assert _read(path).tenant_names == ("",)
    trace = _read(path, columns={"tenant": "user"})
    assert [trace.tenant_names[t] for t in trace.tenant] == ["ann", "5", "", "ann"]


def test_keys_of_other_names_may_lead_inwards_or_have_dots(tmp_path: Path) -> None:
    """`--column` takes a path of keys, or a key with dots of its own as in OpenTelemetry."""
    row = {"a": {"when": 5}, "gen_ai.usage.input_tokens": 7, "b": {"c": {"n": 3}}}
    trace = _read(_file(tmp_path, row), columns={
        "timestamp": "a.when", "input_len": "gen_ai.usage.input_tokens", "output_len": "b.c.n"})
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([7], [3])
    with pytest.raises(UsageError, match="no time; expected one of the keys c, or --column"):
        _read(_file(tmp_path, row), columns={"timestamp": "c"})
    with pytest.raises(UsageError, match=r"'.\"when\": 5.' is no time"):
        _read(_file(tmp_path, row), columns={"timestamp": "a"})
    with pytest.raises(UsageError, match="request-log has no such column"):
        _read(_file(tmp_path, row), columns={"colour": "a"})


@pytest.mark.parametrize(("row", "said"), [
    ({"timestamp": 2}, "no input_len; expected one of the keys usage.prompt_tokens"),
    (_row(2, 7, None), "no output_len"), (_row(None), "no time"), (_row("soon"), "is no time"),
    (_row(1_777_888_800_000), "mixed units"), (_row(2, "7"), "not a whole number"),
    (_row(2, 7.5), "not a whole number"), (_row(2, True), "not a whole number"),
    (_row(2, 2**31), "beyond what can be meant"), (_row(2, 7, -2**40), "beyond what can be meant"),
    (_row(2, 10**30), ""), (_row(2, 0), "a prompt of 0 tokens"), (_row(2, 7, -3), "an answer of -3 tokens"),
])
def test_a_bad_row_is_named_or_counted(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    """An error of one line with file and line, or a counted skip where it is asked for."""
    path = _file(tmp_path, _row(1), row, _row(3))
    with pytest.raises(UsageError) as error:
        _read(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    trace = _read(path, bad_rows="skip")
    assert (len(trace), sum(trace.rejected.values())) == (2, 1)


@given(st.lists(st.tuples(st.integers(0, 10**17), st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1),
                          st.none() | st.integers(0, 3)), min_size=1, max_size=20), st.integers(1, 6))
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory,
                                    rows: list[tuple[int, int, int, int | None]], piece: int) -> None:
    """By time, to the nanosecond, however many pieces the file is kept in."""
    path = tmp_path_factory.mktemp("log") / "requests.jsonl"
    path.write_text("".join(
        f'{{"timestamp": {at_ns // 10**9}.{at_ns % 10**9:09d}, "session_id": {json.dumps(session)}, '
        f'"prompt_tokens": {prompt}, "completion_tokens": {answer}}}\n'
        for at_ns, prompt, answer, session in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_columns, "PIECE_ROWS", piece)
        trace = _read(path)
    rows = sorted(rows, key=lambda row: row[0])
    assert trace.arrival_ns.tolist() == [row[0] - rows[0][0] for row in rows]
    assert trace.input_len.tolist() == [row[1] for row in rows]
    assert trace.output_len.tolist() == [row[2] for row in rows]
    assert [number >= 0 for number in trace.session.tolist()] == [row[3] is not None for row in rows]
    for number in range(int(trace.session.max()) + 1):
        assert len({rows[i][3] for i in np.flatnonzero(trace.session == number)}) == 1


@pytest.mark.skipif(not _DATA.is_dir(), reason="the public data is not here")
def test_a_log_of_real_vllm_runs() -> None:
    """Rows of another benchmark's result file are read by naming its keys."""
    path = _DATA / "llmservingsim_vllm_runs" / "RTXPRO6000_Llama-3.1-8B_requests.jsonl"
    trace = _read(path, columns={"input_len": "input_toks", "output_len": "output_toks"})
    written = sorted((json.loads(line) for line in path.read_text().splitlines()),
                     key=lambda row: row["arrival_time"])
    assert len(trace) == 300
    assert trace.input_len.tolist() == [row["input_toks"] for row in written]
    assert trace.output_len.tolist() == [row["output_toks"] for row in written]
