"""The same two tokens in every form in which HTTP and event streams may carry them."""

import json
import zlib
from dataclasses import replace

from engine_adapter.test_servers.fixture import A_B, Fixture, content, ok, text
from engine_adapter.test_servers.script import (
    Close,
    Reset,
    Script,
    Send,
    Wait,
    one_byte_each,
    spaced,
    stream_head,
    streamed,
)
from engine_adapter.test_servers.wire import LAST_CHUNK, STREAM_HEADERS, chunk, head, response, sse

_A, _B = (sse(message) for message in A_B)
_D = sse("[DONE]")
_DONE = chunk(_D) + LAST_CHUNK
_BODY = _A + _B + _D
_WITH_LENGTH = STREAM_HEADERS | {"content-length": str(len(_BODY))}
_CRLF = [sse(event, end="\r\n") for event in (*A_B, "[DONE]")]
_CR = [sse(event, end="\r") for event in (*A_B, "[DONE]")]
_BIG = text("a", logprobs={"blob": "x" * 1_000_000})
_ODD = "\u2028\u2029\x85\x0b\x0c\x1c\x00"
"""Separators of lines to str.splitlines, and to nobody who reads bytes."""
_EMOJI = sse(text("a😀b", "length"))
_CUT = _EMOJI.index("😀".encode())
_SAYS_DONE = sse(content("[DONE]"))
_CUT_DONE = _SAYS_DONE.index(b"[DONE]") + len(b"[DONE]")
_WHOLE = stream_head() + chunk(_A) + chunk(_B) + _DONE


def _chunks(*parts: bytes) -> Script:
    """The head, and each of `parts` as one chunk and one write; the body's end with the last."""
    return spaced(stream_head(), *(chunk(part) for part in parts[:-1]), chunk(parts[-1]) + LAST_CHUNK)


def _gzipped() -> Script:
    packer = zlib.compressobj(wbits=31)
    parts = [packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in (_A, _B)]
    end = chunk(packer.compress(_D) + packer.flush()) + LAST_CHUNK
    return spaced(stream_head(content_encoding="gzip"), *map(chunk, parts), end)


def _lines(event: object) -> bytes:
    """An event whose JSON stands on several data lines."""
    lines = json.dumps(event, indent=1).split("\n")
    return b"".join(b"data: %s\n" % line.encode() for line in lines) + b"\n"


EVENT_STREAMS = (
    Fixture("one byte at a time", (one_byte_each(_WHOLE),), ok("ab", *(
        _WHOLE.index(event) + len(event) - 1 for event in (_A, _B)))),
    Fixture("everything in one write", ((Send(_WHOLE),),), ok("ab", 0, 0)),
    Fixture("CRLF", (_chunks(*_CRLF),), ok("ab", 1, 2)),
    # The CR ends the blank line: the event is complete, whatever follows.
    Fixture("CRLF, cut between CR and LF", (
        _chunks(_CRLF[0][:-1], b"\n" + _CRLF[1][:-1], b"\n" + _CRLF[2]),), ok("ab", 1, 2)),
    Fixture("CRLF, cut before the blank line", (
        _chunks(_CRLF[0][:-2], b"\r\n" + _CRLF[1][:-2], b"\r\n" + _CRLF[2]),), ok("ab", 2, 3)),
    Fixture("CR", (_chunks(*_CR),), ok("ab", 1, 2)),
    Fixture("no blank after the colon", (_chunks(*(sse(message, space="") for message in A_B), _D),),
            ok("ab", 1, 2)),
    Fixture("two blanks after the colon", (_chunks(*(sse(message, space="  ") for message in A_B), _D),),
            ok("ab", 1, 2)),
    Fixture("comments", (_chunks(b": hello\n\n", b": ping\n" + _A, b":\n\n:\n\n", _B, _D),), ok("ab", 2, 4)),
    Fixture("byte order mark", (_chunks(b"\xef\xbb\xbf" + _A, _B, _D),), ok("ab", 1, 2)),
    Fixture("id, retry and unknown fields", (
        _chunks(b"id: 1\nretry: 10\n" + _A, b"foo: bar\nevent: message\n" + _B, _D),), ok("ab", 1, 2)),
    Fixture("JSON over several data lines", (_chunks(_lines(A_B[0]), _lines(A_B[1]), _D),), ok("ab", 1, 2)),
    Fixture("no blank line at the end", (_chunks(_A, _B.removesuffix(b"\n")),), ok("ab", 1, 2)),
    Fixture("separators of lines in the text", (streamed([text(_ODD), text("b", "length")]),),
            ok(f"{_ODD}b", 1, 2)),
    Fixture("a character cut in two places", (
        _chunks(_EMOJI[: _CUT + 1], _EMOJI[_CUT + 1 : _CUT + 3], _EMOJI[_CUT + 3 :], _D),), ok("a😀b", 3)),
    Fixture("half a character in the JSON", (
        _chunks(sse(r'{"choices":[{"index":0,"text":"\ud83d"}]}'), _B, _D),), ok("\ufffdb", 1, 2)),
    Fixture("bytes that are no text", (
        _chunks(b'data: {"choices":[{"index":0,"text":"\xff"}]}\n\n', _B, _D),), ok("\ufffdb", 1, 2)),
    Fixture("an event of a megabyte", (streamed([_BIG, text("b", "length")]),), ok("ab", 1, 2)),
    Fixture("an event cut in the middle", (_chunks(_A[:20], _A[20:], _B + _D),), ok("ab", 2, 3)),
    Fixture("the word [DONE] in the text", (
        streamed(['{"choices":[{"index":0,"text":"[DONE]"}]}', text("b", "length")]),), ok("[DONE]b", 1, 2)),
    Fixture("the word [DONE] in the text ends a write", (
        _chunks(_SAYS_DONE[:_CUT_DONE], _SAYS_DONE[_CUT_DONE:], sse(content("b", "length")), _D),),
        ok("[DONE]b", 2, 3), chat=True),
)

