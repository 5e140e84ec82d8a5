"""What a trial came to: a typed outcome and everything needed to show or repeat the decision."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from engine_adapter.knobs import Knobs
from workloads.errors import EvidenceError, UsageError

WORST_VALUE = 0.0
"""What a trial is worth that carried no acceptable load; values are never below it."""


class Outcome(StrEnum):
    """How a trial ended. EngineError.outcome of engine_adapter.errors holds one of these values."""

    OK = "ok"
    SLO_VIOLATED = "slo_violated"
    OUT_OF_MEMORY = "out_of_memory"
    START_FAILED = "start_failed"
    CRASHED = "crashed"
    HUNG = "hung"
    CLIENT_LIMITED = "client_limited"
    INVALID = "invalid"

    @property
    def is_bad(self) -> bool:
        """Whether there is no measurement to judge: neither ok nor slo_violated."""
        return self not in (Outcome.OK, Outcome.SLO_VIOLATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRun:
    """One run of a trial: the offered rate, where its evidence lies and how it was judged."""

    rate_rps: float
    directory: str
    """Name of the run's directory within the study; empty where nothing was kept."""
    holds: bool
    outcome: str
    """What the run came to, a value of Outcome."""
    judgement: dict[str, Any] | None
    """Judgement.as_dict(); None where the run could not be judged."""
    figures: dict[str, float | None] = field(default_factory=dict)
    """Key figures under names with units."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One setting and its verdict; immutable, JSON through `as_dict` and `from_dict`.

    A record cannot contradict itself (ValueError): `ok` needs constraints that all hold and a
    value, `slo_violated` needs one that does not hold, and every number is finite. Higher values
    are better; they are not negative.
    """

    number: int
    knobs: Knobs
    source: str
    """Who proposed it: default, analytic, neighbour, sampler, ..."""
    outcome: Outcome
    capacity_rps: float | None = None
    value: float | None = None
    """What the search maximises where that is not the capacity, as at a fixed rate."""
    runs: tuple[TrialRun, ...] = ()
    constraints: dict[str, float] = field(default_factory=dict)
    """Normalised violations, dimensionless; at or below 0 means that the constraint holds."""
    seconds: float
    note: str = ""
    """One line on what went wrong; line breaks become spaces."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))
        object.__setattr__(self, "runs", tuple(self.runs))
        object.__setattr__(self, "note", " ".join(self.note.split()))
        objective = self._objective()
        if objective is not None and not (math.isfinite(objective) and objective >= WORST_VALUE):
            raise ValueError(f"a trial's value is finite and not negative, got {objective}")
        if not all(math.isfinite(violation) for violation in self.constraints.values()):
            raise ValueError(f"constraints must be finite, got {self.constraints}")
        holds = bool(self.constraints) and all(v <= 0 for v in self.constraints.values())
        if self.outcome is Outcome.OK and not (holds and objective is not None):
            raise ValueError("an ok trial needs a capacity or value, and constraints that all hold")
        if self.outcome is Outcome.SLO_VIOLATED and not any(v > 0 for v in self.constraints.values()):
            raise ValueError("a trial that violates the SLO needs a constraint above 0")

    @property
    def feasible(self) -> bool:
        """Whether this setting may be recommended: measured, and every objective held."""
        return self.outcome is Outcome.OK

    def objective_value(self) -> float:
        """What the search maximises: the value, else the capacity; WORST_VALUE unless feasible."""
        objective = self._objective()
        return objective if self.feasible and objective is not None else WORST_VALUE

    def longest_gap_ms(self) -> float:
        """The longest gap between tokens in the fastest run that held; infinite where none was measured."""
        holding = [run for run in self.runs if run.holds]
        if not holding:
            return math.inf
        gap = max(holding, key=lambda run: run.rate_rps).figures.get("max_tbt_ms")
        return math.inf if gap is None else gap

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the names of this class."""
        return asdict(self) | {"outcome": self.outcome.value, "runs": [asdict(run) for run in self.runs]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`; an EvidenceError where `values` is no trial record."""
        try:
            return cls(**{**values, "knobs": Knobs.from_dict(values["knobs"]),
                          "runs": tuple(TrialRun(**run) for run in values["runs"])})
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise EvidenceError(f"this is no trial record of this version: {error}") from error

    def _objective(self) -> float | None:
        return self.capacity_rps if self.value is None else self.value
