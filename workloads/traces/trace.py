"""A trace: requests that somebody recorded, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from workloads.prompt_parts import PromptBlocks

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int16 = npt.NDArray[np.int16]
Float64 = npt.NDArray[np.float64]

_DEFAULTS: dict[str, tuple[str, int]] = {
    "tenant": ("<i2", 0), "session": ("<i4", -1), "turn": ("<i4", 0), "think_ns": ("<i8", 0),
    "prefix_group": ("<i4", -1),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trace:
    """One row per request in order of arrival; columns are shape (len(trace),). Also a piece of a trace,
    as readers hand it over while they stream. ValueError when columns contradict one another.
    """

    arrival_ns: Int64
    """Nanoseconds from the first row of the trace, never decreasing; shape (0,) where the trace has no
    times (see `timed`)."""
    input_len: Int32
    """Tokens of the whole prompt, at least 1: of a later turn the history is part of it."""
    output_len: Int32
    """Tokens of the answer, at least 1."""
    tenant: Int16 = field(default_factory=lambda: np.zeros(0, np.int16))
    """Index into `tenant_names`; left out: 0."""
    session: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """Conversation of the request; -1, and left out, is none."""
    turn: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """Number of the turn, rising within a session; left out: 0."""
    think_ns: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Time between the end of the turn before and this one; left out: 0."""
    prefix_group: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """Requests of one group share a prefix; -1, and left out, is none."""
    prefix_lens: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """Tokens of the shared prefix, by group."""
    blocks: PromptBlocks | None = None
    """What the prompts share, block by block; None where the trace does not say."""
    tenant_names: tuple[str, ...] = ("",)
    name: str = ""
    """For people: the file's name."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Rows that were left out, by reason in words, such as `failed` or `too long`."""
    clipped: int = 0
    """Rows whose lengths were cut to fit."""

    def __post_init__(self) -> None:
        for name, dtype in (("arrival_ns", "<i8"), ("input_len", "<i4"), ("output_len", "<i4")):
            object.__setattr__(self, name, _whole(name, getattr(self, name), dtype))
        for name, (dtype, default) in _DEFAULTS.items():
            column = _whole(name, getattr(self, name), dtype)
            object.__setattr__(self, name, column if len(column) else np.full(len(self), default, dtype))
        object.__setattr__(self, "prefix_lens", np.asarray(self.prefix_lens, dtype="<i4"))
        if any(len(getattr(self, name)) != len(self) for name in ("output_len", *_DEFAULTS)):
            raise ValueError("the columns of a trace have one row a request")
        if len(self.arrival_ns) not in (0, len(self)) or (self.blocks and len(self.blocks) != len(self)):
            raise ValueError("arrival_ns and blocks have one row a request, or are left out")
        if len(self) and min(self.input_len.min(), self.output_len.min()) < 1:
            raise ValueError("input_len and output_len must be at least 1")
        if np.any(np.diff(self.arrival_ns) < 0):
            raise ValueError("arrival_ns must never decrease")

    def __len__(self) -> int:
        return len(self.input_len)

    @property
    def timed(self) -> bool:
        """Whether the trace says when its requests came."""
        return len(self.arrival_ns) == len(self) and len(self) > 0

    @property
    def span_ns(self) -> int | None:
        """From the first to the last arrival; None without times."""
        return int(self.arrival_ns[-1] - self.arrival_ns[0]) if self.timed else None

    @property
    def rate_rps(self) -> float | None:
        """Requests per second, rows over span; None without times or where all came at once."""
        return len(self) / (self.span_ns / 1e9) if self.span_ns else None

    @property
    def left_out(self) -> str:
        """Which rows of the file are missing or changed, in one sentence; "" where none is."""
        reasons = ", ".join(f"{count} {why}" for why, count in self.rejected.items() if count)
        clipped = f"{self.clipped} requests were cut to fit" if self.clipped else ""
        missing = f"{sum(self.rejected.values())} rows were left out ({reasons})" if reasons else ""
        told = " and ".join(filter(None, (missing, clipped)))
        return f"of the trace {self.name} {told}" if told else ""

    def facts(self) -> dict[str, Any]:
        """What a run must know of the trace that it replays, JSON-able."""
        return {"name": self.name, "rows": len(self), "rejected": dict(self.rejected),
                "clipped": self.clipped}

    def take(self, rows: npt.NDArray[np.integer]) -> Self:
        """These rows, in this order (ascending, or arrival times would run backwards)."""
        columns = {name: getattr(self, name)[rows] for name in ("input_len", "output_len", *_DEFAULTS)}
        return replace(self, **columns, arrival_ns=self.arrival_ns[rows] if self.timed else self.arrival_ns,
                       blocks=None if self.blocks is None else self.blocks.take(rows))

    def of_used_tenants(self) -> Self:
        """The same without tenants that have no request."""
        used = np.unique(self.tenant)
        if len(used) == len(self.tenant_names):
            return self
        return replace(self, tenant=np.searchsorted(used, self.tenant).astype(np.int16),
                       tenant_names=tuple(self.tenant_names[number] for number in used.tolist()))

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Pieces of one trace after one another; names and counts are those of the last."""
        if len(pieces) == 1:
            return pieces[0]
        columns = {f.name: np.concatenate([getattr(piece, f.name) for piece in pieces]) for f in fields(cls)
                   if f.name in ("arrival_ns", "input_len", "output_len", *_DEFAULTS)}
        blocks = [piece.blocks for piece in pieces if piece.blocks is not None]
        joined_blocks = None
        if blocks:
            if len(blocks) != len(pieces):
                raise ValueError("some pieces have blocks and some have none")
            ends = np.cumsum([0, *(len(b.keys) for b in blocks)])
            offset = np.concatenate([[0], *(b.offset[1:] + e for b, e in zip(blocks, ends, strict=False))])
            joined_blocks = PromptBlocks(blocks[0].size, np.concatenate([b.keys for b in blocks]), offset)
        return replace(pieces[-1], **columns, blocks=joined_blocks)


def component_names(trace: Trace) -> tuple[str, ...]:
    """A name for each of the trace's tenants."""
    return tuple(name or "trace" for name in trace.tenant_names)


def _whole(name: str, column: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """`column` as these whole numbers; ValueError where they would be others."""
    found = np.asarray(column)
    limits = np.iinfo(dtype)
    if len(found) and not (limits.min <= found.min() and found.max() <= limits.max):
        raise ValueError(f"{name} holds numbers beyond {limits.bits} bits")
    return found.astype(dtype, copy=False)
