"""Steps of a scripted answer, and the usual ways to put them together."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine_adapter.test_servers.wire import LAST_CHUNK, STREAM_HEADERS, chunk, head, sse


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes, all at once: one write. Writes of an answer are counted from 0."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so long. After 0 a client in the same event loop has read what was sent."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Until:
    """Do nothing until the test sets `event`: order without a clock."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection in order (FIN), after what was sent."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection (RST): what the client has not read yet may be lost."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Keep the connection open and say nothing more, until the client leaves."""


Step = Send | Wait | Until | Close | Reset | Hang
Script = tuple[Step, ...]
"""After its last step the connection stays open for the next request, unless a step ended it."""

GAP_S = 0.004
"""Between writes that a client should read separately; longer than a busy event loop's turn."""


def spaced(*writes: bytes, gap_s: float = GAP_S) -> Script:
    """One write each, so far apart that each is a read of its own for an attentive client."""
    steps: list[Step] = []
    for data in writes:
        steps += [Send(data), Wait(gap_s)]
    return tuple(steps[:-1])


def one_byte_each(data: bytes) -> Script:
    """Every byte a write of its own, with a turn of the event loop after it."""
    return tuple(step for i in range(len(data)) for step in (Send(data[i : i + 1]), Wait(0.0)))


def streamed(events: Iterable[str | Mapping[str, Any]], *, gap_s: float = GAP_S, done: bool = True) -> Script:
    """A whole answer as servers stream it: the head is write 0, event i is write i + 1 as one chunk of its
    own, then [DONE] (unless `done` is false) and the last chunk in one write."""
    ending = chunk(sse("[DONE]")) + LAST_CHUNK if done else LAST_CHUNK
    return spaced(stream_head(), *(chunk(sse(event)) for event in events), ending, gap_s=gap_s)


def stream_head(**headers: str) -> bytes:
    """Status line and headers of a chunked event stream; underscores in names stand for hyphens."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return head(200, STREAM_HEADERS | {"transfer-encoding": "chunked"} | more)
