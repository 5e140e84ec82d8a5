"""Conversations as JSON: ShareGPT's array, or JSON lines, of turns with texts.

Every answer is a request: its prompt is all that was said before it, so prompts hold their history, and the
texts are counted message by message, without the tokens of a chat template. vLLM's ShareGPT dataset takes the
first two messages alone, and none longer than 1024 tokens; here every answer counts, in order.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from workloads.errors import UsageError
from workloads.traces.column_names import keys_by_field
from workloads.traces.formats import BadRows
from workloads.traces.json_elements import json_elements
from workloads.traces.json_rows import decoded_lines, explained, first_objects, renamed
from workloads.traces.opening import file_head
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import PIECE_ROWS, RawRows
from workloads.traces.text_lengths import TextLengths

KEYS = "conversations (or messages)"
ANSWERING = frozenset({"gpt", "assistant", "chatgpt", "model", "bard", "bing", "claude"})
"""Who says an answer; all others speak to the model."""
NO_ANSWER = "no answer"
"""Why a conversation is left out that has none."""
_ARRAY = re.compile(rb"\s*\[")
_OF_LOGS = {"usage", "timestamp", "created", "output_tokens", "completion_tokens"}


class _Part(msgspec.Struct, gc=False):
    type: str = "text"
    text: str | None = None


_Content = str | list[_Part] | None


class _Message(msgspec.Struct, gc=False):
    speaker: str = msgspec.field(name="from", default="")
    value: _Content = None
    role: str = ""
    content: _Content = None


class _Conversation(msgspec.Struct, gc=False):
    conversations: list[_Message] | None = None
    messages: list[_Message] | None = None


def sniff(head: bytes, path: Path) -> bool:
    """An array, or lines, of objects with `conversations` or `messages`."""
    if _ARRAY.match(head):
        return b'"conversations"' in head or b'"messages"' in head
    return any(bool(row.keys() & {"conversations", "messages"}) and not row.keys() & _OF_LOGS
               for row in first_objects(head, most=1))


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """A row for every answer, in pieces; a conversation is a session. Rows without a single token of prompt
    or of answer are failed ones; conversations without an answer are counted as such."""
    if options.lengths == "new":
        raise UsageError(f"{path}: its prompts are counted with their history: leave out --lengths new")
    lengths = TextLengths(options.tokenizer, path)
    piece: list[tuple[int, ...]] = []
    for session, (line, conversation) in enumerate(_conversations(path, options, bad)):
        try:
            asked = _requests(conversation, lengths)
        except ValueError as error:
            bad.add(line, str(error))
            continue
        bad.count(NO_ANSWER, rows=not asked)
        for turn, (input_len, output_len) in enumerate(asked):
            piece.append((line, input_len, output_len, session, turn))
            if len(piece) == PIECE_ROWS:
                yield _columns(piece)
                piece = []
    if piece:
        yield _columns(piece)


def _columns(piece: list[tuple[int, ...]]) -> RawRows:
    line, input_len, output_len, session, turn = np.array(piece, dtype=np.int64).T.copy()
    return RawRows(line=line, input_len=input_len, output_len=output_len, session=session, turn=turn,
                   failed=(input_len == 0) | (output_len == 0))


def _conversations(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[tuple[int, _Conversation]]:
    columns = keys_by_field(options.columns, {"conversations": "conversations"}, "sharegpt")
    row_type: type[Any] = renamed(_Conversation, columns)
    decode = msgspec.json.Decoder(row_type).decode
    if not _ARRAY.match(file_head(path)):
        yield from decoded_lines(path, decode, bad, expected=KEYS)
        return
    for element in json_elements(path):
        try:
            if element.cut:
                raise ValueError("the file ends within its array: it may be cut off")
            conversation = decode(element.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            bad.add(element.line, str(error) if element.cut else explained(element.data, error, KEYS))
        else:
            yield element.line, conversation


def _requests(conversation: _Conversation, lengths: TextLengths) -> list[tuple[int, int]]:
    """Tokens of prompt and answer of each answer; ValueError for what cannot be counted."""
    messages = conversation.conversations
    if messages is None:
        messages = conversation.messages
    if messages is None:
        raise ValueError(f"a conversation needs {KEYS}")
    asked = []
    context, spoken_to = 0, False
    for message in messages:
        speaker = message.speaker or message.role
        if not speaker:
            raise ValueError("a message needs `from` and `value`, or `role` and `content`")
        tokens = _tokens(message.content if message.value is None else message.value, lengths)
        answers = speaker.lower() in ANSWERING
        if answers and spoken_to:
            asked.append((context, tokens))
        # What a model says first, or says on, belongs to the prompt of the next answer.
        spoken_to = not answers
        context += tokens
    return asked


def _tokens(content: _Content, lengths: TextLengths) -> int:
    if content is None or isinstance(content, str):
        return lengths.count(content or "")
    for part in content:
        if part.type not in ("text", "input_text", "output_text"):
            raise ValueError(f"content of type {part.type[:40]!r} has no tokens that could be counted")
    return sum(lengths.count(part.text or "") for part in content)
