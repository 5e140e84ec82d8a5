"""A request's number is found again in the name that vLLM gives it."""

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.request_number import http_request_id, http_request_number, request_number

NUMBERS = st.integers(0, 1 << 41)


@given(NUMBERS, st.integers(0, 1 << 31), st.text("0123456789abcdef", min_size=8, max_size=8))
def test_the_number_survives_all_three_forms(number: int, serial: int, random: str) -> None:
    """From our host process, from /v1/completions and from /v1/chat/completions."""
    header = http_request_id(number, serial)
    assert request_number(f"{number}-{serial}-{random}") == number
    assert request_number(f"cmpl-{header}-0-{random}") == number
    assert request_number(f"chatcmpl-{header}-{random}") == number


@given(NUMBERS, st.integers(0, 1 << 47))
def test_the_header_is_a_uuid_of_version_4(number: int, serial: int) -> None:
    """Servers that check X-Request-Id take it, and two requests never share one."""
    header = http_request_id(number, serial)
    parsed = UUID(header)
    assert (str(parsed), parsed.version, parsed.variant) == (header, 4, RFC_4122)
    assert http_request_number(header) == number


@pytest.mark.parametrize(
    "name", ["", "cmpl-3f2a-0-1b", "cmpl-12-0-1b", "chatcmpl-x-1", "embd-1-2", "4-x",
             "cmpl-3f2a9c1e-77aa-4b2d-9c11-0123456789ab-0-1b"])
def test_the_name_of_somebody_else_has_no_number(name: str) -> None:
    """Requests of others on the same server are -1 in the step log, never mistaken for ours."""
    assert request_number(name) == -1
