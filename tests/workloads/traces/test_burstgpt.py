"""BurstGPT's releases, read by the names of their columns."""

from pathlib import Path

import pytest

from workloads import UsageError
from workloads.traces import ReadOptions, open_trace, read_trace

FIRST = ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
         "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
         "118.25,GPT-4,417,276,693,API log\n119,GPT-4,0,0,0,API log\n120,GPT-4,10,2,12,API log\n")
THIRD = ("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
         "5,a1,1.5,ChatGPT,472,18,490,Conversation log\n7,,2.5,GPT-4,4,2,6,API log\n"
         "9.5,a1,0.5,ChatGPT,900,3,903,Conversation log\n")


def test_failed_rows_are_out_and_log_types_are_tenants(tmp_path: Path) -> None:
    """Rows without an answer are counted as failed, the kinds of log are tenants, seconds keep fractions."""
    file = tmp_path / "t.csv"
    file.write_text(FIRST)
    reader = open_trace(file)
    (trace,) = reader.pieces()
    assert (reader.format, reader.read, reader.rejected) == ("burstgpt", 5, {"failed": 2})
    assert trace.arrival_ns.tolist() == [0, 113_250_000_000, 115_000_000_000]
    assert trace.input_len.tolist() == [472, 417, 10]
    assert trace.tenant_names == ("Conversation-log", "API-log")
    assert trace.tenant.tolist() == [0, 1, 1]
    assert set(trace.session.tolist()) == {-1}


def test_the_third_release_has_sessions(tmp_path: Path) -> None:
    """Columns are found by name; requests of one session are its turns, an empty id is none."""
    file = tmp_path / "t.csv"
    file.write_text(THIRD)
    trace = read_trace(file)
    assert trace.session.tolist() == [0, -1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert trace.input_len.tolist() == [472, 4, 900]


def test_another_column_can_name_the_tenants(tmp_path: Path) -> None:
    """`tenant=Model` makes tenants of the models; a column that is not there is refused."""
    file = tmp_path / "t.csv"
    file.write_text(FIRST)
    trace = read_trace(file, options=ReadOptions(columns={"tenant": "Model"}))
    assert trace.tenant_names == ("ChatGPT", "GPT-4")
    with pytest.raises(UsageError, match=r"t\.csv:1: no column Team; found Timestamp, Model"):
        read_trace(file, options=ReadOptions(columns={"tenant": "Team"}))
    with pytest.raises(UsageError, match="burstgpt has no such column"):
        read_trace(file, options=ReadOptions(columns={"turn": "Model"}))
