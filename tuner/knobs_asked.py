"""The scheduler settings that a user named, on top of those an engine has."""

from dataclasses import dataclass, replace
from typing import Any

from engine_adapter.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobsAsked:
    """Scheduler settings that the user named; None leaves one as it is."""

    token_budget: int | None = None
    max_seqs: int | None = None
    long_prefill_token_threshold: int | None = None
    adaptive_long_prefill: bool | None = None
    policy: str | None = None

    def given(self) -> dict[str, Any]:
        """Those that are not None."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in values.items() if value is not None}

    def as_flags(self) -> dict[str, Any]:
        """All of them, None included, by the names of their flags."""
        return {
            "max_num_batched_tokens": self.token_budget, "max_num_seqs": self.max_seqs,
            "long_prefill_token_threshold": self.long_prefill_token_threshold,
            "long_prefill_token_threshold_adaptive": self.adaptive_long_prefill,
            "scheduling_policy": self.policy,
        }

    def check(self) -> None:
        """UsageError for what no engine's defaults can make good."""
        budget = self.token_budget if self.token_budget is not None else self.max_seqs or 1
        self.on(Knobs(token_budget=max(budget, 1), max_seqs=1))

    def on(self, base: Knobs) -> Knobs:
        """`base` with what was asked; UsageError where the two do not go together."""
        return replace(base, **self.given())
