"""What the engine's host process and we say to each other over one socket pair.

A frame is a type byte, a 4-byte length and that many bytes. Tokens travel in batches of
fixed records, because there may be tens of thousands of them a second; the rest is JSON.
"""

import json
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HEAD = struct.Struct("<cI")
GENERATE, TOKENS, MESSAGE = b"G", b"T", b"M"

_GENERATE_HEAD = struct.Struct("<qi?")
_TOKEN = struct.Struct("<qqii")
_FINISH_REASONS: tuple[str | None, ...] = (None, "length", "stop", "abort", "error", "repetition", "other")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """Tokens of one request, as read in the host process."""

    number: int
    read_ns: int
    num_tokens: int
    finish_reason: str | None

    def pack(self) -> bytes:
        reason = self.finish_reason if self.finish_reason in _FINISH_REASONS else "other"
        return _TOKEN.pack(self.number, self.read_ns, self.num_tokens, _FINISH_REASONS.index(reason))


def frame(kind: bytes, payload: bytes) -> bytes:
    return HEAD.pack(kind, len(payload)) + payload


def message(**fields: Any) -> bytes:
    """A frame of JSON; `op` says what it is about."""
    return frame(MESSAGE, json.dumps(fields).encode())


def pack_generate(number: int, prompt: list[int], output_len: int, *, wants_token_ids: bool = False) -> bytes:
    head = _GENERATE_HEAD.pack(number, output_len, wants_token_ids)
    return frame(GENERATE, head + array("i", prompt).tobytes())


def unpack_generate(payload: bytes) -> tuple[int, list[int], int, bool]:
    number, output_len, wants_token_ids = _GENERATE_HEAD.unpack_from(payload)
    prompt = array("i")
    prompt.frombytes(payload[_GENERATE_HEAD.size:])
    return number, prompt.tolist(), output_len, wants_token_ids


def unpack_tokens(payload: bytes) -> Iterator[TokenRecord]:
    for number, read_ns, num_tokens, reason in _TOKEN.iter_unpack(payload):
        yield TokenRecord(number, read_ns, num_tokens, _FINISH_REASONS[reason])
