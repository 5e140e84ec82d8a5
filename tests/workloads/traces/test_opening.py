"""Trace files as bytes and lines, whatever they are packed in."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import opening
from workloads.traces.opening import file_head, line_blocks, open_bytes, text_lines


@pytest.mark.parametrize("packed", [
    bytes, gzip.compress, lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:]),
    lambda data: pa.compress(data, "zstd", asbytes=True)], ids=["plain", "gzip", "two gzips", "zstd"])
def test_packing_is_told_by_the_first_bytes(tmp_path: Path, packed) -> None:
    """A packed file reads like the plain one, whatever its name."""
    file = tmp_path / "trace.csv"
    file.write_bytes(packed(b"a,b\n1,2\n" * 9))
    with open_bytes(file) as stream:
        assert b"".join(iter(lambda: stream.read(7), b"")) == b"a,b\n1,2\n" * 9


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:11] + b"\xff" * 9 + data[20:]],
                         ids=["cut off", "changed"])
@pytest.mark.parametrize("packed", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)],
                         ids=["gzip", "zstd"])
def test_damaged_packing_is_said_in_one_line(tmp_path: Path, packed, damage) -> None:
    """A packed file that is cut off or changed names itself and the damage."""
    file = tmp_path / "trace.csv"
    file.write_bytes(damage(packed(bytes(range(32, 127)) * 50 + b"\n")))
    with pytest.raises(UsageError, match=r"cannot read .*\.csv to its end: its (gzip|zstd) data") as said:
        list(text_lines(file))
    assert "\n" not in str(said.value)


def test_lines_are_numbered_as_in_an_editor(tmp_path: Path) -> None:
    """Empty lines count, CRLF and a byte order mark are no part of a line, a last line may lack its end."""
    file = tmp_path / "trace.csv"
    file.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo\nthree")
    assert [(line.number, line.data, line.cut) for line in text_lines(file)] == [
        (1, b"one", False), (2, b"", False), (3, b"two", False), (4, b"three", True)]


@settings(deadline=None, max_examples=60)
@given(lines=st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line and b"\r" not in line)),
       block=st.integers(1, 40), end=st.booleans())
def test_blocks_are_the_file(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block: int,
                             end: bool) -> None:
    """Whatever the size of a block, blocks hold whole lines, each once, under the right number."""
    data = b"\n".join(lines) + (b"\n" if end and lines else b"")
    if data.startswith((b"\x1f\x8b", b"\x28\xb5", b"\xef\xbb\xbf")):
        data = b"x" + data
    file = tmp_path_factory.mktemp("blocks") / "trace.csv"
    file.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "BLOCK_BYTES", block)
        blocks = list(line_blocks(file))
    assert b"".join(block.data for block in blocks) == data
    line = 1
    for found in blocks:
        assert found.first_line == line
        line += found.data.count(b"\n")
    assert all(found.data.endswith(b"\n") and not found.cut for found in blocks[:-1])
    assert not blocks or blocks[-1].cut == (not data.endswith(b"\n"))


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than any row is refused under its number before it is read whole."""
    monkeypatch.setattr(opening, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 100)
    file = tmp_path / "trace.csv"
    file.write_bytes(b"a,b\n" + b"1" * 5000)
    with pytest.raises(UsageError, match=r"trace\.csv:2: a line of more than"):
        list(line_blocks(file))


@pytest.mark.parametrize(("data", "said"), [
    (b"", "is empty"), (b"\xef\xbb\xbf", "is empty"), (b"\0\1\2", "is no text file"),
    ("a,b\n".encode("utf-16"), "UTF-16"), (b"a,b\r1,2\r", "CR alone")])
def test_what_is_no_text_is_said(tmp_path: Path, data: bytes, said: str) -> None:
    """An empty file, binary data, UTF-16 and line ends of CR alone are named."""
    file = tmp_path / "trace.csv"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=said):
        file_head(file)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    """A directory and a missing file are named."""
    with pytest.raises(UsageError, match="is a directory"):
        open_bytes(tmp_path)
    with pytest.raises(UsageError, match=r"cannot open the trace .*none\.csv: No such file"):
        open_bytes(tmp_path / "none.csv")
