"""What a study's run directories add to its JSON: the distribution of the gaps between tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench import Run, TokenArrivals, load_head, load_run
from reports.objectives import chart_metric
from reports.quantities import canonical
from reports.study import Figures, Judgement, Setting, Study
from reports.survival import Survival, survival
from reports.tolerant import mapping, number, numbers
from workloads.errors import StallfreeError


@dataclass(frozen=True, slots=True)
class UnlistedRun:
    """A run directory that the study's JSON does not name, as one that a confirmation had to repeat at
    a lower rate. Whether it held is not known."""

    knobs: Mapping[str, Any]
    figures: Figures


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sketches of the runs behind the default and the recommendation; None where there is none,
    and `missing` says why in one sentence each. `alike` is false when their rates differ."""

    default: Survival | None
    recommended: Survival | None
    missing: tuple[str, ...]
    alike: bool
    unlisted: tuple[UnlistedRun, ...] = ()


def gather(study: Study) -> Evidence:
    """Reads the run of each setting's best figures: the confirmed ones where both have them."""
    both = study.default and study.recommended and study.default.confirmed and study.recommended.confirmed
    default, default_why = _sketch(study, "default", study.default, confirmed=bool(both))
    recommended, recommended_why = _sketch(study, "recommended", study.recommended, confirmed=bool(both))
    rates = [
        figures.rate_rps
        for setting in (study.default, study.recommended)
        if (figures := _chosen(setting, confirmed=bool(both))) is not None
    ]
    missing = tuple(filter(None, (default_why, recommended_why)))
    return Evidence(
        default, recommended, missing, alike=len(set(rates)) <= 1, unlisted=tuple(_unlisted(study))
    )


def sketch(run: Run, limit_ms: float | None = None) -> Survival:
    """The pooled gaps between tokens of a run's successful requests, warm-up left out."""
    return survival(TokenArrivals.from_run(run, run.ok).token_gaps_ns(), limit_ms)


def _unlisted(study: Study) -> Iterator[UnlistedRun]:
    settings = [setting for setting in (study.default, study.recommended) if setting]
    listed = {run.run for trial in study.trials for run in trial.runs}
    listed |= {run.run for setting in settings
               for run in (setting.search, setting.confirmed, *setting.attempts) if run}
    for directory in sorted((study.directory / "runs").glob("*/")):
        name = directory.relative_to(study.directory).as_posix()
        if name in listed:
            continue
        try:
            head = load_head(directory)
        except StallfreeError:
            continue  # half written: it is no evidence of anything
        meta, told = mapping(head.get("meta")), numbers(head.get("summary"))
        values = {canonical(key): value for key, value in told.items()}
        yield UnlistedRun(
            mapping(meta.get("knobs")), Figures(number(meta.get("rate_rps")), name, None, Judgement(), values)
        )


def _chosen(setting: Setting | None, *, confirmed: bool) -> Figures | None:
    if setting is None:
        return None
    return setting.confirmed if confirmed else setting.search or setting.confirmed


def _sketch(
    study: Study, name: str, setting: Setting | None, *, confirmed: bool
) -> tuple[Survival | None, str]:
    figures = _chosen(setting, confirmed=confirmed)
    if figures is None:
        return None, f"The {name} setting has not been measured yet."
    if not figures.run:
        return None, f"The study names no run for the figures of the {name} setting."
    try:
        limit_ms = chart_metric(study, "tbt", "p99").limit
        return sketch(load_run(study.directory / figures.run), limit_ms), ""
    except StallfreeError as error:
        return None, f"The run of the {name} setting cannot be read: {error}."
