"""Qwen-Bailian traces."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, open_trace, read_trace


def _row(chat: int = 0, parent: int = -1, **other: Any) -> dict[str, Any]:
    return {"chat_id": chat, "parent_chat_id": parent, "timestamp": 0.0, "input_length": 20,
            "output_length": 3, "type": "text", "turn": 1, "hash_ids": [1, 2], **other}


def _file(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _read(path: Path, **options: Any) -> Trace:
    return read_trace(path, format="bailian", options=ReadOptions(**options))


def test_what_a_row_means(tmp_path: Path) -> None:
    """Seconds with fractions, 16-token blocks, chats as sessions and the type as tenant."""
    trace = _read(_file(tmp_path, [
        _row(4, timestamp=61.114), _row(5, type="file", timestamp=61.5),
        _row(6, parent=4, turn=2, timestamp=62.0000001, input_length=33, hash_ids=[1, 2, 3])]))
    assert trace.arrival_ns.tolist() == [0, 386_000_000, 886_000_100]
    assert trace.input_len.tolist() == [20, 20, 33]
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert [trace.tenant_names[t] for t in trace.tenant] == ["text", "file", "text"]
    assert trace.blocks is not None
    assert trace.blocks.size == 16
    assert trace.blocks.of(2).tolist() == [1, 2, 3]


def test_the_format_is_told_from_its_chats(tmp_path: Path) -> None:
    """A file of Bailian's is not taken for one of Mooncake's, whose keys it has too."""
    path = _file(tmp_path, [_row(hash_ids=[5], input_length=16)])
    assert open_trace(path).format == "bailian"


def test_rows_without_parent_type_and_blocks_are_read(tmp_path: Path) -> None:
    """The keys that only some files have may be left out: such a row is a chat of its own."""
    row = {key: value for key, value in _row(3).items() if key not in ("parent_chat_id", "type", "hash_ids")}
    trace = _read(_file(tmp_path, [row]))
    assert (trace.session.tolist(), trace.tenant_names) == ([0], ("",))
    assert trace.blocks is not None
    assert len(trace.blocks.of(0)) == 0


def test_keys_of_other_names_are_read(tmp_path: Path) -> None:
    """`--column` says under which keys a file has the columns."""
    row = {"id": 3, "ts": 5, "in": 40, "chat_id": 1, "out": 2}
    trace = _read(_file(tmp_path, [row]), columns={"chat_id": "id", "timestamp": "ts", "input_len": "in",
                                                   "output_len": "out"})
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([40], [2])
    with pytest.raises(UsageError, match=r"bailian has no such column; it has timestamp"):
        _read(_file(tmp_path, [row]), columns={"colour": "id"})


@pytest.mark.parametrize(("wrong", "said"), [
    ({"chat_id": -2}, "chat_id must be"), ({"parent_chat_id": -2}, "chat_id must be"),
    ({"chat_id": 2**63}, "chat_id must be"), ({"chat_id": "a"}, "Expected `int`"),
    ({"chat_id": None}, "Expected `int`"), ({"timestamp": "now"}, "not a number"),
    ({"timestamp": None}, "not a number"), ({"timestamp": 1e300}, "not a time"),
    ({"input_length": 20.5}, "Expected `int`"), ({"input_length": True}, "Expected `int`"),
    ({"input_length": -4, "hash_ids": []}, "prompt of -4 tokens"),
    ({"output_length": 0}, "answer of 0 tokens"),
    ({"input_length": 2**70, "hash_ids": []}, "beyond"), ({"hash_ids": [1, 2, 3]}, "see --block-size"),
    ({"hash_ids": [2**64]}, "more than 64 bits"), ({"hash_ids": [1.5]}, "Expected `int`"),
])
def test_a_bad_row_is_named_or_counted(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    """An error of one line with file and line, or a counted skip where it is asked for."""
    path = _file(tmp_path, [_row(), _row(1, **wrong), _row(2, timestamp=1)])
    with pytest.raises(UsageError) as error:
        _read(path)
    message = str(error.value)
    assert message.startswith(f"{path}:2: ")
    assert said in message
    assert "\n" not in message
    trace = _read(path, bad_rows="skip")
    assert (len(trace), sum(trace.rejected.values())) == (2, 1)


def test_more_types_than_tenants_can_be_are_refused(tmp_path: Path) -> None:
    """A key with thousands of values does not name classes of users."""
    rows = [_row(i, type=f"t{i}") for i in range(1100)]
    with pytest.raises(UsageError, match=r"trace\.jsonl:1025: .* does not name tenants"):
        _read(_file(tmp_path, rows))


_ROWS = st.lists(st.tuples(st.integers(0, 10**15), st.integers(1, 70), st.integers(1, 2**31 - 1),
                           st.lists(st.integers(-2**63, 2**64 - 1), max_size=5)), min_size=1, max_size=12)


@given(_ROWS)
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory,
                                    rows: list[tuple[int, int, int, list[int]]]) -> None:
    """Times to the nanosecond, lengths, and ids of 64 bits, signed or not, without two becoming one."""
    rows = sorted(rows)
    path = tmp_path_factory.mktemp("bailian") / "trace.jsonl"
    path.write_text("".join(
        f'{{"chat_id": {i}, "timestamp": {ns // 10**9}.{ns % 10**9:09d}, "input_length": {length}, '
        f'"output_length": {answer}, "hash_ids": {ids[:-(-length // 16)]}}}\n'
        for i, (ns, length, answer, ids) in enumerate(rows)))
    trace = _read(path)
    assert trace.arrival_ns.tolist() == [ns - rows[0][0] for ns, *_ in rows]
    assert trace.input_len.tolist() == [length for _, length, _, _ in rows]
    assert trace.output_len.tolist() == [answer for _, _, answer, _ in rows]
    assert trace.blocks is not None
    kept = [np.array([i % 2**64 for i in ids[:-(-length // 16)]], dtype=np.uint64).astype(np.int64).tolist()
            for _, length, _, ids in rows]
    assert [trace.blocks.of(i).tolist() for i in range(len(rows))] == kept
