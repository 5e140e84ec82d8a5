"""How requests are written for one server: its API, what it accepts, token ids or text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from engine_adapter.http.target import HttpTarget
from engine_adapter.http.words import PromptWords
from engine_adapter.request_number import http_request_id
from engine_adapter.seam import GenerateRequest

EXTRAS: Mapping[str, Mapping[str, Any]] = {
    "return_token_ids": {"return_token_ids": True},
    "continuous_usage_stats": {},  # within stream_options
    "min_tokens": {},  # the length of each answer
    "ignore_eos": {"ignore_eos": True},
    "stream_options": {},
}
"""What makes counts exact and lengths kept, where a server knows it. The first two are vLLM's, min_tokens
and ignore_eos vLLM's and SGLang's, stream_options is OpenAI's own."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form that one server accepts, found out before anything is measured."""

    target: HttpTarget
    model: str
    extras: frozenset[str] = field(default_factory=lambda: frozenset(EXTRAS))
    token_ids: bool = True
    """Whether a prompt is sent as token ids; else as words."""
    words: PromptWords = field(default_factory=PromptWords)

    def without(self, extra: str) -> Self:
        """The same without this extra."""
        gone = {extra, "continuous_usage_stats"} if extra == "stream_options" else {extra}
        return replace(self, extras=self.extras - gone)

    def payload(self, request: GenerateRequest, serial: int) -> bytes:
        """The whole HTTP request for it, head and body."""
        return self._head(request.number, serial, self.body(request))

    def body(self, request: GenerateRequest) -> bytes:
        """The JSON body; `--extra-body` wins over everything but what this client sets itself."""
        target = self.target
        fields: dict[str, Any] = {"model": self.model, "max_tokens": request.output_len, "stream": True,
                                  "temperature": 0.0}
        if target.api == "chat":
            fields["messages"] = [{"role": "user", "content": self.words.text(request.prompt_token_ids)}]
        elif self.token_ids:  # never for chat: see HttpEngine
            fields["prompt"] = list(request.prompt_token_ids)
        else:
            fields["prompt"] = self.words.text(request.prompt_token_ids)
        for extra in self.extras:
            fields |= EXTRAS[extra]
        if "min_tokens" in self.extras and target.ignore_eos:
            fields["min_tokens"] = request.output_len
        if not target.ignore_eos:
            fields.pop("ignore_eos", None)
        if "stream_options" in self.extras:
            fields["stream_options"] = {"include_usage": True}
            if "continuous_usage_stats" in self.extras:
                fields["stream_options"]["continuous_usage_stats"] = True
        return msgspec.json.encode(fields | dict(target.extra_body))

    def _head(self, number: int, serial: int, body: bytes) -> bytes:
        target = self.target
        host = f"[{target.host}]" if ":" in target.host else target.host
        headers = {
            "Host": f"{host}:{target.port}", "Accept": "text/event-stream", "User-Agent": "stallfree",
            "Content-Type": "application/json", "Content-Length": str(len(body)),
            # A vLLM that carries our scheduler plug-in finds the request's number in it.
            "X-Request-Id": http_request_id(number, serial),
            **target.all_headers(),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {target.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def usable_ids(vocab_size: int, count: int) -> Sequence[int]:
    """A prompt of `count` ids that reaches to the end of a vocabulary: refused where it is smaller."""
    lowest = min(10, vocab_size - 1)
    return [vocab_size - 1, *(lowest + i % (vocab_size - lowest) for i in range(count - 1))]
