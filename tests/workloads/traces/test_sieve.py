"""Which rows are taken: the rules that hold for every format, shown on CSV files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import UsageError
from workloads.prompt_parts import PromptBlocks
from workloads.traces import ReadOptions, Trace, read_trace
from workloads.traces.formats import BadRows
from workloads.traces.raw_rows import RawRows
from workloads.traces.sieve import Sieve

Read = Callable[..., Trace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads rows of `time in s, prompt, answer, …` under the header."""
    def reading(*rows: str, header: str = "timestamp_s,input_len,output_len", **options: Any) -> Trace:
        file = tmp_path / "t.csv"
        file.write_text("\n".join([header, *rows, ""]))
        return read_trace(file, options=ReadOptions(**options))
    return reading


@pytest.mark.parametrize(("row", "why", "kind"), [
    ("2,0,5", "a prompt of 0 tokens", "length below 1"),
    ("2,-4,5", "a prompt of -4 tokens", "length below 1"),
    ("2,5,0", "an answer of 0 tokens", "length below 1"),
    ("2,2147483648,5", "more than 2147483647", "length above 2147483647"),
    ("0.5,5,5", "before that of a row above", "time runs backwards"),
    ("2,x,5", "input_len is 'x', not a whole number", "unreadable"),
    ("2,5", "2 fields where the header names 3", "unreadable"),
    ("soon,5,5", "timestamp_s is 'soon', not a time in s", "unreadable"),
])
def test_bad_rows_are_refused_or_counted(read: Read, row: str, why: str, kind: str) -> None:
    """A row that cannot be used is an error of one line with file and line, or is left out and counted."""
    with pytest.raises(UsageError, match=rf"t\.csv:4: .*{why}.*--skip-bad-rows") as said:
        read("1,7,7", "", row, "3,8,8")
    assert "\n" not in str(said.value)
    trace = read("1,7,7", "", row, "3,8,8", bad_rows="skip")
    assert trace.input_len.tolist() == [7, 8]
    assert trace.arrival_ns.tolist() == [0, 2_000_000_000]
    assert trace.rejected == {kind: 1}


def test_the_first_bad_row_of_the_file_is_named(read: Read) -> None:
    """Of several faults of different kinds the one with the lowest line is named."""
    with pytest.raises(UsageError, match=r"t\.csv:3: a prompt of 0"):
        read("1,1,1", "2,0,1", "3,x,1", "1,1,1")


def test_time_zero_is_the_first_row_taken(read: Read) -> None:
    """Times count from the first row that is handed over."""
    trace = read("5,100,1", "6.25,1,1", "6.25,1,1", max_model_len=50)
    assert trace.arrival_ns.tolist() == [0, 0]
    assert trace.rejected == {"too long": 1}


def test_long_rows_are_left_out_or_cut(read: Read) -> None:
    """Above max_model_len a row is counted as too long; clipped, its prompt goes first, down to one token."""
    rows = ("1,10,5", "2,100,5", "3,5,200", "4,45,5")
    assert read(*rows, max_model_len=50).input_len.tolist() == [10, 45]
    trace = read(*rows, max_model_len=50, too_long="clip")
    assert trace.input_len.tolist() == [10, 45, 1, 45]
    assert trace.output_len.tolist() == [5, 5, 49, 5]
    assert (trace.clipped, trace.rejected) == (2, {})


def test_a_window_judges_only_its_rows(read: Read) -> None:
    """A window counts from the first usable row, its end is not in it, and rows outside are not judged."""
    rows = ("10,1,1", "11,0,1", "12,2,1", "13.5,3,1", "14,9,9", "15,0,1")
    trace = read(*rows, window_s=(2, 4))
    assert trace.input_len.tolist() == [2, 3]
    assert trace.arrival_ns.tolist() == [0, 1_500_000_000]
    assert trace.rejected == {}
    with pytest.raises(UsageError, match="between 7 s and 9 s"):
        read(*rows[:1], window_s=(7, 9))
    with pytest.raises(UsageError, match="no times"):
        read("1,1", header="input_len,output_len", window_s=(0, 9))


def test_rows_are_counted_from_the_window_on(read: Read) -> None:
    """So many rows are taken, and what follows the last one is not judged."""
    trace = read("1,1,1", "2,2,1", "3,3,1", "4,0,1", rows=2, window_s=(1, 99))
    assert trace.input_len.tolist() == [2, 3]


def test_nothing_to_take_is_an_error(read: Read) -> None:
    """A file without rows, or of rows that are all left out, says so with the reasons."""
    with pytest.raises(UsageError, match="has no rows"):
        read()
    with pytest.raises(UsageError, match=r"no row of .*t\.csv can be used: 1 length below 1, 1 too long"):
        read("1,0,1", "2,9,9", bad_rows="skip", max_model_len=10)


