"""A finished or half-written study as typed values; `study_file` reads it.

Every part may be missing: missing figures are None, missing texts are empty, missing lists
are empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_adapter.knobs import Knobs
from reports.quantities import NONE
from workloads.errors import UsageError


@dataclass(frozen=True, slots=True)
class Objective:
    """One line of the SLO as the user wrote it, with its parts."""

    text: str
    metric: str
    stat: str
    op: str
    limit: float | None
    unit: str
    implicit: bool
    """Nobody wrote it: every SLO asks for it."""


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """What was observed for one line of the SLO. `observed` and `limit` are in `unit`."""

    text: str
    objective: str
    """Its one spelling, by which it is found; `text` is the user's."""
    implicit: bool
    observed: float | None
    limit: float | None
    unit: str
    n: int | None
    holds: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The SLO applied to one run; `holds` is None when it was never judged."""

    holds: bool | None = None
    objectives: tuple[ObjectiveResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run showed. `values` are in the unit of their name (`p99_tbt_ms`); `run` is the
    run's directory relative to the study, empty when none is named."""

    rate_rps: float | None
    run: str
    holds: bool | None
    judgement: Judgement
    values: Mapping[str, float | None]
    capacity_rps: float | None = None
    seconds: float | None = None
    outcome: str = ""
    """The tuner's word for the run; empty where it wrote none."""

    @property
    def missed(self) -> bool:
        """Whether an objective was missed; a run that failed by its load or its client alone is none."""
        return self.holds is False and self.judgement.holds is not True

    @property
    def slo_word(self) -> str:
        """Whether the run held, in a word or two: its SLO, a load that the engine could sustain, and a
        client that kept up."""
        if self.holds is False and self.judgement.holds:
            return self.outcome.replace("_", " ") or "met, run not counted"
        return "not judged" if self.holds is None else "holds" if self.holds else "missed"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of the scheduler with its figures from the search and from fresh engines."""

    knobs: Mapping[str, Any]
    serve_command: str
    config_file: str
    search: Figures | None
    confirmed: Figures | None
    attempts: tuple[Figures, ...]
    """Every run in its fresh engine, the confirmed one included, in the order they were made."""
    effective_knobs: Mapping[str, Any]
    note: str
    """What went wrong when it was confirmed; empty otherwise."""

    @property
    def best(self) -> Figures | None:
        """The confirmed figures, else those of the search."""
        return self.confirmed or self.search


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting that the search tried."""

    number: int | None
    knobs: Mapping[str, Any]
    source: str
    outcome: str
    capacity_rps: float | None
    runs: tuple[Figures, ...]
    seconds: float | None
    note: str

    @property
    def label(self) -> str:
        """The trial's number as text; a dash where the study names none."""
        return NONE if self.number is None else str(self.number)

    @property
    def judged(self) -> Figures | None:
        """The run that stands for the trial: the highest rate that held, else the lowest tried."""
        held = [run for run in self.runs if run.holds]
        if held:
            return max(held, key=lambda run: run.rate_rps or 0.0)
        return min(self.runs, key=lambda run: run.rate_rps or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that `recommendation.json` says, plus where its runs are."""

    directory: Path
    created: str
    version: str
    verdict: str
    verdict_text: str
    objective: str
    rate_rps: float | None
    recommended: Setting | None
    default: Setting | None
    slo: tuple[Objective, ...]
    deadlines: Mapping[str, Any]
    workload: Mapping[str, Any]
    trials: tuple[Trial, ...]
    engine_starts: int | None
    engine_seconds: float | None
    wall_seconds: float | None
    environment: Mapping[str, Any]
    warnings: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)


def knobs_label(knobs: Mapping[str, Any]) -> str:
    """A short name for knobs read from a file, also for those this version does not know."""
    try:
        return Knobs.from_dict(dict(knobs)).label()
    except (UsageError, TypeError):
        return ", ".join(f"{name} {value}" for name, value in knobs.items()) or "unknown setting"


def runs_of(study: Study, setting: Setting) -> tuple[Figures, ...]:
    """Every run of a setting in the order they were made: its trials' runs, then those in a fresh engine."""
    found: dict[object, Figures] = {}
    for trial in study.trials:
        if trial.knobs == setting.knobs:
            for run in trial.runs:
                found[run.run or id(run)] = run
    for figures in (setting.search, *setting.attempts, setting.confirmed):
        # Search figures without a run directory repeat a trial's run that is already here.
        if figures and (figures.run or not found or figures is setting.confirmed):
            found.setdefault(figures.run or id(figures), figures)
    return tuple(found.values())
