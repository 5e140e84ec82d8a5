"""Mooncake traces: one JSON object a line, with the ids of the blocks of its prompt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from workloads.prompt_parts import PromptBlocks
from workloads.traces.column_names import keys_by_field
from workloads.traces.formats import BadRows
from workloads.traces.json_rows import MAX_IDS, decoded_lines, first_objects, keys_of, renamed, time_in_ns
from workloads.traces.options import ReadOptions, TimeUnit
from workloads.traces.raw_rows import PIECE_ROWS, RawRows

KEYS = "timestamp, input_length, output_length, hash_ids"
BLOCK_SIZE = 512
COLUMNS = {"timestamp": "timestamp", "input_len": "input_length", "output_len": "output_length",
           "hash_ids": "hash_ids"}
"""The row's fields by the names that `--column` has for them."""


class HashedRow(msgspec.Struct, gc=False):
    """One line, with Mooncake's keys."""

    timestamp: msgspec.Raw
    input_length: int
    output_length: int
    hash_ids: list[int] = []


def sniff(head: bytes, path: Path) -> bool:
    """Objects of these keys, with about one hash id for every 512 tokens."""
    return block_size_of(head) == BLOCK_SIZE


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order, in pieces."""
    return hashed_rows(path, options, bad, options.block_size or BLOCK_SIZE, options.time_unit or "ms")


def hashed_rows(path: Path, options: ReadOptions, bad: BadRows, block_size: int,
                unit: TimeUnit) -> Iterator[RawRows]:
    """Rows with hash ids of blocks of so many tokens and timestamps of this unit. A row with more ids than
    its prompt has blocks is bad; where there are fewer, the rest of the prompt is nobody else's."""
    columns = keys_by_field(options.columns, COLUMNS, "mooncake")
    decoder = msgspec.json.Decoder(renamed(HashedRow, columns))
    piece = HashedPiece(block_size)
    for line, row in decoded_lines(path, decoder.decode, bad, expected=KEYS):
        try:
            piece.add(line, row, unit)   # type: ignore[arg-type]
        except ValueError as error:
            bad.add(line, str(error))
        if len(piece.line) == PIECE_ROWS or len(piece.ids) >= MAX_IDS:
            yield piece.rows()
            piece = HashedPiece(block_size)
    if piece.line:
        yield piece.rows()


class HashedPiece:
    """Rows with hash ids that are handed over together."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.line: list[int] = []
        self.ids: list[int] = []
        self._columns: tuple[list[int], ...] = ([], [], [], [])

    def add(self, line: int, row: HashedRow, unit: TimeUnit) -> None:
        """ValueError for a row that cannot be."""
        ids = row.hash_ids
        if len(ids) > -(-max(row.input_length, 1) // self._block_size):
            raise ValueError(f"{len(ids)} hash ids for a prompt of {row.input_length} tokens: blocks of "
                             f"{self._block_size} tokens cannot be right; see --block-size")
        at_ns = time_in_ns(bytes(row.timestamp), unit)
        if ids and not (min(ids) >= -2**63 and max(ids) < 2**64):
            raise ValueError("a hash id has more than 64 bits")
        if max(abs(row.input_length), abs(row.output_length)) >= 2**62:
            raise ValueError("a length is beyond what can be meant")
        for column, value in zip(self._columns, (at_ns, row.input_length, row.output_length, len(ids)),
                                 strict=True):
            column.append(value)
        self.line.append(line)
        self.ids += ids

    def rows(self) -> RawRows:
        """The rows added so far, as columns."""
        time_ns, input_len, output_len, counts = (np.array(c, dtype=np.int64) for c in self._columns)
        offset = np.concatenate([[0], np.cumsum(counts)])
        return RawRows(
            line=np.array(self.line, dtype=np.int64), time_ns=time_ns, input_len=input_len,
            output_len=output_len, blocks=PromptBlocks(self._block_size, keys_of(self.ids), offset))


def block_size_of(head: bytes) -> int | None:
    """Tokens of a block in a file that begins so: 512 or 16, where all its first rows agree with it and not
    with the other; None for other files."""
    objects = first_objects(head)
    if any("chat_id" in row for row in objects):
        return None
    # A bad row among them is for the reader to name.
    pairs: list[tuple[int, list[Any]]] = [
        (row["input_length"], row["hash_ids"]) for row in objects
        if isinstance(row.get("input_length"), int) and isinstance(row.get("hash_ids"), list)
        and row["input_length"] > 0]
    fitting = [size for size in (BLOCK_SIZE, 16)
               if all(len(ids) == -(-length // size) for length, ids in pairs if ids)]
    return fitting[0] if len(fitting) == 1 else None
