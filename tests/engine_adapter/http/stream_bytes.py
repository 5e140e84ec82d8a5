"""Bodies of streaming answers for tests: messages of both endpoints, and every way to cut them."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

DONE = b"data: [DONE]\n\n"


def event(message: dict[str, Any] | bytes, separator: bytes = b"\n\n") -> bytes:
    """One event with this JSON, as most servers write it."""
    data = message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode()
    return b"data: " + data + separator


def text(piece: str | None, **fields: Any) -> bytes:
    """A message of /v1/completions; `usage` belongs to the message, the rest to its choice."""
    usage = {"usage": fields.pop("usage")} if "usage" in fields else {}
    return event({"choices": [{"index": 0, "text": piece, **fields}], **usage})


def delta(fields: dict[str, Any] | None, **more: Any) -> bytes:
    """A message of /v1/chat/completions; `usage` belongs to the message, the rest to its choice."""
    usage = {"usage": more.pop("usage")} if "usage" in more else {}
    return event({"choices": [{"index": 0, "delta": fields, **more}], **usage})


def counted(completion: int | None, prompt: int | None = 7, **more: Any) -> dict[str, Any]:
    """A usage object."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def usage_only(completion: int | None, prompt: int | None = 7, **more: Any) -> bytes:
    """The trailing usage message."""
    return event({"choices": [], "usage": counted(completion, prompt, **more)})


ROLE = delta({"role": "assistant", "content": ""})
STOP = delta({}, finish_reason="stop")


def cut(body: bytes, places: Sequence[int]) -> list[bytes]:
    """The body in reads that end at these offsets."""
    bounds = [0, *sorted(places), len(body)]
    return [body[start:end] for start, end in pairwise(bounds)]


def any_cut(body: bytes) -> st.SearchStrategy[list[bytes]]:
    """Every segmentation of a body, with empty reads too."""
    return st.lists(st.integers(0, len(body)), max_size=8).map(lambda places: cut(body, places))
