"""Trace files as bytes and as lines, whatever they are packed in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from workloads.errors import UsageError

BLOCK_BYTES = 1 << 22
"""About so much text is in memory at once."""
MAX_LINE_BYTES = 1 << 26
"""A longer line is no row of a trace, and would have to be held in memory as a whole."""
CUT_OFF = " (the last line has no line end: the file may be cut off)"
"""Added to what is wrong with a last line without line end."""

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class LineBlock(NamedTuple):
    """Whole lines that stand after one another in the file."""

    first_line: int
    """Number of the first, from 1."""
    data: bytes
    """With the line ends of the file, the last one included unless `cut`."""
    cut: bool
    """Whether the file ends here, without a line end."""


class Line(NamedTuple):
    """One line of a file."""

    number: int
    """From 1; empty lines count."""
    data: bytes
    """Without its line end."""
    cut: bool
    """Whether the file ends here, without a line end."""


class ByteStream:
    """What a file holds, unpacked where gzip or zstd packed it (told by its first bytes, not its name).

    A context manager. UsageError with the file's name where it cannot be opened, and from `read` where
    what is packed is damaged or cut off.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path = path
        try:
            if path.is_dir():
                raise UsageError(f"{path} is a directory, not a trace file")
            if path.is_fifo():
                raise UsageError(f"{path} is a pipe, and a trace is read more than once: save it to a file")
            with path.open("rb") as file:
                head = file.read(4)
            self._packing = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
            self._stream: Any = pa.input_stream(str(path), compression=self._packing)
        except OSError as error:
            raise UsageError(f"cannot open the trace {path}: {error.strerror or error}") from error

    def __enter__(self) -> "ByteStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        try:
            return bytes(self._stream.read(size))
        except OSError as error:
            what = f"its {self._packing} data is damaged or cut off" if self._packing else str(error)
            raise UsageError(f"cannot read {self._path} to its end: {what}") from error


def open_bytes(path: Path) -> ByteStream:
    """The bytes of `path`, to be used in a `with` statement."""
    return ByteStream(path)


def file_head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, unpacked, without a byte order mark. UsageError where they are no text."""
    with open_bytes(path) as stream:
        head = stream.read(size)
    if not head.removeprefix(_BOM):
        raise UsageError(f"the trace {path} is empty")
    if head.startswith(_UTF16):
        raise UsageError(f"{path} is UTF-16 text; save it as UTF-8")
    if b"\0" in head:
        raise UsageError(f"{path} is no text file: a trace is CSV, JSON or JSON lines, plain, gzip or zstd")
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise UsageError(f"{path} ends its lines with CR alone; save it with LF or CRLF")
    return head.removeprefix(_BOM)


def line_blocks(path: Path) -> Iterator[LineBlock]:
    """All of the file in blocks of whole lines of about BLOCK_BYTES, without a byte order mark."""
    with open_bytes(path) as stream:
        data, first_line = stream.read(BLOCK_BYTES).removeprefix(_BOM), 1
        if data.startswith(_UTF16):
            raise UsageError(f"{path} is UTF-16 text; save it as UTF-8")
        rest: list[bytes] = []
        rest_bytes = 0
        while data:
            end = data.rfind(b"\n") + 1
            if end:
                block = b"".join([*rest, data[:end]])
                yield LineBlock(first_line, block, False)
                first_line += block.count(b"\n")
                rest, rest_bytes = [], 0
            rest.append(data[end:])
            rest_bytes += len(data) - end
            if rest_bytes > MAX_LINE_BYTES:
                raise UsageError(f"{path}:{first_line}: a line of more than {MAX_LINE_BYTES >> 20} MiB "
                                 "is no row of a trace")
            data = stream.read(BLOCK_BYTES)
        if rest_bytes:
            yield LineBlock(first_line, b"".join(rest), True)


def text_lines(path: Path) -> Iterator[Line]:
    """All lines of the file, the empty ones too, without a byte order mark and without line ends."""
    for block in line_blocks(path):
        lines = block.data.split(b"\n")
        if not block.cut:
            lines.pop()
        for number, line in enumerate(lines, start=block.first_line):
            yield Line(number, line.removesuffix(b"\r"), block.cut)
