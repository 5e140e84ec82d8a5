"""A plan: every request of a run, decided before it starts."""

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError
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
_STAGED_COLUMNS = _COLUMNS | {"stage": "<i2"}   # a plan without stages keeps its bytes, and its digest
_MAGIC = b"stallfree-plan 1\n"
_SIZE_BYTES = 8
_SPECIAL_IDS = 10   # tokenizers keep their special tokens at the lowest ids


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
    """Requests of one group share a prefix; -1 is none."""
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

    def __post_init__(self) -> None:
        if not (self.stages or len(self.stage)):
            object.__setattr__(self, "stage", np.zeros(len(self)))
        for name, dtype in _STAGED_COLUMNS.items():
            column = np.array(getattr(self, name), dtype=dtype)   # a copy, so that nobody can write to it
            column.setflags(write=False)
            object.__setattr__(self, name, column)
            if column.shape != (len(self),):
                raise ValueError(f"column {name} has shape {column.shape}, not ({len(self)},)")
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
        stored = _STAGED_COLUMNS if self.stages else _COLUMNS
        header = {
            "columns": stored,
            "rows": len(self),
            "num_warmups": self.num_warmups,
            "seed": self.seed,
            # JSON has no infinity; vLLM's result files write it as this string too.
            "rate_rps": "inf" if math.isinf(self.rate_rps) else self.rate_rps,
            "component_names": self.component_names,
            **({"stages": [stage.as_dict() for stage in self.stages]} if self.stages else {}),
        }
        head = json.dumps(header, sort_keys=True).encode()
        columns = (getattr(self, name).tobytes() for name in stored)
        return b"".join((_MAGIC, len(head).to_bytes(_SIZE_BYTES, "little"), head, *columns))

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
        stored = _STAGED_COLUMNS if stages else _COLUMNS
        if header["columns"] != stored:
            raise ValueError("other columns")
        values: dict[str, Any] = {}
        for name, dtype in stored.items():
            size = header["rows"] * np.dtype(dtype).itemsize
            values[name] = np.frombuffer(data[end:end + size], dtype=dtype)
            end += size
        if end != len(data):
            raise ValueError("unexpected size")
        return cls(
            **values,
            num_warmups=header["num_warmups"],
            seed=header["seed"],
            rate_rps=float(header["rate_rps"]),
            component_names=tuple(header["component_names"]),
            stages=stages,
        )

    def digest(self) -> str:
        """SHA-256 of `to_bytes`, 64 hex digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def prompt_token_ids(self, i: int, *, vocab_size: int, salt: bytes | str) -> list[int]:
        """The prompt of row `i`: `input_len[i]` token ids, uniform in 10 .. vocab_size - 1.

        They depend on salt, seed and `i` alone. Another salt gives other prompts, so a run
        with a salt of its own finds none of its prompts in a prefix cache. Ids below 10 are
        left out because tokenizers keep special tokens there; of a vocabulary of fewer than
        20 the upper half is used.
        """
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of a plan of {len(self)} rows")
        if vocab_size < 1:
            raise UsageError(f"the vocabulary must have at least 1 token; got {vocab_size}")
        salt_bytes = salt.encode() if isinstance(salt, str) else salt
        key = hashlib.sha256(f"{self.seed}:{i}:".encode() + salt_bytes).digest()
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
        lowest = min(_SPECIAL_IDS, vocab_size // 2)
        ids: list[int] = rng.integers(lowest, vocab_size, size=int(self.input_len[i])).tolist()
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
