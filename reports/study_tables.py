"""The tables of a study: figures side by side, objectives, trials, workload and environment."""

from collections.abc import Iterator, Mapping
from typing import Any

from reports.comparison import Comparison, change_text
from reports.document import Cell, Facts, Table, Tone, table
from reports.objectives import chart_metric
from reports.quantities import NONE, capitalised, duration, quantity, show
from reports.study import Judgement, Objective, ObjectiveResult, Setting, Study, knobs_label
from reports.tolerant import mappings, number

_EFFECT_TONE: dict[str, Tone] = {"better": "good", "worse": "bad"}
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
                show(item.default),
                show(item.recommended),
                Cell(change_text(item), _EFFECT_TONE.get(item.effect, "")),
            ]
        )
    return table(("figure", "default", "recommended", "change"), rows, numeric=(1, 2, 3))


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
                Cell(trial.outcome.replace("_", " "), _OUTCOME_TONE.get(trial.outcome, "bad")),
                show(trial.capacity_rps),
                show(run.rate_rps if run else None),
                show(values.get(tbt.key)),
                show(values.get(fluid.key)),
                run.slo_word if run else "not judged",
                duration(trial.seconds),
                trial.note,
            ]
        )
    return table(
        (
            "trial",
            "setting",
            "from",
            "outcome",
            capacity.heading,
            "judged at (requests/s)",
            tbt.heading,
            fluid.heading,
            "SLO",
            "time",
            "note",
        ),
        rows,
        numeric=(0, 4, 5, 6, 7, 9),
    )


def workload_facts(study: Study) -> Facts:
    """The workload's name, its components and their lengths, its arrivals and its digest."""
    workload = study.workload
    facts = [
        (label, str(workload[name]))
        for name, label in (("name", "Name"), ("description", "Description"))
        if workload.get(name)
    ]
    for part in mappings(workload.get("components")):
        weight = number(part.get("weight"))
        facts.append(
            (
                f"Component {part.get('name') or NONE}",
                f"weight {show(weight)}, prompt {part.get('input') or NONE}, "
                f"output {part.get('output') or NONE}",
            )
        )
    for name, label, unit in (
        ("mean_input", "Mean prompt", "tokens"),
        ("mean_output", "Mean output", "tokens"),
        ("burstiness", "Burstiness (1 is Poisson)", ""),
    ):
        if (value := number(workload.get(name))) is not None:
            facts.append((label, show(value, unit)))
    if workload.get("digest"):
        facts.append(("Digest", str(workload["digest"])))
    facts += _deadline_facts(study.deadlines) if facts else []
    return Facts(tuple(facts))


def environment_facts(study: Study) -> Facts:
    """Engine, model, machine and what the study cost, one line each."""
    facts = list(flat(study.environment))
    facts += [
        (label, text)
        for label, value, text in (
            ("Engine starts", study.engine_starts, str(study.engine_starts)),
            ("Engine time", study.engine_seconds, duration(study.engine_seconds)),
            ("Total time", study.wall_seconds, duration(study.wall_seconds)),
        )
        if value is not None
    ]
    return Facts(tuple(facts))


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as readable names and texts, in their order; what is empty is left out."""
    for name, value in values.items():
        label = f"{prefix} {name}".strip().replace("_", " ")
        if isinstance(value, dict):
            yield from flat(value, label)
        elif isinstance(value, list):
            if value:
                yield capitalised(label), ", ".join(str(item) for item in value)
        elif value is not None and value != "":
            yield capitalised(label), {"True": "yes", "False": "no"}.get(str(value), str(value))


def _deadline_facts(deadlines: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [
        (label, show(value, "ms"))
        for name, label in (
            ("decode_ms", "Deadline between tokens"),
            ("prefill_slack_ms", "Slack for the first token"),
            ("decode_step_ms", "Step of a small decode batch"),
        )
        if (value := number(deadlines.get(name))) is not None
    ]
    if (budget := number(deadlines.get("analytic_budget"))) is not None:
        facts.append(("Analytic budget", show(budget, "tokens")))
    points = [(number(p.get("tokens")), number(p.get("ms"))) for p in mappings(deadlines.get("curve"))]
    known = [
        f"{show(tokens)} tokens in {show(ms, 'ms')}"
        for tokens, ms in points
        if tokens is not None and ms is not None
    ]
    if known:
        facts.append(("Lone prefill", "; ".join(known)))
    return facts


def _observed(setting: Setting | None, objective: str) -> Cell:
    judgement = setting.best.judgement if setting and setting.best else Judgement()
    for result in judgement.objectives:
        if objective in (result.objective, result.text):
            return objective_cell(result)
    return Cell(f"{NONE} not judged", "muted")


def _standing(study: Study, knobs: Mapping[str, Any]) -> str:
    names = [
        name
        for name, setting in (("default", study.default), ("recommended", study.recommended))
        if setting is not None and setting.knobs == knobs
    ]
    return f" ({', '.join(names)})" if names else ""
