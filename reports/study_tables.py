"""The tables of a study: figures side by side, objectives, trials and runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.comparison import Comparison, Difference, capacity_words, change_text
from reports.document import Cell, Table, Tone, table
from reports.evidence import UnlistedRun
from reports.objectives import chart_metric
from reports.quantities import NONE, capitalised, duration, quantity, show
from reports.study import Judgement, Objective, ObjectiveResult, Setting, Study, Trial, knobs_label

_EFFECT_TONE: dict[str, Tone] = {"better": "good", "worse": "bad"}
_OUTCOMES = {"ok": "holds", "slo_violated": "missed"}
_OUTCOME_TONE: dict[str, Tone] = {"ok": "good", "slo_violated": "muted", "unfinished": "muted"}


def comparison_table(comparison: Comparison) -> Table:
    """Default, recommendation and change of every compared figure that either has."""
    rows: list[list[Cell | str]] = []
    for item in comparison.differences:
        if item.default is None and item.recommended is None:
            continue
        rows.append(
            [
                capitalised(item.quantity.heading),
                *compared_values(comparison, item),
                Cell(change_text(item), _EFFECT_TONE.get(item.effect, "")),
            ]
        )
    return table(("figure", "default", "recommended", "change"), rows, numeric=(1, 2, 3))


def compared_values(comparison: Comparison, item: Difference, *, units: bool = False) -> tuple[str, str]:
    """The two values of one figure; of a missing capacity what is known instead."""
    said = item.quantity.show if units else show
    missing = capacity_words(comparison) if item.quantity.key == "capacity_rps" else (NONE, NONE)
    values = (item.default, item.recommended)
    default, recommended = (
        word if value is None else said(value) for value, word in zip(values, missing, strict=True)
    )
    return default, recommended


def slo_table(study: Study) -> Table:
    """Every objective with what the default and the recommendation showed in their best-founded runs."""
    rows: list[list[Cell | str]] = [
        [
            objective_name(objective),
            _observed(study.default, objective.text),
            _observed(study.recommended, objective.text),
        ]
        for objective in study.slo
    ]
    return table(
        ("objective", "default", "recommended"),
        rows,
        caption="The SLO, judged on the confirmed runs where there are any",
    )


def objective_name(objective: Objective | ObjectiveResult) -> str:
    """The objective as the user wrote it; one that nobody wrote is marked."""
    return f"{objective.text} (implied)" if objective.implicit else objective.text


def objective_cell(result: ObjectiveResult) -> Cell:
    """What was observed for one objective, with the verdict in words and the number of samples."""
    observed = show(result.observed, result.unit)
    count = f" (n\u00a0=\u00a0{result.n})" if result.n is not None else ""
    if result.holds is None:
        return Cell(f"{observed}{count} not judged", "muted")
    why = f": {result.why}" if result.why and not result.holds else ""
    return Cell(
        f"{observed}{count} {'holds' if result.holds else 'missed'}{why}", "good" if result.holds else "bad"
    )


def trials_table(study: Study) -> Table:
    """Every trial in order, with the figures of the run that stands for it."""
    tbt, fluid = chart_metric(study, "tbt", "p99").quantity, chart_metric(study, "fluidity", "p10").quantity
    capacity = quantity("capacity_rps")
    rows: list[list[Cell | str]] = []
    for trial in study.trials:
        run = trial.judged
        values = run.values if run else {}
        rows.append(
            [
                trial.label,
                knobs_label(trial.knobs) + _standing(study, trial.knobs),
                trial.source or NONE,
                Cell(
                    _OUTCOMES.get(trial.outcome, trial.outcome.replace("_", " ")),
                    _OUTCOME_TONE.get(trial.outcome, "bad"),
                ),
                show(trial.capacity_rps),
                str(len(trial.runs)),
                show(run.rate_rps if run else None),
                show(values.get(tbt.key)),
                show(values.get(fluid.key)),
                duration(_spent(trial)),
                trial.note,
            ]
        )
    return table(
        (
            "trial",
            "setting",
            "from",
            "SLO",
            capacity.heading,
            "runs",
            "judged at (requests/s)",
            tbt.heading,
            fluid.heading,
            "time",
            "note",
        ),
        rows,
        numeric=(0, 4, 5, 6, 7, 8, 9),
    )


def runs_table(study: Study, unlisted: Sequence[UnlistedRun]) -> Table:
    """Every run of the study by the name of its directory, which numbers them in their order: those of
    trials, the scouts and the confirmations, also those that the study's JSON does not name."""
    tbt, fluid = chart_metric(study, "tbt", "p99").quantity, chart_metric(study, "fluidity", "p10").quantity
    known = {
        run.run or f"{NONE} {position}": (trial.label, trial.knobs, run)
        for trial in study.trials
        for position, run in enumerate(trial.runs)
    }
    for setting in filter(None, (study.default, study.recommended)):
        for run in (setting.confirmed, *setting.attempts):
            if run:
                known[run.run] = ("confirmation", setting.knobs, run)
    for item in unlisted:
        where = "confirmation" if "-confirm" in item.figures.run else NONE
        known[item.figures.run] = (where, item.knobs, item.figures)
    rows: list[list[Cell | str]] = [
        [
            name.removeprefix("runs/") or NONE,
            trial,
            knobs_label(knobs),
            show(run.rate_rps),
            show(run.values.get("completed")),
            show(run.values.get(tbt.key)),
            show(run.values.get(fluid.key)),
            run.slo_word,
        ]
        for name, (trial, knobs, run) in sorted(known.items())
    ]
    columns = ("run", "trial", "setting", "rate (requests/s)", "completed", tbt.heading, fluid.heading, "SLO")
    return table(columns, rows, numeric=(3, 4, 5, 6))


def _observed(setting: Setting | None, objective: str) -> Cell:
    judgement = setting.best.judgement if setting and setting.best else Judgement()
    for result in judgement.objectives:
        if objective in (result.objective, result.text):
            return objective_cell(result)
    return Cell(f"{NONE} not judged", "muted")


def _spent(trial: Trial) -> float | None:
    # A trial that only scouts had played took no time of its own.
    times = [run.seconds for run in trial.runs if run.seconds is not None]
    return max(filter(None, (trial.seconds, sum(times))), default=trial.seconds)


def _standing(study: Study, knobs: Mapping[str, Any]) -> str:
    names = [
        name
        for name, setting in (("default", study.default), ("recommended", study.recommended))
        if setting is not None and setting.knobs == knobs
    ]
    return f" ({', '.join(names)})" if names else ""
