"""Single runs as the reports see them: figures, health, set-up and the distribution of the gaps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Run, Validity, load_head, load_run, summarise
from reports.evidence import sketch
from reports.quantities import canonical, capitalised
from reports.survival import Survival
from reports.tolerant import mapping, number, numbers, text, texts

_SETUP_ORDER = ("knobs", "workload", "rate_rps", "burstiness", "seed", "engine", "token_count_source")
_NOT_SETUP = ("salt", "label", "date", "start_seconds")
"""They differ between any two runs and change nothing that is measured."""
_NO_FIGURES = ("schema_version", "seed", "burstiness")


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. `figures` are in the unit of their name; `setup` is flat and in reading order."""

    name: str
    path: str
    validity: Validity
    failure: str
    outcomes: Mapping[str, int]
    figures: Mapping[str, float | None]
    setup: Mapping[str, str]
    rate_rps: float | None
    requests: int
    gaps: Survival
    unsustainable: tuple[str, ...]
    """Why the engine could not keep up with the load; empty where it could or nobody can say."""

    @property
    def completed(self) -> int:
        """Measured requests that succeeded."""
        return self.outcomes.get("ok", 0)

    @property
    def failed(self) -> int:
        """Measured requests that did not succeed, whatever the reason."""
        return sum(self.outcomes.values()) - self.completed

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "path": self.path,
            "valid": self.validity.valid,
            "reasons": list(self.validity.reasons),
            "notes": list(self.validity.notes),
            "engine_failure": self.failure or None,
            "outcomes": dict(self.outcomes),
            "setup": dict(self.setup),
            "figures": dict(self.figures),
            "unsustainable": list(self.unsustainable),
            "gaps": self.gaps.as_dict(),
        }


def view_run(run: Run, *, path: str = "", summary: Mapping[str, Any] | None = None) -> RunView:
    """The view of a run. `summary` is `Summary.as_dict()`; without one the figures are computed without
    deadlines, so without fluidity. The name is the run's label, else the last part of its path."""
    told = summary or summarise(run).as_dict()
    figures = {canonical(name): value for name, value in numbers(told).items() if name not in _NO_FIGURES}
    rate = number(run.rate_rps)
    return RunView(
        name=text(run.meta.get("label")) or Path(path).name or "run",
        path=path,
        validity=run.validity,
        failure=str(run.engine_failure or ""),
        outcomes=run.outcome_counts(),
        figures={name: value for name, value in figures.items() if value is not None},
        setup=_setup(run.meta),
        rate_rps=rate,
        requests=int(run.measured.sum()),
        gaps=sketch(run),
        unsustainable=texts(told.get("sustainable_reasons")) if told.get("sustainable") is False else (),
    )


def load_view(path: Path) -> RunView:
    """The view of a run directory. Raises EvidenceError when it is incomplete."""
    return view_run(load_run(path), path=str(path), summary=mapping(load_head(path).get("summary")))


def distinct_names(views: Sequence[RunView]) -> list[str]:
    """The views' names; where two are equal they are numbered in order."""
    names = [view.name for view in views]
    return [
        f"{name} ({position})" if names.count(name) > 1 else name
        for position, name in enumerate(names, start=1)
    ]


def setup_rows(views: Sequence[RunView]) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """What differs in the set-up, one row a setting with each run's value, and what is the same."""
    names = dict.fromkeys(name for view in views for name in view.setup)
    differing, same = [], []
    for name in names:
        values = tuple(view.setup.get(name, "") for view in views)
        if len(set(values)) > 1:
            differing.append((name, *values))
        else:
            same.append((name, values[0]))
    return differing, same


def _setup(meta: Mapping[str, Any]) -> dict[str, str]:
    ordered = {name: meta[name] for name in (*_SETUP_ORDER, *meta) if name in meta}
    kept = _kept(ordered)
    return dict(_flat({name: _kept(part) if isinstance(part, dict) else part for name, part in kept.items()}))


def _kept(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _NOT_SETUP}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as readable names and texts, in their order; what is empty is left out."""
    for name, value in values.items():
        label = f"{prefix} {name}".strip().replace("_", " ")
        if isinstance(value, dict):
            yield from _flat(value, label)
        elif isinstance(value, list):
            if value:
                yield capitalised(label), ", ".join(str(item) for item in value)
        elif value is not None and value != "":
            yield capitalised(label), {"True": "yes", "False": "no"}.get(str(value), str(value))
