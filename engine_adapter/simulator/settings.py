"""What a simulated scheduler is set to."""

from dataclasses import dataclass, field
from typing import Self

from engine_adapter.knobs import Knobs
from workloads.errors import UsageError

RULES = ("vllm-v1", "sarathi-serve", "vllm-v0", "orca", "request-level")
"""Which tokens of which requests go into a step; see docs/simulator.md.

`vllm-v1` is vLLM 0.32's `Scheduler`, decision for decision. `sarathi-serve` (arXiv 2403.02310) places
decodes first, then chunks, and keeps KV blocks for the whole prompt from admission. `vllm-v0` gives
whole prefills a step of their own before any decode. `orca` (OSDI '22) puts whole prefills into the
steps of the decodes, and keeps KV blocks for the longest possible answer. `request-level` admits
nothing while anything runs.
"""

DRAFT_METHODS = ("eagle", "draft_model", "ngram")
"""Where draft tokens come from: EAGLE, EAGLE-3 and MTP heads; a smaller model; n-grams of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Counts of tokens, requests and blocks; names in brackets are vLLM 0.32's. UsageError for what no
    scheduler could run with."""

    token_budget: int
    """Tokens of a step (max_num_scheduled_tokens)."""
    max_seqs: int
    """Requests that run at once (max_num_active_seqs)."""
    max_model_len: int
    num_kv_blocks: int
    """As vLLM counts them (num_gpu_blocks): one of them is its null block and never holds tokens."""
    block_size: int = 16
    input_budget: int | None = None
    """Tokens and draft slots of a step (max_num_batched_tokens); None is the token budget."""
    long_prefill_token_threshold: int = 0
    adaptive_long_prefill: bool = False
    priority: bool = False
    """Order by priority, then arrival (--scheduling-policy priority), instead of by arrival alone."""
    prefix_caching: bool = False
    chunked_prefill: bool = True
    reserve_full_isl: bool = True
    """A prompt is admitted only if all of it would fit (scheduler_reserve_full_isl)."""
    watermark: float = 0.0
    """Share of the blocks that admissions leave free."""
    num_spec_tokens: int = 0
    """Draft tokens of each decode (num_speculative_tokens)."""
    draft_method: str = "eagle"
    """Where draft tokens come from, one of DRAFT_METHODS."""
    async_scheduling: bool = False
    """The next step is decided while one runs."""
    pipeline_parallel: int = 1
    rule: str = field(default="vllm-v1")
    """One of RULES."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"unknown scheduling rule {self.rule!r}; known: {', '.join(RULES)}")
        if self.draft_method not in DRAFT_METHODS:
            raise UsageError(f"unknown draft method {self.draft_method!r}; known: {', '.join(DRAFT_METHODS)}")
        least = {"token_budget": 1, "max_seqs": 1, "max_model_len": 2, "num_kv_blocks": 2, "block_size": 1,
                 "long_prefill_token_threshold": 0, "num_spec_tokens": 0, "pipeline_parallel": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise UsageError(f"{name} must be at least {low}; got {getattr(self, name)}")
        if not 0 <= self.watermark < 1:
            raise UsageError(f"watermark must be at least 0 and below 1; got {self.watermark}")

    @property
    def max_batched_tokens(self) -> int:
        """`input_budget`, or the token budget where it is not given."""
        return self.token_budget if self.input_budget is None else self.input_budget

    @property
    def num_lookahead_tokens(self) -> int:
        """KV slots that the drafter fills behind the tokens of a step."""
        return 0 if self.draft_method == "ngram" else self.num_spec_tokens

    @property
    def draft_slots(self) -> int:
        """Slots of the input budget that each request of a step takes for its drafts."""
        return int(self.draft_method == "draft_model" and self.num_spec_tokens > 0)

    @classmethod
    def from_knobs(cls, knobs: Knobs, *, max_model_len: int, num_kv_blocks: int, block_size: int,
                   **others: object) -> Self:
        """The settings of an engine that was started with `knobs`; `others` as in the class."""
        values: dict[str, object] = {
            "token_budget": knobs.token_budget, "max_seqs": knobs.max_seqs,
            "long_prefill_token_threshold": knobs.long_prefill_token_threshold,
            "adaptive_long_prefill": knobs.adaptive_long_prefill,
            "priority": knobs.policy == "priority",
        }
        return cls(max_model_len=max_model_len, num_kv_blocks=num_kv_blocks, block_size=block_size,
                   **(values | others))  # type: ignore[arg-type]
