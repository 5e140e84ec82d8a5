"""Server-sent events by the WHATWG rules, on the bytes of an answer that is over.

https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream, with one
difference: what stands after the last blank line is an event too (`complete=False`), because some
servers leave the last blank line out.
"""

import re
from collections.abc import Sequence
from itertools import accumulate

import msgspec


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    """One event that has data, possibly empty."""

    data: bytes
    """Its data lines, joined by LF; not decoded."""
    event: str | None
    """Its type, None where the server named none."""
    read: int
    """Index of the read that brought the byte which completed it."""
    complete: bool = True
    """False for the last event of a stream that ended without its blank line."""


def parse_events(reads: Sequence[bytes]) -> list[ServerEvent]:
    """The events of a whole stream, in order; the same for every segmentation but for `read`.

    An event is complete with the first byte that ends its blank line: the CR of a CRLF. One that
    the end of the stream cut belongs to the read with the last byte. Any bytes are accepted; what
    is no event stream gives no events, or events that hold no JSON.
    """
    blocks, positions = _blocks(b"".join(reads))
    ends = list(accumulate(map(len, reads)))
    events = []
    read = 0
    for block, position in zip(blocks[:-1], positions, strict=True):
        while ends[read] < position:
            read += 1
        if block.startswith(b"data: ") and b"\n" not in block:
            events.append(ServerEvent(block[6:], None, read))
        elif fields := _data_and_type(block):
            events.append(ServerEvent(*fields, read))
    if fields := _data_and_type(blocks[-1]):
        while ends[read] < ends[-1]:
            read += 1
        events.append(ServerEvent(*fields, read, False))
    return events


# A CR that an LF follows is one line end; possessive, so that it is never taken for two.
_BLANK_LINE = re.compile(rb"(?:\r\n?+|\n)(?:\r(\n?+)|\n)")


def _blocks(body: bytes) -> tuple[list[bytes], list[int]]:
    """What stands between blank lines, its line ends made LF, and how many bytes complete each.

    The last block was not completed and has no position. A block may start with one empty line.
    """
    start = len(_BOM) if body.startswith(_BOM) else 0
    if b"\r" not in body:
        blocks = body[start:].split(b"\n\n")
        return blocks, list(accumulate((len(block) + 2 for block in blocks[:-1]), initial=start))[1:]
    blocks, positions = [], []
    for blank in _BLANK_LINE.finditer(body, start):
        blocks.append(_with_lf(body[start : blank.start()]))
        positions.append(blank.end() - len(blank[1] or b""))
        start = blank.end()
    return [*blocks, _with_lf(body[start:])], positions


def _with_lf(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_and_type(block: bytes) -> tuple[bytes, str | None] | None:
    """The data and the type of one event, or None where it has no data line."""
    data = []
    event = None
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            event = value.removeprefix(b" ").decode("utf-8", "replace") or None
    return (b"\n".join(data), event) if data else None


_BOM = b"\xef\xbb\xbf"
