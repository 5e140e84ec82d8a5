"""Tenants of traces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from workloads.tenants import TenantName
from workloads.traces.tenant_numbers import MOST_TENANTS, TenantNumbers


def test_names_are_numbered_as_they_appear() -> None:
    """Equal names are one tenant; none at all is one without a name."""
    numbers = TenantNumbers()
    assert numbers.names == ("",)
    assert [numbers.number(name) for name in ("chat", "", "chat", "batch")] == [0, 1, 0, 2]
    assert numbers.names == ("chat", "", "batch")


def test_names_are_made_fit_for_objectives() -> None:
    """What an objective could not hold becomes a hyphen, so that every tenant can be promised something."""
    numbers = TenantNumbers()
    assert [numbers.number(name) for name in ("Conversation log", "Conversation/log", "a" * 99)] == [0, 0, 1]
    assert numbers.names == ("Conversation-log", "a" * 60)


@given(st.lists(st.text(), min_size=1, max_size=20))
def test_every_name_can_be_declared(names: list[str]) -> None:
    """Whatever stands in a file, its tenants can be named in a workload."""
    numbers = TenantNumbers()
    assert all(0 <= numbers.number(name) < len(numbers.names) for name in names)
    for name in filter(None, numbers.names):
        TypeAdapter(TenantName).validate_python(name)


def test_there_is_an_end_to_tenants() -> None:
    """The first name too many is refused; those known, and other ways to write them, still count."""
    numbers = TenantNumbers()
    for number in range(MOST_TENANTS):
        numbers.number(f"t {number}")
    assert numbers.number("t/5") == 5
    with pytest.raises(ValueError, match="does not name tenants"):
        numbers.number("one more")


def test_what_cannot_be_printed_is_no_part_of_a_name() -> None:
    """Escapes and marks of direction would steer a terminal or hide in a report."""
    numbers = TenantNumbers()
    numbers.number("\x1b[31mred\u202e\u200b")
    assert all(name.isprintable() for name in numbers.names)
