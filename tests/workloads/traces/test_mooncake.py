"""Mooncake's traces and their dialect in vLLM."""

import json
from pathlib import Path
from typing import Any

import pytest

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, open_trace, read_trace


def _file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _row(at: Any, length: int, ids: list[int]) -> dict[str, Any]:
    return {"timestamp": at, "input_length": length, "output_length": 3, "hash_ids": ids}


def _blocks(trace: Trace) -> list[list[int]]:
    assert trace.blocks is not None
    return [trace.blocks.of(i).tolist() for i in range(len(trace))]


def test_mooncake_counts_in_milliseconds_and_512_tokens(tmp_path: Path) -> None:
    """The last block of a prompt may be partial; times may have fractions."""
    path = _file(tmp_path, _row(3000, 600, [7, 8]), _row(3000.25, 1024, [7, 9]))
    assert open_trace(path).format == "mooncake"
    trace = read_trace(path)
    assert trace.arrival_ns.tolist() == [0, 250_000]
    assert trace.blocks is not None
    assert trace.blocks.size == 512
    assert _blocks(trace) == [[7, 8], [7, 9]]


def test_vllms_dialect_counts_in_seconds_and_16_tokens(tmp_path: Path) -> None:
    """A file with an id for every 16 tokens is not taken for one of Mooncake's, nor the other way round."""
    path = _file(tmp_path, _row(0.5, 20, [7, 8]), _row(0.75, 32, [7, 9]))
    assert open_trace(path).format == "timed-trace"
    trace = read_trace(path)
    assert trace.arrival_ns.tolist() == [0, 250_000_000]
    assert trace.blocks is not None
    assert trace.blocks.size == 16


def test_a_mooncake_file_read_as_vllms_dialect_keeps_its_blocks(tmp_path: Path) -> None:
    """vLLM itself would make its prompts 32 times too short unless it is told the size."""
    path = _file(tmp_path, _row(3000, 600, [7, 8]), _row(3500, 600, [7, 8]))
    trace = read_trace(path, format="timed-trace")
    assert trace.input_len.tolist() == [600, 600]
    assert trace.blocks is not None
    assert trace.blocks.size == 512
    assert trace.arrival_ns.tolist() == [0, 500_000_000]


def test_a_size_that_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    """One id and at most 16 tokens fit both; `--block-size` decides."""
    path = _file(tmp_path, _row(1, 16, [7]))
    with pytest.raises(UsageError, match="--block-size"):
        read_trace(path, format="timed-trace")
    trace = read_trace(path, format="timed-trace", options=ReadOptions(block_size=64, time_unit="us"))
    assert trace.blocks is not None
    assert trace.blocks.size == 64


def test_a_bad_first_row_does_not_hide_the_size(tmp_path: Path) -> None:
    """It is named or counted as any other."""
    path = _file(tmp_path, {"timestamp": 0}, _row(0.5, 20, [7, 8]))
    with pytest.raises(UsageError, match=r"trace\.jsonl:1: .*input_length"):
        read_trace(path, format="timed-trace")
    assert len(read_trace(path, format="timed-trace", options=ReadOptions(bad_rows="skip"))) == 1


def test_ids_of_64_bits_stay_apart(tmp_path: Path) -> None:
    """Signed or unsigned, and where floats would make one number of two."""
    ids = [2**64 - 1, 2**63, 2**63 - 1, 2**53, 2**53 + 1, -2]
    trace = read_trace(_file(tmp_path, _row(0, 512 * 6, ids)), format="mooncake")
    assert _blocks(trace) == [[-1, -2**63, 2**63 - 1, 2**53, 2**53 + 1, -2]]


def test_keys_of_other_names(tmp_path: Path) -> None:
    """`--column` says under which keys a file has the columns; the unit of the time stays the format's."""
    row = {"t": 1000, "in": 20, "out": 3, "ids": [4]}
    columns = {"timestamp": "t", "input_len": "in", "output_len": "out", "hash_ids": "ids"}
    trace = read_trace(_file(tmp_path, row), format="mooncake", options=ReadOptions(columns=columns))
    assert _blocks(trace) == [[4]]
    with pytest.raises(UsageError, match="has no such column"):
        read_trace(_file(tmp_path, row), format="mooncake", options=ReadOptions(columns={"timestamp_s": "t"}))


def test_more_ids_than_blocks_are_refused_and_fewer_taken(tmp_path: Path) -> None:
    """More mean another size of blocks; where there are fewer, the rest of the prompt is its own."""
    with pytest.raises(UsageError, match=r"trace\.jsonl:2: 3 hash ids for a prompt of 1024 tokens"):
        read_trace(_file(tmp_path, _row(0, 512, [1]), _row(1, 1024, [1, 2, 3])), format="mooncake")
    trace = read_trace(_file(tmp_path, _row(0, 5000, [1]), _row(1, 512, [])), format="mooncake")
    assert _blocks(trace) == [[1], []]


def test_a_bad_first_row_is_named_and_does_not_hide_the_block_size(tmp_path: Path) -> None:
    """What is wrong is the row, and it can be left out; the others say how large blocks are."""
    file = tmp_path / "t.jsonl"
    file.write_text('{"timestamp": 0, "input_length": -5, "output_length": 3, "hash_ids": [1]}\n'
                    '{"timestamp": 1, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]}\n')
    with pytest.raises(UsageError, match=r"t\.jsonl:1: "):
        read_trace(file, format="timed-trace")
    trace = read_trace(file, format="timed-trace", options=ReadOptions(bad_rows="skip"))
    assert trace.blocks is not None
    assert (len(trace), trace.blocks.size) == (1, 16)
    file.write_text(file.read_text().split("\n")[0] + "\n")
    with pytest.raises(UsageError, match=r"t\.jsonl:1: "):
        read_trace(file, format="timed-trace")
