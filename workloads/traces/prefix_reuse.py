"""How much of each prompt an endless prefix cache would hold already."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from workloads.prompt_parts import PromptBlocks
from workloads.traces.seen_keys import SeenKeys
from workloads.traces.trace import Trace

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_KEYS_AT_ONCE = 1 << 20
"""This bounds the memory where rows have hundreds of blocks."""


class PrefixReuse:
    """Prompt tokens that stood at the beginning of an earlier prompt, by the same rules as
    `Plan.prompt_parts`: of a row with blocks, its leading blocks that earlier rows had; else of a later turn
    the prompt and the answer of the turn before; else the prefix of its group, once a row had it.

    The cache forgets nothing, and an answer is in it when the next row comes: an upper bound for any server.
    Blocks are told by their keys, which in published traces name a block and all that stands before it;
    where a key names only the tokens of its block, a server finds less.
    """

    def __init__(self) -> None:
        self.known = False
        """Whether any row said what it shares."""
        self.num_blocks = self.hit_blocks = 0
        self.block_size: int | None = None
        self.session_rows = 0
        self._rows = 0
        self._seen = SeenKeys()
        self._whole = np.zeros(0, np.int64)
        """Prompt and answer of the last row of each session; 0 where none came."""
        self._counted_session = np.zeros(0, np.int64)
        """1 for each session that had a row since the counts began."""
        self._cached_prefix = np.zeros(0, np.int64)
        """Tokens of each group's prefix that came."""

    def add(self, piece: Trace) -> Int64:
        """Tokens of each prompt that came before, shape (len(piece),); pieces in the order of the trace."""
        before = self._before(piece)
        length = piece.input_len.astype(np.int64)
        reused = np.where(before > 0, np.minimum(before, length - 1), 0)
        first = before == 0
        if piece.blocks is not None:
            hits = self._hits(piece.blocks)
            with_blocks = np.diff(piece.blocks.offset) > 0
            reused[with_blocks] = np.minimum(hits * piece.blocks.size, length)[with_blocks]
            first &= ~with_blocks
        grouped = np.flatnonzero(first & (piece.prefix_group >= 0)
                                 & (piece.prefix_group < len(piece.prefix_lens)))
        if len(grouped):
            reused[grouped] = self._prefixes(piece, grouped)
        self._rows += len(piece)
        return reused

    def forget_counts(self) -> None:
        """Count anew, without forgetting what came: for rows that only fill the cache."""
        self.num_blocks = self.hit_blocks = self.session_rows = 0
        self._counted_session[:] = 0

    @property
    def num_sessions(self) -> int:
        """Sessions that had a row."""
        return int(self._counted_session.sum())

    def _before(self, piece: Trace) -> Int64:
        """Prompt and answer of the turn before; 0 where there is none."""
        before = np.zeros(len(piece), np.int64)
        rows = np.flatnonzero(piece.session >= 0)
        if not len(rows):
            return before
        self.known = True
        order = rows[np.argsort(piece.session[rows], kind="stable")]
        session = piece.session[order]
        self._whole = _with_room(self._whole, int(session[-1]))
        follows = np.flatnonzero(session[1:] == session[:-1]) + 1
        whole = piece.input_len[order].astype(np.int64) + piece.output_len[order]
        before[order] = self._whole[session]
        before[order[follows]] = whole[follows - 1]
        self._counted_session = _with_room(self._counted_session, int(session[-1]))
        self._counted_session[session] = 1
        self.session_rows += len(rows)
        self._whole[session] = whole   # of equal places the last one written stays
        return before

    def _hits(self, blocks: PromptBlocks) -> Int64:
        """Leading blocks of each row that earlier rows had."""
        self.known, self.block_size = True, blocks.size
        hits = np.zeros(len(blocks), np.int64)
        for rows in _slices(blocks.offset):
            begin, end = int(blocks.offset[rows.start]), int(blocks.offset[rows.stop])
            counts = np.diff(blocks.offset[rows.start:rows.stop + 1])
            row = np.repeat(np.arange(rows.start, rows.stop) + self._rows, counts)
            came_before = self._seen.add(blocks.keys[begin:end], row)
            missing = np.append(np.flatnonzero(~came_before), end - begin)
            starts = blocks.offset[rows.start:rows.stop] - begin
            next_missing = missing[np.searchsorted(missing, starts)]
            hits[rows.start:rows.stop] = np.minimum(next_missing - starts, counts)
        self.num_blocks += len(blocks.keys)
        self.hit_blocks += int(hits.sum())
        return hits

    def _prefixes(self, piece: Trace, rows: Int64) -> Int64:
        """Of rows that begin with the prefix of their group, how much of it came."""
        self.known = True
        order = rows[np.argsort(piece.prefix_group[rows], kind="stable")]
        group = piece.prefix_group[order].astype(np.int64)
        self._cached_prefix = _with_room(self._cached_prefix, int(group[-1]))
        shared = np.minimum(piece.prefix_lens[group], piece.input_len[order]).astype(np.int64)
        # The longest so far within each group: groups ascend, so a term for the group keeps them apart.
        apart = group << 32
        longest = np.maximum.accumulate(np.maximum(shared, self._cached_prefix[group]) + apart) - apart
        came = self._cached_prefix[group]
        follows = np.flatnonzero(group[1:] == group[:-1]) + 1
        came[follows] = longest[follows - 1]
        self._cached_prefix[group] = longest
        reused = np.zeros(len(piece), np.int64)
        reused[order] = np.minimum(shared, came)
        return reused[rows]


def _slices(offset: Int64) -> Iterator[range]:
    """All rows, as many at once as have a bounded number of keys together, and at least one."""
    begin, rows = 0, len(offset) - 1
    while begin < rows:
        end = int(np.searchsorted(offset, offset[begin] + _KEYS_AT_ONCE, side="right")) - 1
        end = max(begin + 1, min(end, rows))
        yield range(begin, end)
        begin = end


def _with_room(values: Int64, largest: int) -> Int64:
    if largest < len(values):
        return values
    grown = np.zeros(max(2 * len(values), largest + 1), np.int64)
    grown[:len(values)] = values
    return grown
