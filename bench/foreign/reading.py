"""JSON of other tools: whole documents or one a line, and its values taken only when they are sane."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.run import Int64
from workloads.errors import EvidenceError, UsageError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
NS_PER = {"ns": 1, "us": 1e3, "ms": 1e6, "sec": 1e9, "s": 1e9}
"""Nanoseconds of each unit of time that the tools write."""


def documents(path: Path) -> list[Mapping[str, Any]]:
    """The JSON objects of a file: one, or one a line. NaN and infinity become None.

    UsageError when there is no such file, EvidenceError when it holds no JSON objects.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; give a result file") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise EvidenceError(f"{path} is no JSON: give a result file") from None
    try:
        return _objects([_parsed(text)], path)
    except ValueError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2:
            raise EvidenceError(f"{path} is no JSON ({error}): was it written to its end?") from None
    try:
        return _objects([_parsed(line) for line in lines], path)
    except ValueError:
        raise EvidenceError(f"{path} is neither one JSON document nor one a line: was it written to its "
                            f"end?") from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _objects(values: list[Any], path: Path) -> list[Mapping[str, Any]]:
    if not all(isinstance(value, dict) for value in values):
        raise EvidenceError(f"{path} holds no JSON object: give a result file")
    return values


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count(value: object) -> int | None:
    """A whole number of things, at least 0; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found >= 0 and found == int(found) else None


def text(value: object) -> str:
    """The text without control characters, which could steer a terminal; empty for anything else."""
    return _CONTROL.sub("", value) if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, Any]:
    """The object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def nanoseconds(values: Iterable[float | None], unit: str) -> Int64:
    """Times of `unit` as whole ns; what is None, negative or beyond 64 bits is left out."""
    scaled = [value * NS_PER[unit] for value in values if value is not None]
    found = [value for value in scaled if 0 <= value < 2 ** 63]
    return np.rint(np.array(found, dtype=np.float64)).astype(np.int64)
