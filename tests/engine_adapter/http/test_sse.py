import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.http.sse import ServerEvent, parse_events
from tests.engine_adapter.http.stream_bytes import any_cut, cut


def _oracle(body: bytes) -> list[tuple[bytes, str | None, int, bool]]:
    """The standard's loop, byte by byte: data, type, how many bytes complete it, whether it is complete."""
    events, data, event, line = [], [], None, bytearray()
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0

    def end_line():
        nonlocal event
        name, _, value = bytes(line).partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode("utf-8", "replace") or None
        line.clear()

    for index in range(start, len(body)):
        byte = body[index : index + 1]
        if byte == b"\n" and index > start and body[index - 1 : index] == b"\r":
            continue
        if byte not in (b"\r", b"\n"):
            line += byte
        elif line:
            end_line()
        else:
            if data:
                events.append((b"\n".join(data), event, index + 1, True))
            data, event = [], None
    end_line()
    return [*events, (b"\n".join(data), event, len(body), False)] if data else events


def _read_with(position: int, reads: list[bytes]) -> int:
    total = 0
    for index, read in enumerate(reads):
        total += len(read)
        if total >= position:
            return index
    raise AssertionError(position)


_STREAMS = st.lists(
    st.sampled_from([
        b"data", b"event", b"id", b"retry", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"data: x\n\n",
        b"data:y\r\n", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b\x0c", b"\x00", b"{}",
        b"\xf0\x9f\x98\x80", b"\xff",
    ]),
    max_size=25,
).map(b"".join)


@given(st.data())
def test_every_segmentation_gives_the_events_of_the_standard(data: st.DataObject) -> None:
    """Events, and the read that completed each, are the standard's, however the stream is cut."""
    body = data.draw(_STREAMS)
    reads = data.draw(any_cut(body))
    assert parse_events(reads) == [
        ServerEvent(payload, event, _read_with(position, reads), complete)
        for payload, event, position, complete in _oracle(body)
    ]


def test_a_crlf_stream_may_be_cut_anywhere() -> None:
    """A CR at the end of one read and the LF at the start of the next are one line end."""
    body = b': hi\r\n\r\ndata: {"a":1}\r\n\r\nevent: x\r\ndata: b\r\ndata: c\r\n\r\ndata: [DONE]\r\n\r\n'
    whole = [(b'{"a":1}', None), (b"b\nc", "x"), (b"[DONE]", None)]
    for place in range(len(body) + 1):
        assert [(event.data, event.event) for event in parse_events(cut(body, [place]))] == whole
    assert [(event.data, event.event) for event in parse_events([bytes([b]) for b in body])] == whole


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_belongs_to_the_read_with_its_blank_line(end: bytes) -> None:
    """An event whose text came earlier is complete only with its blank line, at the first byte of it."""
    reads = [b"data: a" + end, end[:1], end[1:] + b"data: b" + end + end]
    assert parse_events(reads) == [ServerEvent(b"a", None, 1), ServerEvent(b"b", None, 2)]


def test_events_of_one_read_share_it_and_one_event_may_take_many() -> None:
    """Several events in one read have its index; one that takes several reads has the index of the last."""
    reads = [b"data: a\n\ndata: b\n\ndata: ", b"c", b"\n\n"]
    assert [(event.data, event.read) for event in parse_events(reads)] == [(b"a", 0), (b"b", 0), (b"c", 2)]


@pytest.mark.parametrize(("line", "data"), [
    (b"data:x", b"x"), (b"data: x", b"x"), (b"data:  x", b" x"), (b"data:\tx", b"\tx"), (b"data: x ", b"x "),
    (b"data", b""), (b"data:", b""), (b"data: a:b", b"a:b"), (b"data: a\ndata: b", b"a\nb"),
    (b"data: a\ndata", b"a\n"),
    (b"id: 1\nretry: 5\ndata: x", b"x"), (b":data: y\ndata: x", b"x"), (b"Data: y\ndata: x", b"x"),
    (b"data: \x00a", b"\x00a"),
])
def test_the_value_of_a_data_line(line: bytes, data: bytes) -> None:
    """One space after the colon is removed, no more; data lines are joined by LF; other fields are none."""
    assert parse_events([line + b"\n\n"]) == [ServerEvent(data, None, 0)]


def test_comments_and_fields_without_data_are_no_events() -> None:
    """Keep-alive comments, and blocks with only a type or an id, give nothing and leave no type behind."""
    body = b": ping\n\n\n\nevent: a\n\nid: 3\n\n:\n\ndata: x\n\n"
    assert parse_events([body]) == [ServerEvent(b"x", None, 0)]


def test_a_type_belongs_to_its_own_event() -> None:
    """`event:` may stand before or after the data and ends with the event; an empty one is none."""
    body = b"event: error\ndata: a\n\ndata: b\nevent: c\n\nevent:\ndata: d\n\n"
    types = [(b"a", "error"), (b"b", "c"), (b"d", None)]
    assert [(event.data, event.event) for event in parse_events([body])] == types


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\ufeff"])
def test_only_cr_and_lf_end_lines(mark: str) -> None:
    """Characters at which Python's splitlines cuts are payload."""
    data = f'{{"text":"a{mark}b"}}'.encode()
    assert parse_events([b"data: " + data + b"\n\n"]) == [ServerEvent(data, None, 0)]


def test_a_byte_order_mark_at_the_start_is_skipped() -> None:
    """Its three bytes may even come in three reads."""
    reads = [b"\xef", b"\xbb", b"\xbfdata: x\n", b"\ndata: y\n\n"]
    assert parse_events(reads) == [ServerEvent(b"x", None, 3), ServerEvent(b"y", None, 3)]


@pytest.mark.parametrize("rest", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r", b"data: [DONE]\r\n"])
def test_what_the_end_of_the_stream_cuts_is_kept_and_marked(rest: bytes) -> None:
    """A last event without its blank line belongs to the read with the last byte."""
    assert parse_events([b"data: a\n\n", rest[:5], rest[5:], b""]) == [
        ServerEvent(b"a", None, 0), ServerEvent(b"[DONE]", None, 2, complete=False)
    ]


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n\r\n", b"<html></html>", b'{"error": "x"}', b": bye"])
def test_what_holds_no_event_gives_none(body: bytes) -> None:
    """Bytes that are no event stream are not refused: whoever asked says what to make of them."""
    assert parse_events([body] if body else []) == []


def test_a_megabyte_in_single_bytes_is_one_event() -> None:
    """An event has no largest size, nor a largest number of reads: a quadratic parser never ends here."""
    data = b'{"text":"' + b"x" * 1_000_000 + b'"}'
    events = parse_events([bytes([byte]) for byte in b"data: " + data + b"\n\n"])
    assert [event.data for event in events] == [data]