def test_new_lengths_become_whole_prompts(read: Read) -> None:
    """With new lengths the prompt of a turn is that of the turn before, its answer, and what is new."""
    rows = ("1,10,5,a", "2,20,5,b", "3,10,5,a", "4,1,1,", "5,2,1,a")
    header = "timestamp_s,input_len,output_len,session"
    full = read(*rows, header=header)
    assert full.input_len.tolist() == [10, 20, 10, 1, 2]
    new = read(*rows, header=header, lengths="new")
    assert new.input_len.tolist() == [10, 20, 25, 1, 32]
    late = read(*rows, header=header, lengths="new", window_s=(2, 9))
    assert late.input_len.tolist() == [25, 1, 32]
    for trace in (full, new):
        assert trace.session.tolist() == [0, 1, 0, -1, 0]
        assert trace.turn.tolist() == [0, 0, 1, 0, 2]


def test_turns_must_rise(read: Read) -> None:
    """A turn that is not above those of its session before is a bad row."""
    rows = ("1,1,1,a,2", "2,2,1,b,0", "3,3,1,a,1", "4,4,1,a,3")
    header = "timestamp_s,input_len,output_len,session,turn"
    with pytest.raises(UsageError, match=r"t\.csv:4: its turn is not above"):
        read(*rows, header=header)
    trace = read(*rows, header=header, bad_rows="skip")
    assert (trace.turn.tolist(), trace.rejected) == ([2, 0, 3], {"turn does not rise": 1})


def test_prefix_groups_are_numbered_with_the_length_of_their_first_row(read: Read) -> None:
    """Groups are numbered from 0, and a prompt cannot be shorter than its shared prefix."""
    header = "timestamp_s,input_len,output_len,prefix_group,prefix_len"
    trace = read("1,90,1,system-b,50", "2,90,1,,0", "3,90,1,system-a,20", "4,90,1,system-b,50", header=header)
    assert trace.prefix_group.tolist() == [0, -1, 1, 0]
    assert trace.prefix_lens.tolist() == [50, 20]
    with pytest.raises(UsageError, match=r"t\.csv:2: prefix_len is not from 1 to the length"):
        read("1,40,1,s,50", header=header)


def raw(**columns: Any) -> RawRows:
    return RawRows(line=np.arange(2, 2 + len(columns["input_len"])),
                   **{name: np.asarray(value) if isinstance(value, list) else value
                      for name, value in columns.items()})


def test_failed_rows_are_always_left_out() -> None:
    """What a format marks as failed is counted, never an error, and does not move the clock."""
    bad = BadRows(Path("t"), skip=False)
    sieve = Sieve(ReadOptions(), bad, "t")
    trace = sieve.take(raw(input_len=[0, 5, 6], output_len=[0, 1, 1], time_ns=[99, 7, 9],
                           failed=np.array([True, False, False])))
    assert trace is not None
    assert (trace.arrival_ns.tolist(), bad.rejected) == ([0, 2], {"failed": 1})


def test_cut_prompts_lose_their_last_blocks() -> None:
    """A row that is cut keeps the blocks of the tokens that remain."""
    sieve = Sieve(ReadOptions(max_model_len=25, too_long="clip"), BadRows(Path("t"), skip=False), "t")
    trace = sieve.take(raw(input_len=[40, 20], output_len=[5, 5],
                           blocks=PromptBlocks(10, np.arange(6), np.array([0, 4, 6]))))
    assert trace is not None
    assert trace.blocks is not None
    assert [trace.blocks.of(row).tolist() for row in (0, 1)] == [[0, 1], [4, 5]]


def test_times_that_are_centuries_apart_are_refused() -> None:
    """A span that 64 bits of nanoseconds cannot hold is an error with its line."""
    sieve = Sieve(ReadOptions(), BadRows(Path("t"), skip=False), "t")
    with pytest.raises(UsageError, match=r"t:3: its time is centuries after"):
        sieve.take(raw(input_len=[1, 1], output_len=[1, 1], time_ns=[-2**62 * 2 + 1, 2**62]))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 12), st.integers(0, 3)), max_size=8),
                max_size=4),
       st.tuples(st.integers(0, 5), st.integers(6, 9)) | st.none(), st.integers(1, 6) | st.none())
def test_pieces_do_not_matter(pieces: list[list[tuple[int, int, int]]], window: tuple[int, int] | None,
                              rows: int | None) -> None:
    """A file that comes in pieces gives what it gives at once: rows, times and counts."""
    def taken(parts: list[list[tuple[int, int, int]]]) -> tuple[list[list[int]], dict[str, int]]:
        bad = BadRows(Path("t"), skip=True)
        options = ReadOptions(window_s=window, rows=rows, max_model_len=10, bad_rows="skip")
        sieve, found = Sieve(options, bad, "t"), []
        for part in parts:
            if sieve.done:
                break
            trace = sieve.take(raw(time_ns=[t * 10**9 for t, _, _ in part], input_len=[i for _, i, _ in part],
                                   output_len=[o for _, _, o in part]))
            if trace is not None:
                found += np.stack([trace.arrival_ns, trace.input_len, trace.output_len], axis=1).tolist()
        return found, bad.rejected

    whole = [row for part in pieces for row in part]
    (apart, counts), (at_once, _) = taken([part for part in pieces if part]), taken([whole] if whole else [])
    assert apart == at_once
    assert all(count > 0 for count in counts.values())
    assert rows is None or len(apart) <= rows
