"""Which blocks of its prompts an engine's prefix cache could find again, worked out from the plan alone."""

from collections.abc import Iterator

import numpy as np

from workloads.plan import Plan
from workloads.prompt_parts import GOLDEN, Int64, Part, PromptBlocks, UInt64, mixed

_AT_ONCE = 1 << 20
"""Blocks that are worked on at once: this bounds the memory."""
_NOTHING = np.uint64(0)


def shared_blocks(plan: Plan, block_size: int) -> PromptBlocks:
    """The prompts of `plan` in blocks of `block_size` tokens, whatever the size of the plan's own blocks.

    Equal keys stand for equal blocks with equal tokens before them; they are hashes of 63 bits, at least
    0. A row has a key for each of its full blocks but the last ones that no other row can have. Where a
    later turn repeats the prompt and the answer of a row, the blocks of the answer follow.
    """
    return _Chains(plan).blocks(block_size)


def found_again(plan: Plan, block_size: int) -> Int64:
    """Prompt tokens of each row, shape (rows,), that a prefix cache which starts empty and never forgets
    finds when each row is sent after all rows before it have ended.

    By the rules of vLLM 0.32: it finds whole blocks; the last token of a prompt is always computed, that
    of an answer never.
    """
    blocks = shared_blocks(plan, block_size)
    counts = np.diff(blocks.offset)
    owner, place = np.repeat(np.arange(len(plan), dtype=np.int32), counts), _ramps(counts)
    input_len = plan.input_len.astype(np.int64)
    cached = place < ((input_len + plan.output_len - 1) // block_size)[owner]
    distinct, number = np.unique(blocks.keys, return_inverse=True)
    first_owner = np.full(len(distinct), len(plan), dtype=np.int32)
    first_owner[number[cached][::-1]] = owner[cached][::-1]   # of equal numbers the last one written stays
    sought = place < ((input_len - 1) // block_size)[owner]
    found = sought & (first_owner[number] < owner)
    return np.bincount(owner[found], minlength=len(plan)) * block_size


class _Chains:
    """The parts of all prompts of a plan (see Plan.prompt_parts), as sums.

    What stands before a token is told by the sum, over the parts that began before it, of a hash of each
    and of the place where it began. So no prompt is spelt out.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._length = plan.input_len.astype(np.int64)
        self._keys = np.zeros(len(plan), np.int64) if plan.blocks is None else np.diff(plan.blocks.offset)
        self._before = np.where(self._keys > 0, -1, plan.predecessor).astype(np.int64)
        """The row whose prompt and answer a row repeats; -1 for none."""
        later = self._before >= 0
        whole = self._length + plan.output_len
        own_from = self._shared_at_start()
        own_from[later] = np.minimum(whole[self._before[later]], self._length[later] - 1)
        self._own_from = own_from
        """Where the part of its own begins; the length of the prompt where there is none."""
        self._next = np.full(len(plan), -1)
        self._next[self._before[later]] = np.flatnonzero(later)
        self._ends = np.where(self._next >= 0, whole, own_from)
        """How far each row is looked at."""
        rows, groups = np.arange(len(plan)), plan.prefix_group.astype(np.int64)
        self._own = np.where(own_from < self._length, _hashed(Part.OWN, rows, own_from), _NOTHING)
        self._answer = _hashed(Part.ANSWER, rows, self._length)
        self._prefix = np.where(self._keys > 0, _NOTHING, _hashed(Part.PREFIX, groups, 0 * rows))
        self._block_sums = np.zeros(1, np.uint64)
        if plan.blocks is not None:
            starts = _ramps(self._keys) * plan.blocks.size
            hashes = _hashed(Part.BLOCK, plan.blocks.keys, starts)
            self._block_sums = np.concatenate([self._block_sums, np.cumsum(hashes)])
        self._base = np.zeros(len(plan), np.uint64)
        """The sum at `_own_from`."""
        for level in self._levels():
            self._base[level] = self._sum_at_start(level)

    def _shared_at_start(self) -> Int64:
        """Tokens of blocks of the plan, or of the prefix of a group."""
        plan = self._plan
        tokens = np.zeros(len(plan), np.int64)
        grouped = (plan.prefix_group >= 0) & (plan.prefix_group < len(plan.prefix_lens))
        tokens[grouped] = plan.prefix_lens[plan.prefix_group[grouped]]
        if plan.blocks is not None:
            tokens = np.where(self._keys > 0, self._keys * plan.blocks.size, tokens)
        return np.minimum(tokens, self._length)

    def _levels(self) -> Iterator[Int64]:
        """The rows that begin anew, then those that repeat these, and so on."""
        level = np.flatnonzero(self._before < 0)
        while len(level):
            yield level
            level = self._next[level]
            level = level[level >= 0]

    def _sum_at_start(self, rows: Int64) -> UInt64:
        tokens = self._own_from[rows]
        if self._before[rows[0]] < 0:
            return self._first_sum(rows, tokens)
        at = self._before[rows]
        # A later turn whose prompt is shorter than what it repeats: the part that is cut may be an early one.
        while (early := (tokens < self._own_from[at]) & (self._before[at] >= 0)).any():
            at[early] = self._before[at[early]]
        sums: UInt64 = (self._base[at] + np.where(tokens > self._own_from[at], self._own[at], _NOTHING)
                        + np.where(tokens > self._length[at], self._answer[at], _NOTHING))
        early = tokens < self._own_from[at]
        sums[early] = self._first_sum(at[early], tokens[early])
        return sums

    def _first_sum(self, rows: Int64, tokens: Int64) -> UInt64:
        """The sum of rows that begin anew, at so many `tokens`, before their own part."""
        plan = self._plan
        sums: UInt64 = np.where(tokens > 0, self._prefix[rows], _NOTHING)
        sums[self._own_from[rows] == 0] = 0
        if plan.blocks is not None:
            start = plan.blocks.offset[rows]
            begun = np.minimum(-(-tokens // plan.blocks.size), self._keys[rows])
            sums += self._block_sums[start + begun] - self._block_sums[start]
        return sums

    def blocks(self, size: int) -> PromptBlocks:
        """See `shared_blocks`."""
        counts = self._ends // size
        offset = np.concatenate([[0], np.cumsum(counts)])
        keys = np.zeros(offset[-1], np.int64)
        for level in self._levels():
            repeats = self._before[level[0]] >= 0
            known = self._own_from // size if repeats else 0 * counts
            for rows in _pieces(level[counts[level] > 0], counts):
                if repeats:
                    keys[_places(offset[rows], known[rows])] = keys[
                        _places(offset[self._before[rows]], known[rows])]
                first, more = known[rows], counts[rows] - known[rows]
                place = _places(first, more)
                keys[_places(offset[rows] + first, more)] = self._keys_at(
                    np.repeat(rows, more), place, size)
        return PromptBlocks(size, keys, offset)

    def _keys_at(self, rows: Int64, place: Int64, size: int) -> Int64:
        """The keys of the blocks at these places, which hold nothing that another row's keys tell."""
        ends = (place + 1) * size
        sums = self._base[rows]
        if self._plan.blocks is not None:
            first = (self._keys[rows] > 0) & (ends < self._own_from[rows])
            sums[first] = self._first_sum(rows[first], ends[first])
        sums += np.where(ends > self._own_from[rows], self._own[rows], _NOTHING)
        sums += np.where(ends > self._length[rows], self._answer[rows], _NOTHING)
        numbered = mixed(sums + ends.astype(np.uint64) * GOLDEN)
        return (numbered >> np.uint64(1)).astype(np.int64)


def _hashed(kind: Part, numbers: Int64, starts: Int64) -> UInt64:
    """Of parts that begin at `starts`."""
    of_part = mixed(numbers.astype(np.uint64) ^ mixed(np.full(1, kind, np.uint64)))
    return mixed(of_part + starts.astype(np.uint64) * GOLDEN)


def _pieces(rows: Int64, counts: Int64) -> Iterator[Int64]:
    """`rows` in pieces of about as many blocks as are worked on at once."""
    if len(rows):
        number = np.cumsum(counts[rows]) // _AT_ONCE
        yield from np.split(rows, np.flatnonzero(np.diff(number)) + 1)


def _ramps(counts: Int64) -> Int64:
    """0, 1, 2 … for each count, after one another."""
    return _places(0 * counts, counts)


def _places(starts: Int64, counts: Int64) -> Int64:
    """`counts` numbers from each start on, after one another."""
    places: Int64 = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return places
