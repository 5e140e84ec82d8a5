"""What an OpenAI-compatible streaming answer held, decoded once it is over.

A message bears tokens when it has non-empty text, content, reasoning, a tool call's name or
arguments, or token ids; also when it has none of these but the server's running count grew with
it (part of a character, a control token). The role, empty deltas, usage alone and [DONE] bear none.

How many tokens a message had comes from the first of these that the answer offers:

- `token_ids`: the ids in the messages themselves, unless the server's own count contradicts them;
- `usage`: `usage.completion_tokens`, cumulative. Reported with every message it gives each its own
  tokens; reported at the end only, the total is the server's and its spread over the messages a
  guess. Not used where it ends before the last message;
- `tokenizer`: the caller's tokenizer on the whole text, each token in the message that brought its
  last character;
- `events`: one token a message, which undercounts where a message has several.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from engine_adapter.answer import Failure, FailureKind
from engine_adapter.http.openai_message import Choice, Message, decode_message
from engine_adapter.http.sse import ServerEvent, parse_events
from engine_adapter.http.text_tokens import TokensOfText
from engine_adapter.http.token_counts import from_increments, never_fall, tokens_per_message


@dataclass(frozen=True, slots=True)
class StreamContent:
    """One decoded answer. Tokens that came before a failure are kept."""

    message_read: list[int]
    """Per token-bearing message, the index of the read that completed it; never falls."""
    message_tokens: list[int]
    """Tokens of each, at least 1."""
    finish_reason: str | None
    done: bool
    """Whether [DONE] came."""
    failure: Failure | None
    """None: a terminal signal ([DONE] or a finish reason), at least one token and no error."""
    prompt_tokens: int | None
    completion_tokens: int | None
    """Both as last counted by the server; None where it did not say."""
    token_count_source: str
    """`token_ids`, `usage`, `tokenizer` or `events`: see the module."""
    text: str
    """All that a reader sees: reasoning, text, and the names and arguments of tool calls."""
    first_content_message: int | None
    """Index of the first message with more than reasoning in it."""
    token_ids: list[int] | None
    """All tokens of the answer, where it names them and they are what was counted."""


def decode_stream(reads: Sequence[bytes], *, tokens_of_text: TokensOfText | None = None) -> StreamContent:
    """Decode a body of /v1/completions or /v1/chat/completions; either shape is understood in both.

    All but `message_read` is the same for every segmentation of the body. Nothing is refused:
    what is wrong with the answer becomes its `failure`.
    """
    stream = _Stream()
    events = parse_events(reads)
    for event in events:
        stream.take(event)
        if stream.failure or stream.done:
            break
    counts, source = stream.counts(tokens_of_text)
    kept = [i for i, count in enumerate(counts) if count]
    failure = stream.failure
    if not events:
        failure = _foreign(b"".join(reads))
    first = stream.first_content
    return StreamContent(
        message_read=[stream.reads[i] for i in kept],
        message_tokens=[counts[i] for i in kept],
        finish_reason=stream.finish_reason,
        done=stream.done,
        failure=failure or stream.bad_end(sum(counts)),
        prompt_tokens=stream.prompt_tokens,
        completion_tokens=stream.checkpoints[-1][1] if stream.checkpoints else None,
        token_count_source=source,
        text="".join(stream.texts),
        first_content_message=None if first is None else min(bisect_left(kept, first), len(kept) - 1),
        token_ids=stream.ids if source == "token_ids" and all(map(_is_id, stream.ids)) else None,
    )


class _Stream:
    """The messages so far that may bear tokens, in parallel lists, and what else was said."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.texts: list[str] = []
        self.num_ids: list[int | None] = []
        self.ids: list[int] = []
        self.checkpoints: list[tuple[int, int]] = []
        self.first_content: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.prompt_tokens: int | None = None
        self.failure: Failure | None = None

    def take(self, event: ServerEvent) -> None:
        message = decode_message(event.data)
        error = None if message is None else message.error_text()
        if event.event == "error" and error is None:
            error = event.data.decode("utf-8", "replace")
        if error is not None:
            self.failure = _server_error(error)
        elif message is None:
            self._take_other(event)
        else:
            self._take_message(message, event.read)

    def _take_other(self, event: ServerEvent) -> None:
        data = event.data.strip()
        if data == b"[DONE]":
            self.done = True
        elif data and event.complete:
            self.failure = Failure(FailureKind.PARSE, f"a message that is no JSON object: {_hint(data)}")

    def _take_message(self, message: Message, read: int) -> None:
        choices, usage = message.choices, message.usage
        if choices and (len(choices) > 1 or choices[0].index):
            self.failure = Failure(FailureKind.PARSE, "several choices in one answer: ask for one (n=1)")
            return
        counted = None
        if usage:
            counted = usage.completion_tokens
            if usage.prompt_tokens is not None:
                self.prompt_tokens = usage.prompt_tokens
        if choices:
            self._take_choice(choices[0], read, counted)
        if counted is not None:
            self.checkpoints.append((len(self.reads), counted))

    def _take_choice(self, choice: Choice, read: int, counted: int | None) -> None:
        reasoning, content = choice.texts()
        ids = choice.token_ids
        if reasoning or content or ids or (counted and self._grew(counted, choice)):
            if content and self.first_content is None:
                self.first_content = len(self.reads)
            self.reads.append(read)
            self.texts.append(reasoning + content)
            self.num_ids.append(None if ids is None else len(ids))
            self.ids += ids or ()
        self.finish_reason = choice.finish_reason or self.finish_reason

    def _grew(self, counted: int, choice: Choice) -> bool:
        """Whether a message without text shows, by the running count alone, that tokens came with it.

        A count that comes for the first time after texts, or with the end, is the sum of all there
        were. In a chat the role comes before any token, and with it the first count.
        """
        if self.finish_reason:
            return False
        if not self.checkpoints:
            return not self.reads and not choice.finish_reason and choice.delta is None
        messages, before = self.checkpoints[-1]
        return messages == len(self.reads) and counted > before

    def counts(self, tokens_of_text: TokensOfText | None) -> tuple[list[int], str]:
        """Tokens of each message so far, 0 where it turned out to bear none, and their source."""
        messages, total = self.checkpoints[-1] if self.checkpoints else (0, 0)
        covered = 0 < messages == len(self.reads)
        server_counts = covered and total > 0 and never_fall(self.checkpoints)
        ids = [number for number in self.num_ids if number is not None]
        if any(ids) and len(ids) == len(self.reads) and (not server_counts or sum(ids) == total):
            return from_increments(ids), "token_ids"
        if server_counts:
            return tokens_per_message(messages, self.checkpoints), "usage"
        if tokens_of_text is not None:
            increments = tokens_of_text.counts("".join(self.texts), list(accumulate(map(len, self.texts))))
            if any(increments):
                return from_increments(increments), "tokenizer"
        return [1] * len(self.reads), "events"

    def bad_end(self, num_tokens: int) -> Failure | None:
        """What is wrong with how the stream ended, nothing else being wrong."""
        if self.finish_reason in _FAILED:
            return _server_error(f"the server ended the answer with finish_reason {self.finish_reason!r}")
        if not (self.done or self.finish_reason):
            text = f"the stream ended after {num_tokens} tokens without [DONE] or a finish reason"
            return Failure(FailureKind.TRUNCATED, text)
        if not num_tokens:
            return Failure(FailureKind.EMPTY, "the answer ended in order, but without a token")
        return None


