"""`recommendation.json` as a Study.

Reading never fails because a part is missing or of the wrong shape: the report says what is
missing. Only what is no study at all is refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.quantities import canonical
from reports.study import Figures, Judgement, Objective, ObjectiveResult, Setting, Study, Trial
from reports.tolerant import flag, integer, mapping, mappings, number, numbers, text, texts
from workloads.errors import EvidenceError, UsageError

STUDY_FILE = "recommendation.json"
SCHEMA_VERSION = 1


def load_study(path: Path) -> Study:
    """The study in a directory or in a `recommendation.json` itself.

    Raises UsageError when nothing is there, EvidenceError when what is there is no study.
    """
    file = path / STUDY_FILE if path.is_dir() else path
    try:
        # NaN and infinity, which Python writes and JSON does not know, are no figures.
        raw = json.loads(file.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except FileNotFoundError:
        if path.is_dir():
            raise EvidenceError(
                f"{path} is no study: it has no {STUDY_FILE}; give the directory that `tune run` wrote"
            ) from None
        raise UsageError(f"{path} does not exist; give a study or run directory") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None
    except ValueError:
        raise EvidenceError(f"{file} is not valid JSON; `tune run --resume` writes it anew") from None
    return study_from(raw, file)


def study_from(raw: object, file: Path) -> Study:
    """The study in an already parsed `recommendation.json`; `file` is where it was read from.

    Raises EvidenceError for another schema version or something that is no study.
    """
    data = mapping(raw)
    version = integer(data.get("schema_version"))
    if version is None or not ({"trials", "verdict"} & set(data)):
        raise EvidenceError(f"{file} is no study: it lacks a schema version, trials or a verdict")
    if version > SCHEMA_VERSION:
        raise EvidenceError(
            f"{file} has schema version {version}, this version reads up to "
            f"{SCHEMA_VERSION}; upgrade stallfree"
        )
    return Study(
        directory=file.parent,
        created=text(data.get("created")),
        version=text(data.get("stallfree_version")),
        verdict=text(data.get("verdict")) or "unfinished",
        verdict_text=text(data.get("verdict_text")),
        objective=text(data.get("objective")),
        rate_rps=number(data.get("rate_rps")),
        recommended=_setting(data.get("recommended")),
        default=_setting(data.get("default")),
        slo=tuple(_objective(item) for item in mappings(data.get("slo"))),
        deadlines=mapping(data.get("deadlines")),
        workload=mapping(data.get("workload")),
        trials=tuple(_trial(item) for item in mappings(data.get("trials"))),
        engine_starts=integer(data.get("engine_starts")),
        engine_seconds=number(data.get("engine_seconds")),
        wall_seconds=number(data.get("wall_seconds")),
        environment=mapping(data.get("environment")),
        warnings=texts(data.get("warnings")),
        raw=data,
    )


def judgement_from(value: object) -> Judgement:
    """A judgement in the form that a study stores; empty for anything else."""
    data = mapping(value)
    results = tuple(
        ObjectiveResult(
            text=text(item.get("text")),
            objective=text(item.get("objective")) or text(item.get("text")),
            implicit=flag(item.get("implicit")) or False,
            observed=number(item.get("observed")),
            limit=number(item.get("limit")),
            unit=text(item.get("unit")),
            n=integer(item.get("n")),
            holds=flag(item.get("holds")),
            why=text(item.get("why")),
        )
        for item in mappings(data.get("objectives"))
    )
    return Judgement(holds=flag(data.get("holds")), objectives=results)


def _objective(item: Mapping[str, Any]) -> Objective:
    return Objective(
        text=text(item.get("text")),
        metric=text(item.get("metric")),
        stat=text(item.get("stat")),
        op=text(item.get("op")),
        limit=number(item.get("limit")),
        unit=text(item.get("unit")),
        implicit=flag(item.get("implicit")) or False,
    )


def figures_from(value: object) -> Figures | None:
    """One run as a study stores it; None for anything else."""
    data = mapping(value)
    if not data:
        return None
    return Figures(
        rate_rps=number(data.get("rate_rps")),
        run=text(data.get("run")),
        holds=flag(data.get("holds")),
        judgement=judgement_from(data.get("judgement")),
        values={canonical(name): value for name, value in numbers(data.get("figures")).items()},
        capacity_rps=number(data.get("capacity_rps")),
        seconds=number(data.get("seconds")),
        outcome=text(data.get("outcome")),
    )


def _setting(value: object) -> Setting | None:
    data = mapping(value)
    if not data:
        return None
    return Setting(
        knobs=mapping(data.get("knobs")),
        serve_command=text(data.get("serve_command")),
        config_file=text(data.get("config_file")),
        search=figures_from(data.get("search")),
        confirmed=figures_from(data.get("confirmed")),
        attempts=tuple(run for run in map(figures_from, mappings(data.get("attempts"))) if run),
        effective_knobs=mapping(data.get("effective_knobs")),
        note=text(data.get("note")) or text(mapping(data.get("confirmed")).get("note")),
    )


def _trial(item: Mapping[str, Any]) -> Trial:
    return Trial(
        number=integer(item.get("number")),
        knobs=mapping(item.get("knobs")),
        source=text(item.get("source")),
        outcome=text(item.get("outcome")) or "unfinished",
        capacity_rps=number(item.get("capacity_rps")),
        runs=tuple(run for run in map(figures_from, mappings(item.get("runs"))) if run),
        seconds=number(item.get("seconds")),
        note=text(item.get("note")),
    )
