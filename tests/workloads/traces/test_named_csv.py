"""CSV files with named columns."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, read_trace

DATA = Path(__file__).resolve().parents[3] / "../shared/data"
SECONDS = "timestamp_s,input_len,output_len\n"


def read(folder: Path, text: str, **options: Any) -> Trace:
    file = folder / "t.csv"
    file.write_text(text, encoding="utf-8")
    return read_trace(file, options=ReadOptions(**options))


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(st.integers(0, 10**18), st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1),
                               st.integers(0, 10**15)), min_size=1, max_size=20),
       unit=st.sampled_from([("s", 9), ("ms", 6), ("us", 3), ("ns", 0)]))
def test_times_of_every_unit_come_back_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int, int]], unit: tuple[str, int],
) -> None:
    """Whatever the unit of the column, rows come back exactly and in order."""
    rows.sort(key=lambda row: row[0])
    name, digits = unit
    text = f"timestamp_{name},input_len,output_len,think_time_s\n" + "".join(
        f"{ns // 10**digits}{f'.{ns % 10**digits:0{digits}d}' if digits else ''},{prompt},{answer},"
        f"{think // 10**9}.{think % 10**9:09d}\n" for ns, prompt, answer, think in rows)
    trace = read(tmp_path_factory.mktemp("csv"), text)
    assert trace.arrival_ns.tolist() == [row[0] - rows[0][0] for row in rows]
    assert trace.input_len.tolist() == [row[1] for row in rows]
    assert trace.output_len.tolist() == [row[2] for row in rows]
    assert trace.think_ns.tolist() == [row[3] for row in rows]


@pytest.mark.parametrize(("header", "unit", "second"), [
    ("timestamp_s,input_len,output_len", None, 10**9),
    ("arrived_at,num_prefill_tokens,num_decode_tokens", None, 10**9),
    ("timestamp_ms,prompt_tokens,completion_tokens", None, 10**6),
    ("Timestamp,Input_Tokens,Output_Tokens", "us", 10**3),
    ("timestamp_ns , input_length , output_length", None, 1)])
def test_common_names_are_known(tmp_path: Path, header: str, unit: Any, second: int) -> None:
    """Synonyms of other tools, in upper or lower case, are found; the name of the time says its unit."""
    trace = read(tmp_path, f"{header}\n1,20,3\n4,21,3\n", time_unit=unit)
    assert trace.arrival_ns.tolist() == [0, 3 * second]
    assert trace.input_len.tolist() == [20, 21]


def test_dates_and_no_times(tmp_path: Path) -> None:
    """A column `timestamp` holds dates and times; without a column of times the trace has none."""
    dated = read(tmp_path, "timestamp,input_len,output_len\n"
                           "2026-05-04T10:00:00Z,1,1\n2026-05-04 10:00:00.25,1,1\n")
    assert dated.arrival_ns.tolist() == [0, 250_000_000]
    assert not read(tmp_path, "input_len,output_len\n1,1\n").timed


def test_optional_columns(tmp_path: Path) -> None:
    """Sessions, turns, think times and tenants are read; empty cells mean none."""
    trace = read(tmp_path, "timestamp_s,input_len,output_len,session,turn,think_time_s,tenant\n"
                           "0,5,1,a,0,,chat\n1,9,2,,,,batch\n2,20,3,a,4,1.5,chat\n")
    assert trace.session.tolist() == [0, -1, 0]
    assert trace.turn.tolist() == [0, 0, 4]
    assert trace.think_ns.tolist() == [0, 0, 1_500_000_000]
    assert [trace.tenant_names[tenant] for tenant in trace.tenant] == ["chat", "batch", "chat"]


def test_columns_can_be_named(tmp_path: Path) -> None:
    """`OURS=THEIRS` names a column; what the file does not have, and what is not ours, is refused."""
    text = "when,q,a\n5,6,7\n6,6,7\n"
    trace = read(tmp_path, text, columns={"timestamp_ms": "when", "input_len": "q", "output_len": "a"})
    assert trace.arrival_ns.tolist() == [0, 1_000_000]
    with pytest.raises(UsageError, match=r"t\.csv:1: no column b; found when, q, a; expected input_len"):
        read(tmp_path, text, columns={"input_len": "q", "output_len": "b"})
    with pytest.raises(UsageError, match="csv has no such column"):
        read(tmp_path, text, columns={"lenght": "q"})


@pytest.mark.parametrize(("text", "options", "said"), [
    ("a,b,c\n1,2,3\n", {}, r"t\.csv:1: no column input_len, output_len; found a, b, c; expected input_len, "),
    (f"timestamp_ms,{SECONDS}", {}, "times in several columns, timestamp_s, timestamp_ms"),
    (f"{SECONDS}1,1,1\n", {"time_unit": "ms"}, "timestamp_s is in s, not in ms"),
    ("timestamp,input_len,output_len\n1,1,1\n", {}, r"t\.csv:2: timestamp holds plain numbers; say their"),
    (f"{SECONDS}1,1,1\n1700000000000,1,1\n", {}, r"t\.csv:3: .*'1700000000000', not a time in s"),
    (f"{SECONDS}1,1,1\n2026-05-04,1,1\n", {}, r"t\.csv:3: .*'2026-05-04', not a time in s"),
    ("input_len,output_len,prefix_group\n1,1,a\n", {}, "prefix_group needs a column prefix_len"),
    ("input_len,output_len,think_time_s\n1,1,-1\n", {}, r"t\.csv:2: think_time_s is below 0"),
], ids=["wrong columns", "two units", "unit against name", "no unit", "milliseconds as seconds",
        "a date as seconds", "prefix without length", "think time"])
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, options: dict[str, Any],
                                         said: str) -> None:
    """Wrong columns, mixed units and impossible values are errors of one line that say what to do."""
    with pytest.raises(UsageError, match=said) as error:
        read(tmp_path, text, **options)
    assert "\n" not in str(error.value)


def test_a_column_that_names_no_tenants(tmp_path: Path) -> None:
    """A tenant column with thousands of values is refused."""
    rows = "".join(f"1,1,user-{number}\n" for number in range(2000))
    with pytest.raises(UsageError, match=r"t\.csv: 'user-1024' would be tenant number 1025"):
        read(tmp_path, "input_len,output_len,tenant\n" + rows)


@pytest.mark.skipif(not (DATA / "vidur_processed").is_dir(), reason="the public traces are not here")
@pytest.mark.parametrize(("name", "rows", "mean", "timed"), [
    ("arxiv_summarization_stats_llama2_tokenizer_filtered_v2", 28_257, 2588, False),
    ("splitwise_conv", 19_366, 1155, True)])
def test_vidurs_files(name: str, rows: int, mean: int, timed: bool) -> None:
    """Vidur's processed traces are read by its names of columns, with and without arrivals."""
    trace = read_trace(DATA / f"vidur_processed/{name}.csv")
    assert (len(trace), round(trace.input_len.mean()), trace.timed) == (rows, mean, timed)


@pytest.mark.parametrize(("header", "why"), [
    ("timestamp_s,input_len,prompt_tokens,output_len",
     "input_len in several columns, input_len, prompt_tokens"),
    ("timestamp_s,input_len,input_len,output_len", "several columns are called input_len"),
])
def test_a_length_that_stands_in_two_columns_is_refused(tmp_path: Path, header: str, why: str) -> None:
    """Nobody can tell which one was meant; one of two names can be chosen with --column."""
    with pytest.raises(UsageError, match=why):
        read(tmp_path, f"{header}\n0,10,11,5\n")
    if "prompt_tokens" in header:
        chosen = read(tmp_path, f"{header}\n0,10,11,5\n", columns={"input_len": "prompt_tokens"})
        assert chosen.input_len.tolist() == [11]