def _foreign(body: bytes) -> Failure | None:
    """What is wrong with a body without events, or None where it only ended too early."""
    line = body.removeprefix(b"\xef\xbb\xbf").lstrip()[: len(_LONGEST_FIELD)]
    if any(line.startswith(field) or field.startswith(line) for field in _FIELDS):
        return None
    message = decode_message(body)
    if message and (error := message.error_text()) is not None:
        return _server_error(error)
    whole = message is not None and message.choices
    what = "a whole answer came instead of a stream" if whole else "no event stream came"
    return Failure(FailureKind.PARSE, f"{what}: {_hint(body)}")


_IDS = 1 << 31
_FIELDS = (b":", b"data:", b"event:", b"id:", b"retry:")
_LONGEST_FIELD = max(_FIELDS, key=len)
_FAILED = ("abort", "error")
"""Finish reasons of engines for answers that they gave up; see engine_adapter.seam."""


def _is_id(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _IDS


def _server_error(text: str) -> Failure:
    return Failure(FailureKind.IN_STREAM_ERROR, _one_line(text, 300) or "an error without a message")


def _hint(body: bytes) -> str:
    return _one_line(body[:400].decode("utf-8", "replace"), 80)


def _one_line(text: str, length: int) -> str:
    """The text's first `length` characters, made fit for a terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 10 * length]).split())
    return line if len(line) <= length else line[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"
