"""One workload under one setting, as data: what both schedulers are driven with."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.state_arrays import check_supported
from workloads.errors import UsageError

LIVE_KNOBS = ("token_budget", "max_seqs", "long_prefill_token_threshold", "adaptive_long_prefill")
"""What a running engine can be set to (engine_adapter.live_knobs); the policy is fixed at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """A request; its row is its place in the case. Token counts are at least 1."""

    turn: int = 0
    """The turn of the engine's loop in which it arrives; never before that of the request before."""
    input_len: int
    output_len: int
    arrival_ns: int = 0
    priority: int = 0
    prefix_keys: tuple[int, ...] = ()
    """As in SimulatedLoad: content of the first full blocks of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The client of `row` leaves; before the turn's step is decided, or while one is under way."""

    turn: int
    row: int
    under_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Live knobs from this turn on."""

    turn: int
    knobs: Mapping[str, int]
    """By the names of LIVE_KNOBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A turn is one pass of EngineCore's loop: what arrived is taken in, one step is decided, and in
    most turns the outputs of the oldest step are processed."""

    settings: SchedulerSettings
    requests: tuple[CaseRequest, ...]
    aborts: tuple[Abort, ...] = ()
    changes: tuple[Change, ...] = ()
    resets: tuple[int, ...] = ()
    """Turns that begin with a reset of the prefix cache."""
    draft_acceptance: float = 0.0
    seed: int = 0

    def settings_at(self, turn: int) -> SchedulerSettings:
        """The settings in force in `turn`. A live budget is also the input budget: the scheduler
        plug-in sets both."""
        settings = self.settings
        for change in self.changes:
            if change.turn <= turn:
                settings = replace(settings, input_budget=None, **change.knobs)  # type: ignore[arg-type]
        return settings

    def blocks_needed(self) -> int:
        """KV blocks, the null block among them, with which every request can run when it is alone."""
        settings = self.settings
        longest = max((request.input_len + request.output_len for request in self.requests), default=1)
        if settings.num_spec_tokens:
            # Each step under way may carry its drafts, and the drafter looks ahead behind them.
            steps = settings.pipeline_parallel + settings.async_scheduling
            longest += steps * (1 + settings.num_spec_tokens) + settings.num_lookahead_tokens
        return 1 - -min(longest, settings.max_model_len) // settings.block_size

    def is_feasible(self) -> bool:
        """Whether an engine would start with these settings and be sent each of these requests."""
        settings = [self.settings_at(turn) for turn in [-1, *(change.turn for change in self.changes)]]
        try:
            for one in settings:
                check_supported(one)
        except UsageError:
            return False
        return (
            all(request.input_len + request.output_len <= self.settings.max_model_len
                and len(request.prefix_keys) <= request.input_len // self.settings.block_size
                for request in self.requests)
            and self.settings.num_kv_blocks >= self.blocks_needed()
            and all(one.chunked_prefill or one.token_budget >= one.max_model_len for one in settings)
            and all(abort.row < len(self.requests) for abort in self.aborts)
        )

    def to_json(self) -> str:
        """Fields at their defaults are left out."""
        return json.dumps({
            "settings": _changed(self.settings),
            "requests": [_changed(request) for request in self.requests],
            **({"aborts": [_changed(abort) for abort in self.aborts]} if self.aborts else {}),
            **({"changes": [asdict(change) for change in self.changes]} if self.changes else {}),
            **({"resets": self.resets} if self.resets else {}),
            **({"draft_acceptance": self.draft_acceptance} if self.draft_acceptance else {}),
            **({"seed": self.seed} if self.seed else {}),
        })

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote; a `why` beside it is for the reader alone."""
        values: dict[str, Any] = json.loads(text)
        values.pop("why", None)
        values["settings"] = SchedulerSettings(**values["settings"])
        values["requests"] = tuple(
            CaseRequest(**(request | {"prefix_keys": tuple(request.get("prefix_keys", ()))}))
            for request in values["requests"])
        values["aborts"] = tuple(Abort(**abort) for abort in values.get("aborts", ()))
        values["changes"] = tuple(Change(**change) for change in values.get("changes", ()))
        values["resets"] = tuple(values.get("resets", ()))
        return cls(**values)


def _changed(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)
            if getattr(value, field.name) != field.default}
