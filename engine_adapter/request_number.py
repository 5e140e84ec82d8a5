"""The number of a request in the name that vLLM gives it, and the name that carries it there."""

import re

_HTTP = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-45f0-85f0-[0-9a-f]{12}")
_OURS = re.compile(r"(\d+)-\d+-")
_OVER_HTTP = ("cmpl-", "chatcmpl-")


def http_request_id(number: int, serial: int) -> str:
    """The value of the header X-Request-Id for a request of up to 48 bits; `serial` tells repetitions apart.

    It has the form of a random UUID (version 4): some servers refuse a request that names itself
    otherwise.
    """
    return f"{number >> 16:08x}-{number & 0xFFFF:04x}-45f0-85f0-{serial & 0xFFFFFFFFFFFF:012x}"


def http_request_number(header: str) -> int | None:
    """The number in such a value; None for one that is not ours."""
    found = _HTTP.match(header)
    return int(found[1] + found[2], 16) if found is not None else None


def request_number(engine_id: str) -> int:
    """The number in an id as vLLM's engine (0.32) sees it; -1 for an id that is not ours.

    Three forms: `NUMBER-SERIAL-RANDOM` from our host process, and over HTTP, where vLLM wraps the
    header, `cmpl-HEADER-0-RANDOM` and `chatcmpl-HEADER-RANDOM`.
    """
    for prefix in _OVER_HTTP:
        if engine_id.startswith(prefix):
            number = http_request_number(engine_id.removeprefix(prefix))
            return -1 if number is None else number
    found = _OURS.match(engine_id)
    return int(found[1]) if found is not None else -1
