"""What a format's reader hands over: rows as they stand in the file, in its order."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from workloads.prompt_parts import PromptBlocks

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

PIECE_ROWS = 1 << 17
"""So many rows, or fewer, are handed over at once: what bounds the memory of a streamed file."""


@dataclass(slots=True, eq=False, kw_only=True)
class RawRows:
    """Rows that could be parsed, unjudged: lengths may be 0 or negative, times may run backwards.

    Columns are shape (rows,). Rows that could not be parsed never come here: the reader reports them
    with `BadRows.add`, which raises or counts as the user asked.
    """

    line: Int64
    """Line of the file on which each row begins, from 1, the header included."""
    input_len: Int64
    output_len: Int64
    time_ns: Int64 | None = None
    """On the file's own clock; None for a format without times."""
    failed: Bool | None = None
    """Rows that the format itself marks as failed requests; left out and counted as `failed`."""
    tenant: Int64 | None = None
    """Index into the reader's growing `tenant_names`."""
    session: Int64 | None = None
    """Any number for each conversation, -1 for none."""
    turn: Int64 | None = None
    think_ns: Int64 | None = None
    prefix_group: Int64 | None = None
    """Any number for each group, -1 for none."""
    prefix_len: Int64 | None = None
    """Tokens of the group's prefix; the first row of a group counts."""
    blocks: PromptBlocks | None = None
    tenant_names: tuple[str, ...] = field(default=("",))

    def __len__(self) -> int:
        return len(self.line)
