"""One message of an OpenAI-compatible stream: the few fields that are measured."""

import json
import re
from typing import Annotated, Any

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """A choice of either endpoint: completions fill `text`, chat completions `delta`."""

    index: int | None = None
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None

    def texts(self) -> tuple[str, str]:
        """What a reader sees of it: its reasoning, and all else (text, content, tool calls)."""
        delta = self.delta
        if delta is None:
            return "", self.text or ""
        content = delta.content or self.text or ""
        if delta.tool_calls:
            functions = [call.function for call in delta.tool_calls if call.function]
            content += "".join((f.name or "") + (f.arguments or "") for f in functions)
        # Servers that send both names send the same text twice.
        return delta.reasoning or delta.reasoning_content or "", content


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class Message(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None
    """What is wrong, where `object` is `error`."""

    def error_text(self) -> str | None:
        """The server's words for what went wrong, or None where this is no error."""
        if isinstance(self.error, dict) or self.error:
            return _words(self.error)
        return _words(self.message) if self.object == "error" else None


def decode_message(data: bytes) -> Message | None:
    """The message, or None where the bytes are no JSON object.

    What cannot be text becomes U+FFFD; a field of another type than expected counts as absent.
    """
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return _lenient_message(value) if isinstance(value, dict) else None


_decoder = msgspec.json.Decoder(Message)


def _lenient_message(value: dict[str, Any]) -> Message:
    """The same from JSON that msgspec refuses: lone surrogates, bad UTF-8, controls, other types."""
    usage = _dict(value.get("usage"))
    return Message(
        choices=[_lenient_choice(choice) for choice in _dicts(value.get("choices"))],
        usage=Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))),
        error=value.get("error"),
        object=_text(value.get("object")),
        message=value.get("message"),
    )


def _lenient_choice(value: dict[str, Any]) -> Choice:
    delta = _dict(value.get("delta"))
    finish, ids = value.get("finish_reason"), value.get("token_ids")
    return Choice(
        index=_count(value.get("index")),
        text=_text(value.get("text")),
        delta=Delta(
            content=_text(delta.get("content")),
            reasoning=_text(delta.get("reasoning")),
            reasoning_content=_text(delta.get("reasoning_content")),
            tool_calls=[_lenient_call(call) for call in _dicts(delta.get("tool_calls"))],
        ),
        # SGLang's own form is an object with a `type`.
        finish_reason=_text(finish.get("type") if isinstance(finish, dict) else finish) or None,
        token_ids=ids if isinstance(ids, list) else None,
    )


def _lenient_call(value: dict[str, Any]) -> ToolCall:
    function = _dict(value.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments) if arguments else None
    return ToolCall(Function(_text(function.get("name")), _text(arguments)))


def _text(value: Any) -> str:
    """Text of a string or of a list of content parts (`text`, or Mistral's `thinking`)."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return "".join(map(_text, value))
    if isinstance(value, dict):
        return _text(value.get("text") or value.get("thinking"))
    return ""


_SURROGATE = re.compile("[\ud800-\udfff]")


def _words(error: Any) -> str:
    if isinstance(error, dict) and error.get("message"):
        error = error["message"]
    return error if isinstance(error, str) else json.dumps(error)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: Any) -> int | None:
    """A whole number that is not negative, also written as 3.0; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        return None
    return int(value) if value == int(value) else None
