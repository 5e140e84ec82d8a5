"""What a step of an engine costs, from what it carries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.cost_formulas import (
    NUM_TERMS,
    TERMS,
    chunk_attention_ns,
    extended,
    step_ns,
)
from workloads.errors import UsageError

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepCost:
    """Nanoseconds of the parts of a step; floats of at least 0. ValueError for anything else.

    On the device a step takes `fixed_ns + linear_ns[tokens]`, for each prefill chunk `chunk_ns` and
    its attention, the larger of computing (`chunk_pair_ns` for each pair of a query, rounded up to
    `query_tile`, and a key that it sees) and reading (`chunk_kv_ns` for each token of its prefix and
    itself), for each decoding request `decode_ns`, and `decode_kv_ns` for each token of its context.
    """

    linear_ns: Float64
    """By the number of tokens of the step, from 0 to the largest step, non-decreasing as far as the
    hardware is: everything that all tokens go through together (GEMMs, norms, all-reduce), with tile
    staircases and the padding to CUDA graph sizes. Larger steps follow its last slope."""
    fixed_ns: float = 0.0
    chunk_ns: float = 0.0
    chunk_pair_ns: float = 0.0
    chunk_kv_ns: float = 0.0
    query_tile: int = 1
    decode_ns: float = 0.0
    decode_kv_ns: float = 0.0
    host_ns: float = 0.0
    """Between steps: scheduling, inputs, outputs. Hidden behind the step before with async scheduling."""
    host_request_ns: float = 0.0
    """The same for each request of the step."""
    transfer_ns: float = 0.0
    """From one pipeline stage to the next; a stage takes its share of the step."""
    arrival_ns: float = 0.0
    """From sending a request to its place in the engine's queue."""
    arrival_token_ns: float = 0.0
    """The same for each prompt token."""
    delivery_ns: float = 0.0
    """From the end of a step to the client's read."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Where the numbers come from: sheets with their sources, or the runs that they were fitted to."""

    def __post_init__(self) -> None:
        linear = np.array(self.linear_ns, dtype=np.float64)
        if linear.ndim != 1 or len(linear) < 2 or not np.all(np.isfinite(linear)) or np.any(linear < 0):
            raise ValueError("linear_ns must hold finite numbers of at least 0, for 0 tokens, 1 token, …")
        linear.setflags(write=False)
        object.__setattr__(self, "linear_ns", linear)
        for name in SCALARS:
            value = getattr(self, name)
            if not isinstance(value, Real) or not isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.query_tile < 1 or self.query_tile != int(self.query_tile):
            raise ValueError(f"query_tile must be an integer of at least 1; got {self.query_tile}")
        object.__setattr__(self, "query_tile", int(self.query_tile))

    @classmethod
    def linear(cls, *, token_ns: float, most_tokens: int = 1, **others: Any) -> Self:
        """A cost whose steps take `token_ns` for each token; `others` are fields of the class."""
        tokens = np.arange(max(most_tokens, 1) + 1, dtype=np.float64)
        return cls(linear_ns=tokens * np.float64(token_ns), **others)

    def terms(self) -> Float64:
        """The numbers of the device's part in the order of cost_formulas.TERMS, shape (NUM_TERMS,)."""
        values = np.zeros(NUM_TERMS)
        for name, place in TERMS.items():
            values[place] = getattr(self, name)
        return values

    def step_ns(self, num_tokens: int, chunks: Iterable[tuple[int, int]] = (),
                decode_contexts: Iterable[int] = ()) -> float:
        """Nanoseconds that the device takes for a step of `num_tokens` tokens in all: prefill chunks of
        (tokens, prefix) and decoding requests with so many tokens of context each."""
        linear, terms = extended(self.linear_ns, num_tokens), self.terms()
        chunks, contexts = list(chunks), list(decode_contexts)
        attention = 0.0
        for tokens, prefix in chunks:
            attention += chunk_attention_ns(terms, tokens, prefix)
        return float(step_ns(linear, terms, num_tokens, len(chunks), attention, len(contexts), sum(contexts)))

    def between_steps_ns(self, num_requests: int) -> float:
        """Nanoseconds of the host between two steps, for the requests of the later one."""
        return self.host_ns + self.host_request_ns * num_requests

    def as_dict(self) -> dict[str, Any]:
        """Its fields as JSON knows them; `from_dict` makes an equal cost of it, bit for bit."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"linear_ns": self.linear_ns.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The cost that `as_dict` described. UsageError, one line, for anything else."""
        known = {f.name for f in fields(cls)}
        if not isinstance(values, Mapping) or "linear_ns" not in values:
            raise UsageError("a step cost needs linear_ns: its cost by tokens")
        if unknown := set(values) - known:
            raise UsageError(f"a step cost has no field {', '.join(sorted(unknown))}")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise UsageError(f"this step cost cannot be used: {error}") from error


SCALARS = tuple(f.name for f in fields(StepCost) if f.name not in ("linear_ns", "provenance"))
"""Names of the numbers beside the table."""
