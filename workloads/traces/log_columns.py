"""The rows of a log in compact columns, to be sorted by time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.traces.raw_rows import PIECE_ROWS, RawRows
from workloads.traces.tenant_numbers import TenantNumbers

NO_SESSION = -1
_LONGEST = 2**31
_TYPES = {"time_ns": "<i8", "line": "<i4", "input_len": "<i4", "output_len": "<i4", "session": "<i8",
          "tenant": "<i2"}


class LogColumns:
    """Rows in the file's order, until `by_time` hands them over by time."""

    def __init__(self, *, tenants: bool) -> None:
        """`tenants` says whether the tenants are to be kept."""
        self._kept = ["time_ns", "line", "input_len", "output_len", *(["tenant"] if tenants else [])]
        self._pieces: dict[str, list[npt.NDArray[np.signedinteger]]] = {name: [] for name in _TYPES}
        self._rows: list[tuple[int, ...]] = []
        self._sessions = False

    def add(self, time_ns: int, line: int, input_len: int, output_len: int, session: int,
            tenant: int) -> None:
        """One row; ValueError for a length that cannot be meant."""
        if not (-_LONGEST < input_len < _LONGEST and -_LONGEST < output_len < _LONGEST):
            raise ValueError("a length is beyond what can be meant")
        self._sessions |= session != NO_SESSION
        self._rows.append((time_ns, line, input_len, output_len, session, tenant))
        if len(self._rows) == PIECE_ROWS:
            self._pack()

    def by_time(self, tenants: TenantNumbers) -> Iterator[RawRows]:
        """All rows by time, those of one time in the file's order, in pieces. To be called once."""
        self._pack()
        time_ns = self._joined("time_ns")
        order = np.argsort(time_ns, kind="stable") if np.any(np.diff(time_ns) < 0) else None
        names = [name for name in self._kept if name != "time_ns"] + ["session"] * self._sessions
        columns: dict[str, Any] = {"time_ns": time_ns, **{name: self._joined(name) for name in names}}
        for begin in range(0, len(time_ns), PIECE_ROWS):
            piece = slice(begin, begin + PIECE_ROWS)
            rows = piece if order is None else order[piece]
            yield RawRows(tenant_names=tenants.names,
                          **{name: column[rows].astype(np.int64) for name, column in columns.items()})

    def _pack(self) -> None:
        whole = np.array(self._rows, dtype=np.int64).reshape(-1, len(_TYPES)).T
        self._rows = []
        for name, column in zip(_TYPES, whole, strict=True):
            if name in self._kept:
                self._pieces[name].append(column.astype(_TYPES[name]))
            elif name == "session":
                some = bool(np.any(column != NO_SESSION))
                self._pieces[name].append(
                    column.copy() if some else np.broadcast_to(np.int64(NO_SESSION), column.shape))

    def _joined(self, name: str) -> npt.NDArray[np.signedinteger]:
        pieces = self._pieces.pop(name)
        joined: npt.NDArray[np.signedinteger] = np.concatenate(pieces)
        return joined