HTTP_FRAMES = (
    Fixture("chunks that are not events", (_chunks(_A[:10], _A[10:] + _B[:10], _B[10:], _D),),
            ok("ab", 2, 3)),
    Fixture("chunk extensions", (
        spaced(stream_head(), chunk(_A, extension=";a=b"), chunk(_B, extension=";c"), _DONE),),
        ok("ab", 1, 2)),
    Fixture("trailers after the body", (
        spaced(stream_head(trailer="x-t"), chunk(_A), chunk(_B), chunk(_D) + b"0\r\nx-t: 1\r\n\r\n"),),
        ok("ab", 1, 2)),
    Fixture("content-length", (spaced(head(200, _WITH_LENGTH), _A, _B, _D),), ok("ab", 1, 2)),
    Fixture("the end of the connection ends the body", (
        (*spaced(head(200, STREAM_HEADERS), _A, _B, _D), Close()),), ok("ab", 1, 2)),
    Fixture("HTTP/1.0", (
        (*spaced(head(200, STREAM_HEADERS, version="1.0"), _A, _B, _D), Close()),), ok("ab", 1, 2)),
    Fixture("connection: close", (
        (*spaced(stream_head(connection="close"), chunk(_A), chunk(_B), _DONE), Close()),), ok("ab", 1, 2)),
    Fixture("gzip that nobody asked for", (_gzipped(),), replace(ok("ab", 1, 2), text=None)),
    Fixture("100 Continue first", ((Send(head(100)), Wait(0.004), *streamed(A_B)),), ok("ab", 2, 3)),
    Fixture("head cut in two", (
        (*spaced(stream_head()[:25], stream_head()[25:]), *streamed(A_B)[1:]),), ok("ab", 2, 3)),
    Fixture("slow head", ((Wait(0.08), *streamed(A_B)),), ok("ab", 1, 2)),
    Fixture("head and first token in one write", (
        spaced(stream_head() + chunk(_A), chunk(_B), _DONE),), ok("ab", 0, 1)),
    Fixture("no end of the body after [DONE]", (
        (*spaced(stream_head(), chunk(_A), chunk(_B), chunk(_D)), Wait(5.0)),), ok("ab", 1, 2)),
    Fixture("closed after [DONE] without the body's end", (
        (*spaced(stream_head(), chunk(_A), chunk(_B), chunk(_D)), Close()),), ok("ab", 1, 2)),
    Fixture("no content type", (
        spaced(head(200, {"transfer-encoding": "chunked"}), chunk(_A), chunk(_B), _DONE),), ok("ab", 1, 2)),
    Fixture("connection closed between two requests", (streamed(A_B),), ok("ab", 1, 2),
            before=(*streamed(A_B), Close())),
    Fixture("connection closed by the next request", ((Close(),), streamed(A_B)), ok("ab", 1, 2),
            before=streamed(A_B)),
    Fixture("connection reset by the next request", ((Reset(),), streamed(A_B)), ok("ab", 1, 2),
            before=(Send(response(_BODY, headers=STREAM_HEADERS)),)),
)
