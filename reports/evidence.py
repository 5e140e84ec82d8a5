"""What a study's run directories add to its JSON: the distribution of the gaps between tokens."""

from dataclasses import dataclass

from bench import Run, TokenArrivals, load_run
from reports.study import Figures, Setting, Study
from reports.survival import Survival, survival
from workloads.errors import StallfreeError


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sketches of the runs behind the default and the recommendation; None where there is none,
    and `missing` says why in one sentence each. `alike` is false when their rates differ."""

    default: Survival | None
    recommended: Survival | None
    missing: tuple[str, ...]
    alike: bool


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
    return Evidence(
        default, recommended, tuple(filter(None, (default_why, recommended_why))), alike=len(set(rates)) <= 1
    )


def sketch(run: Run) -> Survival:
    """The pooled gaps between tokens of a run's successful requests, warm-up left out."""
    return survival(TokenArrivals.from_run(run, run.ok).token_gaps_ns())


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
        return sketch(load_run(study.directory / figures.run)), ""
    except StallfreeError as error:
        return None, f"The run of the {name} setting cannot be read: {error}."
