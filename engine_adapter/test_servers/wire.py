"""Bytes of HTTP/1.1 and of event streams, built by hand so that every one of them is known."""

import json
from collections.abc import Mapping
from typing import Any

STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8"}


def sse(data: str | Mapping[str, Any], *, event: str | None = None, end: str = "\n",
        space: str = " ") -> bytes:
    """One server-sent event: `data` (a mapping is written as JSON) in one `data:` line, ended by a
    blank line. `end` is the line ending, `space` what stands after the colon."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    lines = [f"event:{space}{event}"] if event is not None else []
    return "".join(f"{line}{end}" for line in (*lines, f"data:{space}{text}", "")).encode()


def chunk(data: bytes, *, extension: str = "") -> bytes:
    """`data` as one chunk of a chunked body; empty data would end the body and is refused."""
    if not data:
        raise ValueError("an empty chunk ends the body: use LAST_CHUNK")
    return b"%x%s\r\n%s\r\n" % (len(data), extension.encode(), data)


LAST_CHUNK = b"0\r\n\r\n"


def head(status: int = 200, headers: Mapping[str, str] | None = None, *, version: str = "1.1") -> bytes:
    """Status line and headers of an answer, the blank line included."""
    lines = [f"HTTP/{version} {status} {_REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def response(body: bytes | Mapping[str, Any], *, status: int = 200,
             headers: Mapping[str, str] | None = None) -> bytes:
    """A whole answer with a content-length; a mapping is sent as JSON."""
    kind = {}
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        kind = {"content-type": "application/json"}
    return head(status, {"content-length": str(len(body))} | kind | dict(headers or {})) + body


_REASONS = {100: "Continue", 200: "OK", 204: "No Content", 302: "Found", 307: "Temporary Redirect",
            400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
            429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}
