"""What the paced server says: requests as it understands them, answers as bytes that are ready to send."""

import json
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from engine_adapter.test_servers.wire import chunk, sse

DEFAULT_TOKENS = 16
"""The API's default of `max_tokens`."""
_LAST = b"0\r\n\r\n"
TOKEN_ID = 7
WORD = " tok"


class BadRequest(ValueError):
    """The request cannot be answered; the message says why."""


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class _Asked(msgspec.Struct):
    model: str = "paced"
    prompt: str | list[int | str | list[int]] | None = None
    messages: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    return_token_ids: bool | None = None


_DECODER = msgspec.json.Decoder(_Asked)


@dataclass(frozen=True, slots=True)
class PacedAnswer:
    """One answer: what goes out with the first token, with each one between, and with the last."""

    prompt_tokens: int
    tokens: int
    first: bytes
    middle: bytes
    """With `counted`, a template with two %d: the tokens so far, and those with the prompt's."""
    counted: bool
    last: bytes
    messages: int

    def middle_with(self, tokens: int) -> bytes:
        """The chunk of a message between the first and the last; `tokens` includes its own."""
        return self.middle % (tokens, tokens + self.prompt_tokens) if self.counted else self.middle


def paced_answer(body: bytes, *, chat: bool, name: str, tokens_per_message: int) -> PacedAnswer:
    """The answer to a request's body; BadRequest when it cannot be streamed."""
    try:
        asked = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from error
    if not asked.stream:
        raise BadRequest("this server only streams: send \"stream\": true")
    tokens = asked.max_completion_tokens or asked.max_tokens or DEFAULT_TOKENS
    if tokens < 1:
        raise BadRequest("max_tokens is at least 1")
    messages = -(-tokens // tokens_per_message)
    usage = asked.stream_options or _StreamOptions()
    prompt_tokens = _prompt_tokens(asked)
    maker = _Chunks(asked, chat=chat, name=name, prompt_tokens=prompt_tokens)
    size = min(tokens_per_message, tokens)
    last_size = tokens - (messages - 1) * tokens_per_message
    ending = maker.usage(tokens) if usage.include_usage else b""
    ending += chunk(sse("[DONE]")) + _LAST
    last = maker.message(last_size, tokens, "length") + ending
    role = maker.role() if chat else b""
    return PacedAnswer(
        prompt_tokens=prompt_tokens, tokens=tokens, messages=messages,
        first=role + (maker.message(size, size, None) if messages > 1 else last),
        middle=maker.template(size) if maker.counted else maker.message(size, 0, None),
        counted=maker.counted, last=last)


def _prompt_tokens(asked: _Asked) -> int:
    """Token ids are counted; of a text, its words."""
    prompt: Any = asked.prompt
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, list):
        return len(prompt)
    texts = [prompt] if isinstance(prompt, str) else [
        part for message in asked.messages or [] for part in (message.get("content"),)
        if isinstance(part, str)]
    return sum(len(text.split()) for text in texts)


class _Chunks:
    """Builds the events of one answer, framed as HTTP chunks."""

    def __init__(self, asked: _Asked, *, chat: bool, name: str, prompt_tokens: int) -> None:
        usage = asked.stream_options or _StreamOptions()
        self.counted = usage.include_usage and usage.continuous_usage_stats
        self._chat = chat
        self._ids = bool(asked.return_token_ids)
        self._prompt_tokens = prompt_tokens
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{name}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": int(time.time()), "model": asked.model,
        }

    def role(self) -> bytes:
        return self._event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
                             "finish_reason": None}], 0)

    def message(self, tokens: int, so_far: int, finish_reason: str | None) -> bytes:
        return self._event([self._choice(tokens, finish_reason)], so_far)

    def template(self, tokens: int) -> bytes:
        """A message whose two counts are %9d: the length of a chunk stands before it, so they have a
        fixed width, which JSON's blanks allow."""
        event = json.dumps(self._head | {"choices": [self._choice(tokens, None)]}, separators=(",", ":"))
        data = event[:-1].replace("%", "%%") + (
            f',"usage":{{"prompt_tokens":{self._prompt_tokens},"completion_tokens":%9d,"total_tokens":%9d}}}}')
        return b"%x\r\n%s\r\n" % (len(sse(data % (0, 0))), sse(data))

    def usage(self, tokens: int) -> bytes:
        return chunk(sse(self._head | {"choices": [], "usage": self._usage(tokens)}))

    def _choice(self, tokens: int, finish_reason: str | None) -> dict[str, Any]:
        text = WORD * tokens
        choice: dict[str, Any] = {"index": 0}
        choice |= {"delta": {"content": text}} if self._chat else {"text": text}
        choice |= {"logprobs": None, "finish_reason": finish_reason}
        return choice | ({"token_ids": [TOKEN_ID] * tokens} if self._ids else {})

    def _usage(self, tokens: int) -> dict[str, int]:
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": tokens,
                "total_tokens": self._prompt_tokens + tokens}

    def _event(self, choices: list[dict[str, Any]], so_far: int) -> bytes:
        usage = {"usage": self._usage(so_far)} if self.counted else {}
        return chunk(sse(self._head | {"choices": choices} | usage))
