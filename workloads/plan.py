"""A plan: every request of a run, decided before it starts."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError
from workloads.prompt_parts import NO_PARTS, Part, PromptBlocks, PromptParts, part_tokens
from workloads.stages import Stage

_COLUMNS: dict[str, str] = {   # little-endian on every machine, in the order they are stored
    "intended_ns": "<i8",
    "input_len": "<i4",
    "output_len": "<i4",
    "component": "<i2",
    "prefix_group": "<i4",
    "session": "<i4",
    "turn": "<i4",
}
_LATER_COLUMNS: dict[str, str] = {"stage": "<i2", "think_ns": "<i8"}
"""Stored where they say something: a plan without them keeps its bytes, and its digest."""
_KNOWN_COLUMNS = _COLUMNS | _LATER_COLUMNS
_ARRAYS: dict[str, str] = {"prefix_lens": "<i4", "block_keys": "<i8", "block_offset": "<i8"}
_MAGIC = b"stallfree-plan 1\n"
_SIZE_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Plan:
    """One row per request, in order of sending. The columns are read-only arrays, shape (len(plan),).

    ValueError when columns differ in length or hold what no plan can.
    """

    intended_ns: npt.NDArray[np.int64]
    """When to send, from the start of the run; never decreasing."""
    input_len: npt.NDArray[np.int32]
    """Prompt tokens."""
    output_len: npt.NDArray[np.int32]
    """Tokens to generate."""
    component: npt.NDArray[np.int16]
    """Index into `component_names`."""
    prefix_group: npt.NDArray[np.int32]
    """Requests of one group share a prefix of `prefix_lens[group]` tokens; -1 is none."""
    session: npt.NDArray[np.int32]
    """Conversation that the request belongs to; -1 is none."""
    turn: npt.NDArray[np.int32]
    """Number of the turn in its session, from 0."""
    num_warmups: int
    """So many rows at the start are warm-up and left out of every statistic."""
    seed: int
    rate_rps: float
    """Offered rate in requests per second, with stages the mean over them; infinity sends all at once."""
    component_names: tuple[str, ...]
    stages: tuple[Stage, ...] = ()
    """What the rate did over time after the warm-up; empty for one rate throughout."""
    stage: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, dtype=np.int16))
    """Index into `stages`, 0 for the warm-up before them; all 0, and may be left out, without stages."""
    think_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """From the end of the turn before to this one. A later turn is sent so much after that end, or at its
    intended time if that is later; left out: 0."""
    prefix_lens: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """Tokens of the prefix that a group shares, by group; left out: groups share nothing."""
    blocks: PromptBlocks | None = None
    """What the prompts of a trace share; None where nothing is known."""
    component_tenants: tuple[str, ...] = ()
    """The tenant of each component, "" for none; empty where there are no tenants."""
    predecessor: npt.NDArray[np.int32] = field(init=False)
    """Row of the turn before in the same session; -1 where this plan has none."""

    def __post_init__(self) -> None:
        if not (self.stages or len(self.stage)):
            object.__setattr__(self, "stage", np.zeros(len(self)))
        if not len(self.think_ns):
            object.__setattr__(self, "think_ns", np.zeros(len(self)))
        for name, dtype in (_COLUMNS | _LATER_COLUMNS).items():
            column = np.array(getattr(self, name), dtype=dtype)   # a copy, so that nobody can write to it
            column.setflags(write=False)
            object.__setattr__(self, name, column)
            if column.shape != (len(self),):
                raise ValueError(f"column {name} has shape {column.shape}, not ({len(self)},)")
        object.__setattr__(self, "prefix_lens", np.array(self.prefix_lens, dtype="<i4"))
        self.prefix_lens.setflags(write=False)
        object.__setattr__(self, "predecessor", _predecessors(self.session))
        self.predecessor.setflags(write=False)
        # Plain numbers of one type, so that 4 and 4.0 make the same bytes.
        object.__setattr__(self, "num_warmups", int(self.num_warmups))
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "rate_rps", float(self.rate_rps))
        rules = {
            "intended_ns must start at 0 or later and never decrease":
                np.all(np.diff(self.intended_ns, prepend=0) >= 0),
            "input_len and output_len must be at least 1":
                np.all(self.input_len >= 1) and np.all(self.output_len >= 1),
            "component must be an index into component_names":
                np.all((self.component >= 0) & (self.component < len(self.component_names))),
            "stage must be an index into stages":
                np.all((self.stage >= 0) & (self.stage < max(1, len(self.stages)))),
            "num_warmups must be between 0 and the number of rows": 0 <= self.num_warmups <= len(self),
            "the turns of a session must rise with the rows":
                np.all(self.turn[self.predecessor >= 0]
                       > self.turn[self.predecessor[self.predecessor >= 0]]),
            "think_ns and prefix_lens must be at least 0":
                np.all(self.think_ns >= 0) and np.all(self.prefix_lens >= 0),
            "blocks have one row a request": self.blocks is None or len(self.blocks) == len(self),
            "component_tenants has one for each component":
                len(self.component_tenants) in (0, len(self.component_names)),
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)

    def __len__(self) -> int:
        return len(self.intended_ns)

    def __repr__(self) -> str:
        span = f"over {self.intended_ns[-1] / 1e9:.3g} s" if len(self) else "empty"
        return (f"<Plan {len(self)} requests ({self.num_warmups} warm-up) {span} @ {self.rate_rps:g} rps, "
                f"{int(self.input_len.sum())} tokens in, {int(self.output_len.sum())} out, seed {self.seed}>")

    @property
    def stage_names(self) -> tuple[str, ...]:
        """A name for each number in `stage`; without stages the one part is called `run`."""
        return tuple(stage.name for stage in self.stages) or ("run",)

    def to_bytes(self) -> bytes:
        """The whole plan, the same bytes for the same plan: a JSON header, then the raw columns."""
        stored = self._stored()
        header = {
            "columns": {name: array.dtype.str for name, array in stored.items() if name in _KNOWN_COLUMNS},
            "rows": len(self),
            "num_warmups": self.num_warmups,
            "seed": self.seed,
            # JSON has no infinity; vLLM's result files write it as this string too.
            "rate_rps": "inf" if math.isinf(self.rate_rps) else self.rate_rps,
            "component_names": self.component_names,
            **({"stages": [stage.as_dict() for stage in self.stages]} if self.stages else {}),
            **({"component_tenants": self.component_tenants} if self.component_tenants else {}),
            **({"block_size": self.blocks.size} if self.blocks else {}),
            **({"arrays": arrays} if (arrays := {
                name: len(array) for name, array in stored.items() if name in _ARRAYS}) else {}),
        }
        head = json.dumps(header, sort_keys=True).encode()
        return b"".join((_MAGIC, len(head).to_bytes(_SIZE_BYTES, "little"), head,
                         *(array.tobytes() for array in stored.values())))

    def _stored(self) -> dict[str, npt.NDArray[Any]]:
        """What `to_bytes` writes, in order; arrays that need not have one row a request come last."""
        stored = {name: getattr(self, name) for name in _COLUMNS}
        if self.stages:
            stored["stage"] = self.stage
        if self.think_ns.any():
            stored["think_ns"] = self.think_ns
        if len(self.prefix_lens):
            stored["prefix_lens"] = self.prefix_lens
        if self.blocks is not None:
            stored |= {"block_keys": self.blocks.keys, "block_offset": self.blocks.offset}
        return stored

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`; UsageError for anything that `to_bytes` does not write."""
        try:
            return cls._read(data)
        except (UsageError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UsageError(f"this is not a plan of this version of Stallfree, or it is cut short: "
                             f"{error}") from error

    @classmethod
    def _read(cls, data: bytes) -> Self:
        body = len(_MAGIC) + _SIZE_BYTES
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("unknown first bytes")
        end = body + int.from_bytes(data[len(_MAGIC):body], "little")
        header = json.loads(data[body:end])
        stages = tuple(Stage.from_dict(stage) for stage in header.get("stages", ()))
        expected = {name: dtype for name, dtype in _KNOWN_COLUMNS.items()
                    if name in _COLUMNS or name in header["columns"]}
        if header["columns"] != expected:
            raise ValueError("other columns")
        sizes = dict.fromkeys(expected, header["rows"])
        arrays = header.get("arrays", {})
        sizes |= {name: arrays[name] for name in _ARRAYS if name in arrays}
        values: dict[str, Any] = {}
        for name, count in sizes.items():
            dtype = np.dtype((_KNOWN_COLUMNS | _ARRAYS)[name])
            values[name] = np.frombuffer(data[end:end + count * dtype.itemsize], dtype=dtype)
            end += count * dtype.itemsize
        if end != len(data) or not set(arrays) <= set(_ARRAYS):
            raise ValueError("unexpected size")
        keys, offset = values.pop("block_keys", None), values.pop("block_offset", None)
        return cls(
            **values,
            num_warmups=header["num_warmups"],
            seed=header["seed"],
            rate_rps=float(header["rate_rps"]),
            component_names=tuple(header["component_names"]),
            stages=stages,
            component_tenants=tuple(header.get("component_tenants", ())),
            blocks=None if keys is None else PromptBlocks(header["block_size"], keys, offset),
        )

    def digest(self) -> str:
        """SHA-256 of `to_bytes`, 64 hex digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def prompt_parts(self, i: int) -> PromptParts:
        """What the prompt of row `i` is made of.

        With blocks: these, then tokens of its own. A later turn: the prompt of the turn before, its
        answer, then tokens of its own; where that is longer than the prompt, its beginning and one token
        of its own. Else the prefix of its group and tokens of its own.
        """
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of a plan of {len(self)} rows")
        turns = [i]
        while self._keys_of(turns[-1]) is None and self.predecessor[turns[-1]] >= 0:
            turns.append(int(self.predecessor[turns[-1]]))
        parts = self._first_parts(turns.pop())
        for row in reversed(turns):
            before, length = int(self.predecessor[row]), int(self.input_len[row])
            parts = parts.then(Part.ANSWER, before, int(self.output_len[before])).cut(length - 1)
            parts = parts.then(Part.OWN, row, length - int(parts.length.sum()))
        return parts

    def _first_parts(self, row: int) -> PromptParts:
        length, keys, group = int(self.input_len[row]), self._keys_of(row), int(self.prefix_group[row])
        parts = NO_PARTS
        if keys is not None and self.blocks is not None:
            size = self.blocks.size
            parts = PromptParts(np.full(len(keys), Part.BLOCK, np.int8), keys,
                                np.full(len(keys), size, np.int32)).cut(length)
        elif 0 <= group < len(self.prefix_lens):
            parts = parts.then(Part.PREFIX, group, min(length, int(self.prefix_lens[group])))
        return parts.then(Part.OWN, row, length - int(parts.length.sum()))

    def _keys_of(self, row: int) -> npt.NDArray[np.int64] | None:
        if self.blocks is None:
            return None
        keys = self.blocks.of(row)
        return keys if len(keys) else None

    def prompt_token_ids(self, i: int, *, vocab_size: int, salt: bytes | str,
                         answers: Mapping[int, Sequence[int]] | None = None) -> list[int]:
        """The prompt of row `i`: `input_len[i]` token ids; see `prompt_parts` and `part_tokens`.

        They depend on salt, seed and the plan alone, and on the `answers` to earlier turns where they are
        given. Another salt gives other prompts, so a run with a salt of its own finds none of its prompts
        in a prefix cache but those that it put there.
        """
        ids: list[int] = part_tokens(self.prompt_parts(i), seed=self.seed, salt=salt, vocab_size=vocab_size,
                                     answers=answers).tolist()
        return ids

    def check_fits(self, max_model_len: int | None) -> None:
        """UsageError when a row asks for more tokens than the model takes; names the first and how many."""
        if max_model_len is None:
            return
        too_long = np.flatnonzero(self.input_len.astype(np.int64) + self.output_len > max_model_len)
        if len(too_long):
            first = too_long[0]
            raise UsageError(
                f"request {first} asks for {self.input_len[first]} prompt + {self.output_len[first]} answer "
                f"tokens, more than the model's {max_model_len} ({len(too_long)} of {len(self)} requests do "
                f"not fit): raise --max-model-len or shorten the workload"
            )


def _predecessors(session: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """For each row the row before it in its session; -1 for none."""
    before = np.full(len(session), -1, dtype=np.int32)
    rows = np.flatnonzero(session >= 0)
    order = rows[np.argsort(session[rows], kind="stable")]
    follows = session[order[1:]] == session[order[:-1]]
    before[order[1:][follows]] = order[:-1][follows]
    return before
