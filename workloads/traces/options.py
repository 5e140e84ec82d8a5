"""How a trace file is to be read, whatever its format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from workloads.errors import UsageError

TimeUnit = Literal["ns", "us", "ms", "s"]
TIME_UNIT_NS: dict[TimeUnit, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is left at None is the format's own."""

    max_model_len: int | None = None
    """Most tokens of prompt and answer together; None takes every row."""
    too_long: Literal["reject", "clip"] = "reject"
    """What happens to rows above it: left out and counted, or cut (the prompt first, keeping the answer,
    down to one token; then the answer) and counted."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """What happens to rows that cannot be read, lengths below 1 and times that run backwards: an error with
    file and line, or left out and counted. Rows that a format marks as failed are always left out and
    counted."""
    time_unit: TimeUnit | None = None
    """Of numeric timestamps."""
    block_size: int | None = None
    """Tokens of a hash block."""
    lengths: Literal["full", "new"] | None = None
    """Whether the prompt length of a later turn is that of the whole prompt, history included (`full`), or of
    what the turn adds (`new`)."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of the file's columns or keys by ours, such as {"input_len": "prompt_tokens"}."""
    tokenizer: str | None = None
    """Directory or file of a tokenizer, for formats that hold text in place of lengths."""
    window_s: tuple[float, float] | None = None
    """Take only rows that come within these seconds from the first row."""
    rows: int | None = None
    """Take only so many rows, from the first of the window on."""
    seed: int = 0
    """For formats that describe a distribution in place of requests."""


def window_seconds(text: str) -> tuple[float, float]:
    """The seconds of FROM..TO, each a number with s, m, h or d or without a unit; TO may be left out."""
    first, dots, last = text.partition("..")
    try:
        begin = _seconds(first) if first.strip() else 0.0
        end = _seconds(last) if last.strip() else float("inf")
    except ValueError:
        begin, end = 0.0, -1.0
    if not dots or not 0 <= begin < end:
        raise UsageError(f"window {text[:40]!r} is not FROM..TO in seconds, as in 600..1200 or 10m..20m")
    return begin, end


def _seconds(text: str) -> float:
    text = text.strip()
    unit = text[-1:] if text[-1:].isalpha() else ""
    if unit not in _UNITS:
        raise ValueError(unit)
    return float(text[:len(text) - len(unit)]) * _UNITS[unit]
