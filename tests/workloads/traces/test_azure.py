"""Azure's traces: exact times, both years, the published figures."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import ReadOptions, open_trace, read_trace

DATA = Path(__file__).resolve().parents[3] / "../shared/data"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1)),
                min_size=1, max_size=30), st.booleans(), st.sampled_from(["", "+00:00"]))
def test_rows_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]],
                                crlf: bool, zone: str) -> None:
    """Seven digits of a second, in order, to the nanosecond."""
    rows.sort(key=lambda row: row[0])
    text = HEADER + "".join(
        f"2023-11-{16 + ticks // 864_000_000_000:02d} {ticks // 36_000_000_000 % 24:02d}:"
        f"{ticks // 600_000_000 % 60:02d}:{ticks // 10_000_000 % 60:02d}.{ticks % 10_000_000:07d}{zone},"
        f"{prompt},{answer}\n" for ticks, prompt, answer in rows)
    file = tmp_path_factory.mktemp("azure") / "t.csv"
    file.write_bytes(text.replace("\n", "\r\n" if crlf else "\n").encode())
    trace = read_trace(file)
    assert trace.arrival_ns.tolist() == [(ticks - rows[0][0]) * 100 for ticks, _, _ in rows]
    assert trace.input_len.tolist() == [prompt for _, prompt, _ in rows]
    assert trace.output_len.tolist() == [answer for _, _, answer in rows]


def test_2024_and_further_columns(tmp_path: Path) -> None:
    """Offsets from UTC, six digits or none, and the further column of the multimodal trace are read."""
    file = tmp_path / "t.csv"
    file.write_text("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
                    "2024-05-10 00:00:00.009930+00:00,1,5,6\n2024-05-10 00:00:01+00:00,0,7,8\n")
    reader = open_trace(file)
    (piece,) = reader.pieces()
    assert reader.format == "azure"
    assert piece.arrival_ns.tolist() == [0, 990_070_000]
    assert piece.output_len.tolist() == [6, 8]


def test_wrong_columns_are_listed(tmp_path: Path) -> None:
    """A header with other names is refused with what was found and what was expected."""
    file = tmp_path / "t.csv"
    file.write_text("TIMESTAMP,Prompt,GeneratedTokens\n2024-05-10 00:00:00,5,6\n")
    with pytest.raises(UsageError, match=r"t\.csv:1: no column ContextTokens; found TIMESTAMP, Prompt, "
                                         r"GeneratedTokens; expected TIMESTAMP, ContextTokens, Gen"):
        read_trace(file, format="azure")
    renamed = read_trace(file, format="azure", options=ReadOptions(columns={"input_len": "Prompt"}))
    assert renamed.input_len.tolist() == [5]


def test_a_cut_off_last_row_is_refused_or_counted(tmp_path: Path) -> None:
    """A file that ends within a row says where, and that it may be cut off."""
    file = tmp_path / "t.csv"
    file.write_text(HEADER + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.03")
    with pytest.raises(UsageError, match=r"t\.csv:3: 1 fields where the header names 3 .*cut off"):
        read_trace(file)
    trace = read_trace(file, options=ReadOptions(bad_rows="skip"))
    assert (len(trace), trace.rejected) == (1, {"unreadable": 1})


@pytest.mark.skipif(not (DATA / "azure2023").is_dir(), reason="the public traces are not here")
@pytest.mark.parametrize(("name", "rows", "span_s", "inputs", "outputs"), [
    ("code", 8819, 3436, [2048, 1469, 5188, 7303, 7436, 7437], [28, 13, 55, 90, 251, 1899]),
    ("conv", 19366, 3502, [1155, 1020, 2734, 4083, 4142, 14050], [211, 129, 424, 451, 601, 1000])])
def test_published_figures(name: str, rows: int, span_s: int, inputs: list[int], outputs: list[int]) -> None:
    """Rows, span, mean and percentiles are the published ones; Vidur's copy of the trace is the same load."""
    trace = read_trace(DATA / f"azure2023/AzureLLMInferenceTrace_{name}.csv")
    assert len(trace) == rows
    assert trace.span_ns is not None
    assert round(trace.span_ns / 1e9) == span_s
    for lengths, expected in ((trace.input_len, inputs), (trace.output_len, outputs)):
        assert [round(lengths.mean()), *np.rint(np.percentile(lengths, [50, 90, 95, 99, 100]))] == expected
    copy = read_trace(DATA / f"vidur_processed/splitwise_{name}.csv")
    assert np.array_equal(copy.input_len, trace.input_len)
    assert np.array_equal(copy.output_len, trace.output_len)
    assert np.abs(copy.arrival_ns - trace.arrival_ns).max() <= 1000   # Vidur kept microseconds
