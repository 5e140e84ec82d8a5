"""The seam between what is measured and what answers: the few calls every engine answers."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine_adapter.errors import NeedsRestart
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.step_log import StepLog


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One prompt to answer. `number` names it in the step log and is unique within a run."""

    number: int
    prompt_token_ids: Sequence[int]
    output_len: int
    """Exactly this many tokens are generated: end-of-sequence is ignored."""
    wants_token_ids: bool = False
    """Whether the last event is to hold the answer's token ids, where the engine can tell them."""


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One read that carried tokens, or the end of the stream."""

    read_ns: int
    """When it was read, on the engine's clock."""
    num_tokens: int
    """New tokens in this read; 0 only in an event that carries nothing but the end."""
    finish_reason: str | None = None
    """Set in the last event: `length`, `stop`; `abort` or `error` mean that the request failed."""
    token_ids: Sequence[int] = ()
    """In the last event all tokens of the answer, where they were wanted and the engine tells them."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Knobs that the engine now obeys, as it reports them back itself."""

    knobs: Knobs


@dataclass(frozen=True, slots=True)
class Settings:
    """The scheduler settings of an engine that tells them."""

    knobs: Knobs
    defaults: Knobs
    limits: KnobLimits


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What started, and what it was started with."""

    name: str
    """For example `vllm`, `scripted`."""
    version: str
    model: str
    max_model_len: int | None
    """None where a server does not say."""
    vocab_size: int
    knobs: Knobs | None
    """In force now, as read back from the engine; None for a server that does not tell."""
    default_knobs: Knobs | None
    """What the engine chooses by itself when no scheduler flag is given."""
    limits: KnobLimits | None
    num_kv_blocks: int | None
    kv_block_size: int | None
    live_knobs: bool
    """Whether `apply` works without a restart."""
    live_knobs_note: str
    """Why not, when it does not; empty otherwise."""
    start_seconds: float
    token_count_source: str = "engine"
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """Versions, dtype, device and flags that a comparison must find equal."""

    @property
    def settings(self) -> Settings:
        """`knobs`, `default_knobs` and `limits` together; NeedsRestart where they are not known."""
        if self.knobs is None or self.default_knobs is None or self.limits is None:
            raise NeedsRestart(self.live_knobs_note or "this engine does not tell its settings")
        return Settings(self.knobs, self.default_knobs, self.limits)


class Engine(Protocol):
    """One engine from start to stop. Times come from its clock.

    Implementations inherit the checks of `engine_adapter.contract.EngineContract`.
    """

    async def start(self) -> EngineInfo:
        """Start, wait until it can generate. Raises StartFailed or OutOfMemory and leaves nothing."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        """Tokens as they come; closing the iterator cancels. Raises Rejected, Crashed or Hung."""
        ...

    async def apply(self, knobs: Knobs) -> Applied:
        """Change the running engine and read the change back. Raises NeedsRestart when it cannot."""
        ...

    def step_log(self) -> StepLog:
        """Steps finished since the last call; empty where the engine has no step log."""
        ...

    async def reset_caches(self) -> None:
        """Forget cached prefixes; call between runs while nothing is in flight."""
        ...

    async def stop(self) -> None:
        """End every process and free everything. Idempotent; works on a crashed engine too."""
        ...
