"""What prompts are made of: parts that several requests share, and parts of their own.

A prompt is a row of parts. Parts of equal kind and number begin with equal tokens, whichever
prompt they stand in; all other tokens differ. What two prompts share is therefore decided by their
parts alone, before there is a vocabulary.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
UInt64 = npt.NDArray[np.uint64]

_SPECIAL_IDS = 10   # tokenizers keep their special tokens at the lowest ids
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Part(IntEnum):
    """Where the tokens of a part come from, and what its number counts."""

    OWN = 0
    """New with this request; the number is its row in the plan."""
    ANSWER = 1
    """The answer to an earlier turn; the number is that turn's row."""
    PREFIX = 2
    """The shared prefix of a group; the number is the group."""
    BLOCK = 3
    """A block of a trace; the number is the block's key."""


class PromptParts(NamedTuple):
    """The parts of one prompt in order, shape (parts,) each; the lengths add up to the prompt's."""

    kind: Int8
    """Codes of Part."""
    number: Int64
    length: Int32
    """Tokens of each part, at least 1."""

    def cut(self, tokens: int) -> "PromptParts":
        """The parts of the first `tokens` tokens."""
        ends = np.cumsum(self.length, dtype=np.int64)
        kept = int(np.searchsorted(ends, tokens)) + 1 if tokens else 0
        lengths = self.length[:kept].copy()
        if kept and len(lengths) == kept and ends[kept - 1] > tokens:
            lengths[-1] -= ends[kept - 1] - tokens
        return PromptParts(self.kind[:kept], self.number[:kept], lengths)

    def then(self, kind: Part, number: int, length: int) -> "PromptParts":
        """These parts and one more; itself where that one is empty."""
        if length <= 0:
            return self
        return PromptParts(np.append(self.kind, np.int8(kind)), np.append(self.number, np.int64(number)),
                           np.append(self.length, np.int32(length)))


NO_PARTS = PromptParts(np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class PromptBlocks:
    """Blocks of the prompts of a trace or plan, as hash ids describe them: equal keys, equal tokens.

    ValueError where the offsets do not fit the keys, or the size is below 1.
    """

    size: int
    """Tokens of a block; the last block of a prompt may be cut short by its length."""
    keys: Int64
    """The keys of all rows after one another, any 64-bit numbers."""
    offset: Int64
    """Shape (rows + 1,): the keys of row i are `keys[offset[i]:offset[i + 1]]`."""

    def __post_init__(self) -> None:
        for name in ("keys", "offset"):
            column = np.array(getattr(self, name), dtype="<i8")
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        if self.size < 1:
            raise ValueError("a block has at least 1 token")
        if not (len(self.offset) and self.offset[0] == 0 and self.offset[-1] == len(self.keys)
                and np.all(np.diff(self.offset) >= 0)):
            raise ValueError("the offsets of the blocks do not fit their keys")

    def __len__(self) -> int:
        return len(self.offset) - 1

    def of(self, row: int) -> Int64:
        """The keys of one row, in order."""
        return self.keys[self.offset[row]:self.offset[row + 1]]

    def take(self, rows: npt.NDArray[np.integer]) -> Self:
        """The blocks of these rows, in this order."""
        counts = np.diff(self.offset)[rows]
        offset = np.concatenate([[0], np.cumsum(counts)])
        positions = np.arange(offset[-1]) + np.repeat(self.offset[:-1][rows] - offset[:-1], counts)
        return type(self)(self.size, self.keys[positions], offset)


def part_tokens(parts: PromptParts, *, seed: int, salt: bytes | str, vocab_size: int,
                answers: Mapping[int, Sequence[int]] | None = None) -> Int64:
    """The token ids of a prompt, shape (tokens,), in 10 .. vocab_size - 1.

    They depend on seed, salt and the parts alone. Ids below 10 are left out because tokenizers keep
    special tokens there; of a vocabulary of fewer than 20 the upper half is used. `answers` holds
    what the engine really answered, by row; an answer that is not in it, or the missing rest of a
    shorter one, is made up like everything else.
    """
    if vocab_size < 1:
        raise UsageError(f"the vocabulary must have at least 1 token; got {vocab_size}")
    salt_bytes = salt.encode() if isinstance(salt, str) else salt
    lowest = min(_SPECIAL_IDS, vocab_size // 2)
    if len(parts.kind) == 1 and parts.kind[0] == Part.OWN:   # by far the most frequent prompt
        return _drawn(f"{seed}:{parts.number[0]}:", salt_bytes, int(parts.length[0]), lowest, vocab_size)
    ids = np.empty(int(parts.length.sum()), dtype=np.int64)
    ends = np.cumsum(parts.length, dtype=np.int64)
    blocks = parts.kind == Part.BLOCK
    if blocks.any():
        lengths = parts.length[blocks].astype(np.int64)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = within + np.repeat(ends[blocks] - lengths, lengths)
        ids[places] = _block_tokens(np.repeat(parts.number[blocks], lengths), within, seed, salt_bytes,
                                    lowest, vocab_size)
    for at in np.flatnonzero(~blocks).tolist():
        kind, number, length = Part(int(parts.kind[at])), int(parts.number[at]), int(parts.length[at])
        label = {Part.OWN: "", Part.ANSWER: "answer:", Part.PREFIX: "prefix:"}[kind]
        drawn = _drawn(f"{seed}:{label}{number}:", salt_bytes, length, lowest, vocab_size)
        if kind is Part.ANSWER and answers is not None and (real := answers.get(number)) is not None:
            known = np.asarray(real[:length], dtype=np.int64)
            drawn[:len(known)] = known
        ids[ends[at] - length:ends[at]] = drawn
    return ids


class Origin(IntEnum):
    """For what keys are told apart that would be equal otherwise."""

    TRACE = 1
    """Which of several traces a block is of."""
    PIECE = 2
    """Which piece of a larger block it is."""
    ROUND = 3
    """For the how manieth time the trace is played."""


def mixed64(values: Int64, origin: Origin, number: int) -> Int64:
    """Other 64-bit numbers for `values`, equal for equal ones; unrelated for every origin and `number`, of
    which 0 leaves them as they are."""
    if number == 0:
        return values
    salt = mixed(np.array([origin << 32 | number], dtype=np.uint64))
    return mixed(values.astype(np.uint64) ^ salt).astype(np.int64)


def _drawn(label: str, salt: bytes, count: int, lowest: int, vocab_size: int) -> Int64:
    key = hashlib.sha256(label.encode() + salt).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
    return rng.integers(lowest, vocab_size, size=count)


def _block_tokens(keys: Int64, within: Int64, seed: int, salt: bytes, lowest: int, vocab_size: int) -> Int64:
    # Counter-based, as blocks of 16 tokens are too many for a generator each.
    base = np.uint64(int.from_bytes(hashlib.sha256(f"{seed}:block:".encode() + salt).digest()[:8], "little"))
    of_key = mixed(keys.astype(np.uint64) ^ base)
    drawn = mixed(of_key + within.astype(np.uint64) * GOLDEN)
    return (drawn % np.uint64(vocab_size - lowest)).astype(np.int64) + lowest


def mixed(values: UInt64) -> UInt64:
    """The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable generators, OOPSLA'14)."""
    values = (values + GOLDEN).astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
