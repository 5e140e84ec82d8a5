"""The elements of a JSON array one by one, from a file of any size."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from workloads.errors import UsageError
from workloads.traces.opening import BLOCK_BYTES, MAX_LINE_BYTES, ByteStream, open_bytes

_BOM = b"\xef\xbb\xbf"
_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
"""A whole string, or what opens or closes something. A lone quote begins a string that is not all there."""
_BETWEEN = re.compile(rb"[\s,]*+")
_QUOTE, _OPENING, _CLOSING = b'"'[0], frozenset(b"{["), frozenset(b"}]")


class Element(NamedTuple):
    """One object of the array, as text."""

    line: int
    """Line on which it begins, from 1."""
    data: bytes
    cut: bool
    """Whether the file ends within it or, where there is no text, within the array after it."""


def json_elements(path: Path) -> Iterator[Element]:
    """The objects of the array that the file is. They are told apart by their brackets; whether each is right
    JSON is for its reader to see. Memory is bounded by the longest.

    UsageError where something other than an object stands in the array or after it, as what follows could
    not be told apart.
    """
    with open_bytes(path) as stream:
        text = _Text(path, stream)
        if text.next_byte() != b"[":
            text.refuse("this is no JSON array")
        text.skip_byte()
        while (byte := text.next_byte()) == b"{":
            yield text.whole_object()
        if not byte:
            if not text.cut:
                yield Element(text.line, b"", True)
            return
        if byte != b"]":
            text.refuse("expected an object, a comma or the end of the array")
        text.skip_byte()
        if text.next_byte():
            text.refuse("something follows the end of the array")


class _Text:
    def __init__(self, path: Path, stream: ByteStream) -> None:
        self._path, self._stream = path, stream
        self._data, self._at = stream.read(BLOCK_BYTES).removeprefix(_BOM), 0
        self.line = 1
        self.cut = False

    def next_byte(self) -> bytes:
        """The next that is no white space and no comma; none at the end of the file."""
        while True:
            match = _BETWEEN.match(self._data, self._at)
            self._move_to(match.end() if match else self._at)
            if self._at < len(self._data) or not self._refilled():
                return self._data[self._at:self._at + 1]

    def skip_byte(self) -> None:
        self._at += 1

    def whole_object(self) -> Element:
        """The object that begins here; the rest of the file where it does not end."""
        depth = scanned = 0
        while True:
            for mark in _MARK.finditer(self._data, self._at + scanned):
                begin, end = mark.span()
                byte = self._data[begin]
                if byte == _QUOTE and end - begin == 1:
                    scanned = begin - self._at
                    break
                scanned = end - self._at
                depth += (byte in _OPENING) - (byte in _CLOSING)
                if not depth:
                    return self._taken(end)
            if not self._refilled():
                self.cut = True
                return self._taken(len(self._data))

    def refuse(self, why: str) -> None:
        """UsageError with file and line."""
        raise UsageError(f"{self._path}:{self.line}: {why}")

    def _taken(self, end: int) -> Element:
        element = Element(self.line, self._data[self._at:end], self.cut)
        self._move_to(end)
        return element

    def _move_to(self, at: int) -> None:
        self.line += self._data.count(b"\n", self._at, at)
        self._at = at

    def _refilled(self) -> bool:
        """Whether there was more to read; what is behind us is forgotten."""
        block = self._stream.read(BLOCK_BYTES)
        self._data, self._at = self._data[self._at:] + block, 0
        if len(self._data) > MAX_LINE_BYTES + BLOCK_BYTES:
            self.refuse(f"an object of more than {MAX_LINE_BYTES >> 20} MiB is no row of a trace")
        return bool(block)
