"""Qwen-Bailian anonymous usage traces: one JSON object a line, with blocks and with chats.

Fields and units: README of alibaba-edu/qwen-bailian-usagetraces-anon. A request names the one before it in
its chat; hash ids stand for 16 tokens, the last for as many as are left.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from workloads.traces.chats import Chats
from workloads.traces.column_names import keys_by_field
from workloads.traces.formats import BadRows
from workloads.traces.json_rows import MAX_IDS, decoded_lines, first_objects, renamed
from workloads.traces.mooncake import COLUMNS, HashedPiece, HashedRow
from workloads.traces.options import ReadOptions, TimeUnit
from workloads.traces.raw_rows import PIECE_ROWS, RawRows
from workloads.traces.tenant_numbers import TenantNumbers

KEYS = "chat_id, parent_chat_id, timestamp, input_length, output_length, type, turn, hash_ids"
BLOCK_SIZE = 16
ROOT = -1
"""The parent of a request that begins a chat."""
_COLUMNS = {**COLUMNS, "chat_id": "chat_id", "parent_chat_id": "parent_chat_id", "tenant": "type"}


class _Row(HashedRow, gc=False, kw_only=True):
    chat_id: int
    parent_chat_id: int = ROOT
    type: str | None = None


def sniff(head: bytes, path: Path) -> bool:
    """Objects with Bailian's ids of chats."""
    keys = {"chat_id", "timestamp", "input_length", "output_length"}
    return any(keys <= row.keys() for row in first_objects(head, most=1))


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order, in pieces. Sessions and turns follow the parents (see Chats), so that
    the turns of a session are a chain; the file's own `turn` is not needed. `type` is the tenant."""
    columns = keys_by_field(options.columns, _COLUMNS, "bailian")
    row_type: type[Any] = renamed(_Row, columns)
    decoder, unit = msgspec.json.Decoder(row_type), options.time_unit or "s"
    pieces = _Pieces(options.block_size or BLOCK_SIZE)
    for line, row in decoded_lines(path, decoder.decode, bad, expected=KEYS):
        try:
            pieces.add(line, row, unit)
        except ValueError as error:
            bad.add(line, str(error))
        if pieces.full:
            yield pieces.taken()
    if pieces.hashed.line:
        yield pieces.taken()


class _Pieces:
    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._tenants, self._chats = TenantNumbers(), Chats()
        self._begin()

    def _begin(self) -> None:
        self.hashed = HashedPiece(self._block_size)
        self._ids: list[int] = []
        self._parents: list[int] = []
        self._tenant: list[int] = []

    @property
    def full(self) -> bool:
        return len(self.hashed.line) == PIECE_ROWS or len(self.hashed.ids) >= MAX_IDS

    def add(self, line: int, row: _Row, unit: TimeUnit) -> None:
        """ValueError for a row that cannot be."""
        if not (0 <= row.chat_id < 2**63 and ROOT <= row.parent_chat_id < 2**63):
            raise ValueError("chat_id must be a number from 0 on, and parent_chat_id one of these or -1")
        tenant = self._tenants.number(row.type or "")
        self.hashed.add(line, row, unit)
        self._ids.append(row.chat_id)
        self._parents.append(row.parent_chat_id)
        self._tenant.append(tenant)

    def taken(self) -> RawRows:
        """The rows since the piece before."""
        session, turn = self._chats.place(np.array(self._ids, np.int64), np.array(self._parents, np.int64))
        piece = replace(self.hashed.rows(), session=session, turn=turn,
                        tenant=np.array(self._tenant, np.int64), tenant_names=self._tenants.names)
        self._begin()
        return piece
