"""A request of a simulated engine from its sending to its end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine_adapter.errors import EngineError
from engine_adapter.seam import GenerateRequest, TokenEvent


@dataclass(slots=True, order=True)
class LiveRequest:
    """They sort in the order in which the scheduler sees them."""

    visible_ns: int
    """When it sees this one."""
    order: int
    sent_ns: int = field(compare=False)
    request: GenerateRequest = field(compare=False)
    answer: Sequence[int] = field(compare=False)
    """Its token ids; empty where nobody wants them."""
    events: asyncio.Queue[TokenEvent | EngineError] = field(default_factory=asyncio.Queue, compare=False)
    row: int | None = field(default=None, compare=False)
    """In the scheduler; None before it is seen."""
    left: bool = field(default=False, compare=False)
    """Nobody waits for it any more."""


def made_up_answer(request: GenerateRequest, *, seed: int, vocab_size: int) -> Sequence[int]:
    """As many token ids as are asked for, by chance, the same for the same seed and number; none where
    they are not wanted."""
    if not request.wants_token_ids:
        return ()
    ids: list[int] = np.random.default_rng([seed, request.number]).integers(
        vocab_size, size=request.output_len).tolist()
    return ids
