"""The scheduler settings that Stallfree turns, and their names in vLLM."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from workloads.errors import UsageError


@dataclass(frozen=True, slots=True)
class Knobs:
    """One setting of a scheduler. Counts of tokens and of requests; 0 switches a threshold off.

    The rules are vLLM's own (`SchedulerConfig.verify_max_model_len`, vLLM 0.32):
    the budget is at least the active sequences, or running decodes would be left out of a step.
    """

    token_budget: int
    """Tokens that one engine step may process. Live: max_num_scheduled_tokens; at start:
    max_num_batched_tokens."""
    max_seqs: int
    """Requests that may run at once. Live: max_num_active_seqs; at start: max_num_seqs."""
    long_prefill_token_threshold: int = 0
    """Tokens of one prompt that a step may process while other requests wait or run; 0 is off."""
    adaptive_long_prefill: bool = False
    """Raise the threshold to a fair share of the budget (long_prefill_token_threshold_adaptive)."""
    policy: str = "fcfs"
    """vLLM's --scheduling-policy: fcfs or priority."""

    def __post_init__(self) -> None:
        if self.token_budget < 1 or self.max_seqs < 1 or self.long_prefill_token_threshold < 0:
            raise UsageError(f"token budget and active sequences must be at least 1, the long-prefill "
                             f"threshold at least 0; got {self.token_budget}, {self.max_seqs} and "
                             f"{self.long_prefill_token_threshold}")
        if self.token_budget < self.max_seqs:
            raise UsageError(
                f"a token budget of {self.token_budget} is below {self.max_seqs} active sequences: running "
                f"decodes would be left out of steps. Raise --max-num-batched-tokens to at least "
                f"{self.max_seqs} or lower --max-num-seqs to at most {self.token_budget}"
            )
        if self.policy not in ("fcfs", "priority"):
            raise UsageError(f"unknown scheduling policy {self.policy!r}; vLLM has: fcfs, priority")

    def engine_args(self) -> dict[str, Any]:
        """Keyword arguments for vLLM's EngineArgs, for an engine started with these knobs."""
        return {
            "max_num_batched_tokens": self.token_budget,
            "max_num_seqs": self.max_seqs,
            "long_prefill_token_threshold": self.long_prefill_token_threshold,
            "long_prefill_token_threshold_adaptive": self.adaptive_long_prefill,
            "scheduling_policy": self.policy,
        }

    def serve_config(self) -> dict[str, Any]:
        """Keys of a `vllm serve --config` file; what equals vLLM's built-in zero is left out."""
        config: dict[str, Any] = {
            "max-num-batched-tokens": self.token_budget,
            "max-num-seqs": self.max_seqs,
        }
        if self.long_prefill_token_threshold:
            config["long-prefill-token-threshold"] = self.long_prefill_token_threshold
            if self.adaptive_long_prefill:
                config["long-prefill-token-threshold-adaptive"] = True
        if self.policy != "fcfs":
            config["scheduling-policy"] = self.policy
        return config

    @classmethod
    def from_serve_config(cls, config: Mapping[str, Any]) -> Self:
        """The inverse of `serve_config`; what else the file holds is left aside."""
        return cls(
            token_budget=config["max-num-batched-tokens"], max_seqs=config["max-num-seqs"],
            long_prefill_token_threshold=config.get("long-prefill-token-threshold", 0),
            adaptive_long_prefill=config.get("long-prefill-token-threshold-adaptive", False),
            policy=config.get("scheduling-policy", "fcfs"))

    def serve_flags(self) -> list[str]:
        """The same settings as `vllm serve` flags, one word an item."""
        words = []
        for key, value in self.serve_config().items():
            words.append(f"--{key}")
            if value is not True:
                words.append(str(value))
        return words

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the names of this class."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`; unknown names are refused."""
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise UsageError(f"unknown knobs {sorted(unknown)}; known: {[f.name for f in fields(cls)]}")
        return cls(**values)

    def label(self) -> str:
        """A short human name, as in `budget 128, 32 seqs, cap 64 (adaptive)`."""
        parts = [f"budget {self.token_budget}", f"{self.max_seqs} seqs"]
        if self.long_prefill_token_threshold:
            adaptive = " (adaptive)" if self.adaptive_long_prefill else ""
            parts.append(f"cap {self.long_prefill_token_threshold}{adaptive}")
        if self.policy != "fcfs":
            parts.append(self.policy)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class KnobLimits:
    """What a started engine can still be set to. Its start-up values are the ceilings:
    live budget <= max_num_batched_tokens, active <= max_num_seqs, threshold <= max_model_len."""

    token_budget: int
    max_seqs: int
    max_model_len: int

    def refusal(self, knobs: Knobs) -> str | None:
        """Why an engine with these limits cannot take `knobs`, or None."""
        checks = (
            ("token budget", knobs.token_budget, self.token_budget, "max_num_batched_tokens"),
            ("active sequences", knobs.max_seqs, self.max_seqs, "max_num_seqs"),
            ("long-prefill threshold", knobs.long_prefill_token_threshold, self.max_model_len,
             "max_model_len"),
        )
        for name, asked, ceiling, flag in checks:
            if asked > ceiling:
                return f"{name} {asked} is above the engine's {flag} of {ceiling}"
        return None
