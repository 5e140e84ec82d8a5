"""Request logs of vLLM and of OpenAI-style gateways: one JSON object a request, with a time and token counts.

A gateway writes its line when a request ends, so rows are sorted by their time; rows of one time stay in the
file's order. For that the times, lengths and line numbers of the whole file are in memory, 20 bytes a row
(28 with sessions, 2 more with tenants), and 8 more where rows have to be sorted.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from workloads.traces.column_names import keys_by_field
from workloads.traces.formats import BadRows
from workloads.traces.json_rows import decoded_lines, first_objects
from workloads.traces.key_paths import KeyPaths, Values
from workloads.traces.log_columns import NO_SESSION, LogColumns
from workloads.traces.log_times import LogTimes
from workloads.traces.options import ReadOptions, TimeUnit
from workloads.traces.raw_rows import RawRows
from workloads.traces.tenant_numbers import TenantNumbers

KEYS = "a time (such as timestamp) and usage with prompt_tokens and completion_tokens"
_USAGE = ("usage", "response.usage", "response.body.usage", "")
_PATHS: Mapping[str, tuple[str, ...]] = {
    # When a request began comes first; what may be the time at which it was logged, last.
    "timestamp": ("start_time", "startTime", "request_time", "arrival_time", "timestamp", "ts", "time",
                  "created", "created_at", "response.created", "response.created_at",
                  "response.body.created"),
    "input_len": tuple(f"{usage}.{key}".lstrip(".") for usage in _USAGE
                       for key in ("prompt_tokens", "input_tokens")),
    "output_len": tuple(f"{usage}.{key}".lstrip(".") for usage in _USAGE
                        for key in ("completion_tokens", "output_tokens")),
    "session": ("session_id", "sessionId", "conversation_id", "conversationId", "metadata.session_id"),
    "tenant": (),
    "status": ("status_code", "response.status_code", "status"),
    "error": ("error",),
    "success": ("success",),
}
"""Where each column is looked for, the first place first."""
_FAILED = frozenset({"failed", "failure", "error", "cancelled", "canceled", "timeout", "aborted", "rejected"})


def sniff(head: bytes, path: Path) -> bool:
    """Objects with a time and token counts in one of the usual places."""
    return any(all(any(_at(row, place) is not None for place in _PATHS[column])
                   for column in ("timestamp", "input_len", "output_len"))
               for row in first_objects(head, most=1))


def _at(row: Any, place: str) -> Any:
    for key in place.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    return row


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows by time, in pieces. Failed requests (an error, a status from 400 on or such as `failure`) are
    counted and left out. Sessions are told by an id; tenants only where `--column tenant=KEY` asks."""
    named = keys_by_field(options.columns, dict(zip(_PATHS, _PATHS, strict=True)), "request-log")
    fields = _Fields(named, options.time_unit)
    log = LogColumns(tenants="tenant" in options.columns)
    for line, row in decoded_lines(path, fields.decode, bad, expected=KEYS):
        if fields.failed(row):
            bad.count("failed")
            continue
        try:
            log.add(fields.time_ns(row), line, fields.tokens(row, "input_len"),
                    fields.tokens(row, "output_len"), fields.session(row), fields.tenant(row))
        except ValueError as error:
            bad.add(line, str(error))
    yield from log.by_time(fields.tenants)


class _Fields:
    """What the columns of a row are."""

    def __init__(self, named: Mapping[str, str], unit: TimeUnit | None) -> None:
        self._places = {column: (named[column],) if column in named else places
                        for column, places in _PATHS.items()}
        paths = {column: [tuple(place.split(".")) for place in places]
                 for column, places in self._places.items()}
        for column, place in named.items():   # the user's name may lead inwards, or have dots of its own
            paths[column].append((place,))
        self._keys = KeyPaths([path for column, those in paths.items() for path in those
                               if column != "timestamp"],
                              raw=paths["timestamp"])
        self.decode = self._keys.decode
        self.tenants = TenantNumbers()
        self._values = {column: self._keys.getter(those) for column, those in paths.items()}
        self._times = LogTimes(unit)
        self._time_paths = paths["timestamp"]
        self._time: Values | None = None

    def failed(self, row: Any) -> bool:
        """Whether the log says that the request failed."""
        status, error = self._first(row, "status"), self._first(row, "error")
        if isinstance(status, str):
            failed = status.lower() in _FAILED or (status.isdecimal() and len(status) == 3
                                                   and status >= "400")
        else:
            failed = isinstance(status, int) and status >= 400
        return failed or bool(error) or self._first(row, "success") is False

    def time_ns(self, row: Any) -> int:
        """Always from the same place; ValueError where there is no time that can be read."""
        if self._time is None:
            texts = map(_text, self._values["timestamp"](row))
            found = next((place for place, text in enumerate(texts) if text), None)
            if found is None:
                raise self._missing("timestamp", "no time")
            self._time = self._keys.getter([self._time_paths[found]])
        text = _text(self._time(row)[0])
        if not text:
            raise ValueError("no time where the rows before have it; see --column timestamp=KEY")
        return self._times.at_ns(text)

    def tokens(self, row: Any, column: str) -> int:
        """A length; ValueError where it is none."""
        value = self._first(row, column)
        if value is None:
            raise self._missing(column, f"no {column}")
        if type(value) is not int:
            raise ValueError(f"{column} is {str(value)[:40]!r}, not a whole number of tokens")
        return value

    def session(self, row: Any) -> int:
        """A number for the id of the row's session: 63 bits of its hash, as there may be millions."""
        value = self._first(row, "session")
        if value is None or value == "":
            return NO_SESSION
        digest = hashlib.blake2b(str(value).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def tenant(self, row: Any) -> int:
        """The number of the row's tenant; ValueError for one too many."""
        if not self._places["tenant"]:
            return 0
        value = self._first(row, "tenant")
        return self.tenants.number("" if value is None else str(value))

    def _first(self, row: Any, column: str) -> Any:
        for value in self._values[column](row):
            if value is not None:
                # The user may name a key as two columns, of which one is the time.
                return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
        return None

    def _missing(self, column: str, what: str) -> ValueError:
        places = ", ".join(self._places[column])
        return ValueError(f"{what}; expected one of the keys {places}, or --column {column}=KEY")


def _text(value: object) -> bytes:
    """JSON text; empty where there is none, or null."""
    text = bytes(value) if isinstance(value, msgspec.Raw) else b""
    return b"" if text == b"null" else text
