"""Values of a foreign JSON document, taken only when they are what they should be.

A study that was interrupted, or written by a newer version, holds nulls and unknown shapes
where a value should be. Each function here returns the value, or says that there is none.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def number(value: object) -> float | None:
    """A finite number as float; None for anything else (booleans, text, NaN, infinity)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # an integer beyond every float
        return None
    return found if math.isfinite(found) else None


def integer(value: object) -> int | None:
    """A whole number as int; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def text(value: object) -> str:
    """The text without characters that could steer a terminal or hide: controls, and marks of direction and
    width; empty for anything else."""
    return _CONTROL.sub("", value) if isinstance(value, str) else ""


def flag(value: object) -> bool | None:
    """True or False; None for anything else."""
    return value if isinstance(value, bool) else None


def mapping(value: object) -> Mapping[str, Any]:
    """The object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list in order; what is no object is left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list in order; what is no text is left out."""
    return tuple(text(item) for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def numbers(value: object) -> dict[str, float | None]:
    """An object of numbers by name; a value that is no finite number becomes None."""
    return {str(name): number(item) for name, item in mapping(value).items()}
