"""The tenants of a trace, numbered as they appear."""

import re

MOST_TENANTS = 1024
"""Tenants have figures and objectives each; a column with more values is none of tenants."""
_NAME_LENGTH = 60
_UNFIT = re.compile(r"[\s/:<>=]+")
"""What a name in an objective cannot hold (see workloads.tenants.TenantName)."""


class TenantNumbers:
    """A number for each name, from 0 in order of appearance. Names are made fit for objectives: a blank and
    each of / : < > = becomes a hyphen, several in a row one, what cannot be printed too, and the 61st
    character on is cut off; names that are equal then are one tenant."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._as_written: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """By number; one nameless tenant while none was seen."""
        return tuple(self._numbers) or ("",)

    def number(self, name: str) -> int:
        """Of this name; ValueError for the first name beyond the most that there may be."""
        number = self._as_written.get(name)
        return self._new(name) if number is None else number

    def _new(self, name: str) -> int:
        plain = "".join(letter if letter.isprintable() else "-" for letter in name.strip())
        fit = _UNFIT.sub("-", plain)[:_NAME_LENGTH]
        if len(self._numbers) == MOST_TENANTS and fit not in self._numbers:
            raise ValueError(f"{name[:40]!r} would be tenant number {MOST_TENANTS + 1}: "
                             "this column does not name tenants")
        number = self._numbers.setdefault(fit, len(self._numbers))
        if len(self._as_written) < MOST_TENANTS:
            self._as_written[name] = number
        return number
