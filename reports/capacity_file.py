"""`capacity.json` as a Capacity. As with a study, a part that is missing never makes reading fail."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.study import Figures
from reports.study_file import figures_from
from reports.tolerant import integer, mapping, mappings, number, text, texts
from workloads.errors import EvidenceError, UsageError

CAPACITY_FILE = "capacity.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Capacity:
    """What was found out about a server whose settings cannot be changed, finished or not."""

    directory: Path
    created: str
    version: str
    verdict: str
    verdict_text: str
    rate_rps: float | None
    """The rate that was asked for; None where the highest was sought."""
    capacity_rps: float | None
    slo: tuple[str, ...]
    confirmed: Figures | None
    attempts: tuple[Figures, ...]
    """The confirming runs."""
    runs: tuple[Figures, ...]
    """Those of the search."""
    workload: Mapping[str, Any]
    server: Mapping[str, Any]
    environment: Mapping[str, Any]
    wall_seconds: float | None
    warnings: tuple[str, ...]
    raw: Mapping[str, Any]

    @property
    def shown(self) -> Figures | None:
        """The run that stands for the result: the proof, else the highest rate that held in the search, else
        the lowest that did not; None without any."""
        if self.confirmed is not None:
            return self.confirmed
        rated = sorted(self.runs, key=lambda run: run.rate_rps or 0.0)
        holding = [run for run in rated if run.holds]
        return holding[-1] if holding else next(iter(rated), None)


def load_capacity(path: Path) -> Capacity:
    """The search in a directory or in a `capacity.json` itself.

    UsageError when nothing is there, EvidenceError when what is there is none.
    """
    file = path / CAPACITY_FILE if path.is_dir() else path
    try:
        data = mapping(json.loads(file.read_text(encoding="utf-8"), parse_constant=lambda _: None))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError:
        raise EvidenceError(f"{file} is not valid JSON; `tune run --resume` writes it anew") from None
    version = integer(data.get("schema_version"))
    if version is None or "verdict" not in data:
        raise EvidenceError(f"{file} is no search for a capacity: it lacks a schema version or a verdict")
    if version > SCHEMA_VERSION:
        raise EvidenceError(f"{file} has schema version {version}, this version reads up to "
                            f"{SCHEMA_VERSION}; upgrade stallfree")
    return Capacity(
        directory=file.parent, created=text(data.get("created")), version=text(data.get("stallfree_version")),
        verdict=text(data.get("verdict")) or "unfinished", verdict_text=text(data.get("verdict_text")),
        rate_rps=number(data.get("rate_rps")), capacity_rps=number(data.get("capacity_rps")),
        slo=texts(data.get("slo")), confirmed=figures_from(data.get("confirmed")),
        attempts=_runs(data.get("attempts")), runs=_runs(data.get("runs")),
        workload=mapping(data.get("workload")), server=mapping(data.get("server")),
        environment=mapping(data.get("environment")), wall_seconds=number(data.get("wall_seconds")),
        warnings=texts(data.get("warnings")), raw=data)


def _runs(value: object) -> tuple[Figures, ...]:
    return tuple(run for run in map(figures_from, mappings(value)) if run)
