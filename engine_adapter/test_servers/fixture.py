"""What a fixture is: a scripted answer, and what a client must make of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_adapter.answer import FailureKind
from engine_adapter.test_servers.script import Script


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a client must report of one answer. None: the fixture says nothing about it, except
    where noted."""

    tokens: tuple[int, ...] = ()
    """Of each message that bore tokens, those before a failure included."""
    writes: tuple[int, ...] = ()
    """For each message, the write that brought its last byte: it was read no earlier than that write
    began, and no later than the answer's end."""
    failure: FailureKind | None = None
    """None: a success."""
    status: int | None = None
    """The HTTP status, where it is the failure; else None."""
    finish_reason: str | None = None
    """None: there was none."""
    prompt_tokens: int | None = None
    """As the server counted them; None: it did not."""
    source: str = "events"
    """Where the token counts come from: `token_ids`, `usage` or `events`."""
    text: str | None = None
    """All that a reader of the answer sees."""
    says: str = ""
    """What the failure's text must contain."""


@dataclass(frozen=True, slots=True)
class Fixture:
    """One answer of a server, good, odd or broken.

    `scripts` are for the attempts of the request in turn: more than one where the client has to try
    again. `before`: the script of a request that goes first over the same connection.
    """

    name: str
    scripts: tuple[Script, ...]
    expect: Expectation
    chat: bool = False
    before: Script | None = None

    @property
    def hangs(self) -> bool:
        """Whether only the client's own time limit ends it."""
        return self.expect.failure is FailureKind.TIMEOUT_READ


def text(words: str, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A message of /v1/completions. `usage` stands beside the choice, all else of `more` in it."""
    beside = {"usage": more.pop("usage")} if "usage" in more else {}
    choice = {"index": 0, "text": words, "finish_reason": finish_reason, **more}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], **beside}


def delta(fields: Mapping[str, Any], finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A message of /v1/chat/completions."""
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": dict(fields), "finish_reason": finish_reason}]} | more


def content(words: str, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A message of /v1/chat/completions with text."""
    return delta({"content": words}, finish_reason, **more)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """The `usage` of a message."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens}


def counted(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """The message with nothing but usage."""
    return {"id": "cmpl-1", "choices": [], "usage": usage(prompt_tokens, completion_tokens)}


def ok(words: str, *writes: int, tokens: tuple[int, ...] | None = None, finish: str | None = "length",
       source: str = "events", prompt_tokens: int | None = None) -> Expectation:
    """A success whose messages came in these writes, one token each unless `tokens` says otherwise."""
    return Expectation(tokens=(1,) * len(writes) if tokens is None else tokens, writes=writes, text=words,
                       finish_reason=finish, source=source, prompt_tokens=prompt_tokens)


ROLE = delta({"role": "assistant", "content": ""})
A_B = (text("a"), text("b", "length"))
"""Two tokens."""
