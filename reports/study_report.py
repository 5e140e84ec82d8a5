"""A study as a document: what to run, why, what it costs, and whether to believe it."""

from pathlib import PurePath

from reports.comparison import COMPARED, Comparison, Difference, compare, optimism, same_setting, traded
from reports.definitions import definitions
from reports.document import (
    Block,
    Bullets,
    Command,
    Details,
    Document,
    Facts,
    Headline,
    KeyFigure,
    Notice,
    Paragraph,
    Section,
    Tone,
)
from reports.evidence import Evidence
from reports.load_chart import load_chart
from reports.objectives import chart_metric
from reports.quantities import capitalised, duration, quantity
from reports.run_load import OPEN_LOOP
from reports.shown_settings import shown_settings
from reports.simulated import BADGE, METHOD, badge, marked_status, simulated_notice, simulated_study
from reports.study import Setting, Study
from reports.study_facts import environment_facts, knob_value, serve_note, setting_facts, workload_facts
from reports.study_tables import comparison_table, runs_table, slo_table, trials_table
from reports.survival_chart import Curve, survival_chart
from reports.trials_chart import trials_chart

_STATUS: dict[str, tuple[str, Tone]] = {
    "recommended": ("Recommended", "good"),
    "default_is_best": ("Keep the default", "good"),
    "not_confirmed": ("Not confirmed", "bad"),
    "cut_short": ("Not decided", "bad"),
    "no_evidence": ("No setting could be measured", "bad"),
    "slo_infeasible": ("SLO not met by any setting", "bad"),
    "unfinished": ("Unfinished", "muted"),
}
_TILES = ("capacity_rps", "p99_tbt_ms", "max_tbt_ms", "fluidity_p10")


def study_document(study: Study, evidence: Evidence) -> Document:
    """The report of a finished or half-written study; what is missing is named where it would stand."""
    comparison, simulation = compare(study), simulated_study(study.environment)
    slo_metrics = [
        chart_metric(study, metric, stat).quantity for metric, stat in (("tbt", "p99"), ("fluidity", "p10"))
    ]
    sections = (
        _verdict(study, comparison),
        _comparison(study, comparison),
        Section("gaps", "Where streams stall",
                (*simulated_notice(simulation), *_missing(evidence.missing), _survival(study, evidence))),
        Section("load", "Under load", (load_chart(study),)),
        Section("tried", "What was tried", (trials_chart(study), *_trials(study, evidence))),
        Section(
            "workload", "Workload", _facts(workload_facts(study), "The study does not describe its workload.")
        ),
        Section(
            "environment",
            "Environment",
            _facts(environment_facts(study), "The study does not describe its environment."),
        ),
        definitions([*(quantity(key) for key in COMPARED), *slo_metrics], tuned=True,
                    sending=(OPEN_LOOP, *((METHOD,) if simulation else ()))),
    )
    model = _model_name(str(study.environment.get("model") or ""))
    made = f"stallfree {study.version}" if study.version else "stallfree"
    return Document(
        title=f"{'Simulated scheduler' if simulation else 'Scheduler'} settings"
        + (f" for {model}" if model else ""),
        source=str(study.workload.get("name") or ""),
        sections=sections,
        footer=f"{made}{f', study of {study.created}' if study.created else ''}",
        badge=badge([simulation]),
    )


def _model_name(model: str) -> str:
    """A name as on the Hub as it is; of a path its last part. The environment shows it whole."""
    return model if model.count("/") == 1 and not model.startswith("/") else PurePath(model).name


def verdict_line(study: Study) -> tuple[str, Tone, str]:
    """The verdict in a few words, its tone, and the one sentence that explains it."""
    status, tone = _STATUS.get(study.verdict, (capitalised(study.verdict.replace("_", " ")), "muted"))
    status = marked_status(status, simulated_study(study.environment))
    return status, tone, ended(study.verdict_text) or _own_words(study)


def confirmation_doubt(study: Study) -> str:
    """What went wrong when the recommendation was confirmed; empty where nothing did or a warning says it."""
    note = study.recommended.note if study.recommended else ""
    if not note or note in study.warnings:
        return ""
    return ended(f"Confirmation of the recommended setting: {note}")


def ended(sentence: str) -> str:
    """Words of the tuner as a sentence of their own, with a capital and a full stop."""
    whole = capitalised(sentence.strip())
    return whole if not whole or whole.endswith((".", "!", "?")) else f"{whole}."


def _verdict(study: Study, comparison: Comparison | None) -> Section:
    status, tone, sentence = verdict_line(study)
    blocks: list[Block] = [Headline(status, tone, sentence, _tiles(comparison))]
    blocks += simulated_notice(simulated_study(study.environment))
    blocks += [Notice(ended(warning)) for warning in study.warnings]
    if doubt := confirmation_doubt(study):
        blocks.append(Notice(doubt))
    chosen = study.recommended
    if chosen is None:
        unfinished = study.verdict == "unfinished"
        said = "There is no recommendation yet." if unfinished else "No setting is recommended."
        blocks.append(Notice(said, "Missing"))
    else:
        if chosen.serve_command:
            which = "recommended" if study.verdict != "not_confirmed" else "unconfirmed"
            if simulated_study(study.environment):
                which = f"{which}, {BADGE.lower()}"
            label = f"Serve with the {which} settings"
            blocks.append(Command(chosen.serve_command, label, serve_note(study)))
        blocks.append(setting_facts(chosen))
        if not simulated_study(study.environment):  # which starts no engine that could disobey
            blocks += _read_back(chosen)
    return Section("verdict", "Verdict", tuple(blocks))


def _own_words(study: Study) -> str:
    judged = sum(bool(trial.runs) for trial in study.trials)
    if not study.trials:
        return "No trial has finished."
    return f"{judged} of {len(study.trials)} trials have measurements; no verdict was written."


def _tiles(comparison: Comparison | None) -> tuple[KeyFigure, ...]:
    if comparison is None:
        return ()
    shown = [comparison.of(key) for key in _TILES if comparison.of(key).recommended is not None]
    return tuple(_tile(item, comparison) for item in shown)


def _tile(item: Difference, comparison: Comparison) -> KeyFigure:
    named = item.quantity
    against = f"default {named.show(item.default)}"
    lowest = comparison.default_failed_down_to_rps
    if named.key == "capacity_rps" and item.default is None and lowest is not None:
        against = f"default none, tried down to {named.show(lowest)}"
    tone: Tone = "good" if item.effect == "better" else "bad" if item.effect == "worse" else ""
    value, _, unit = named.show(item.recommended).partition("\u00a0")
    return KeyFigure(capitalised(named.label), value, unit, against, tone)


def _read_back(chosen: Setting) -> list[Block]:
    if not chosen.effective_knobs:
        unread = "The settings have not been read back from an engine started with this configuration."
        return [Notice(unread, "Note")]
    changed = [
        f"{name.replace('_', ' ')} is {knob_value(got)} instead of {knob_value(chosen.knobs[name])}"
        for name, got in chosen.effective_knobs.items()
        if name in chosen.knobs and got != chosen.knobs[name]
    ]
    if changed:
        return [Notice(f"The started engine reports other settings than asked for: {'; '.join(changed)}.")]
    return [Paragraph("An engine started from this configuration reported exactly these settings.")]


def _comparison(study: Study, comparison: Comparison | None) -> Section:
    blocks: list[Block] = []
    if same_setting(study):
        blocks.append(Paragraph("The recommended setting is the engine's default; nothing is traded."))
    elif comparison is None:
        blocks.append(Notice("The default and the recommendation have not both been measured.", "Missing"))
    elif sentences := traded(comparison):
        blocks.append(Bullets(sentences))
    if comparison is not None:
        blocks.append(Paragraph(comparison.basis))
        if comparison.caution:
            blocks.append(Notice(comparison.caution))
        blocks.append(comparison_table(comparison))
    # That the default misses the SLO is no warning, it is why there is another recommendation.
    if study.default is not None and study.default.note:
        blocks.append(Notice(ended(f"Confirmation of the default: {study.default.note}"), "Note"))
    if study.recommended is not None and (said := optimism(study.recommended)):
        blocks.append(Paragraph(said))
    blocks.append(slo_table(study) if study.slo else Notice("The study names no SLO.", "Missing"))
    return Section("comparison", "What was traded", tuple(blocks))


def _survival(study: Study, evidence: Evidence) -> Block:
    metric = chart_metric(study, "tbt", "p99")
    curves = []
    for shown in shown_settings(study):
        sketch = evidence.recommended if shown.setting is study.recommended else evidence.default
        if sketch is not None:
            curves.append(Curve(shown.name, shown.colour, shown.dash, sketch))
    caution = "" if evidence.alike else "The two runs offered different loads."
    return survival_chart(curves, slo=metric, caution=caution)


def _trials(study: Study, evidence: Evidence) -> tuple[Block | Details, ...]:
    if not study.trials:
        return (Notice("No trial has finished yet.", "Missing"),)
    count = "1 trial" if len(study.trials) == 1 else f"{len(study.trials)} trials"
    spent = f" in {duration(study.wall_seconds)}" if study.wall_seconds is not None else ""
    starts = f", engine starts: {study.engine_starts}" if study.engine_starts is not None else ""
    runs = runs_table(study, evidence.unlisted)
    folded = (Details(f"All {len(runs.rows)} runs", (runs,)),) if runs.rows else ()
    return (Paragraph(f"{count}{spent}{starts}."), trials_table(study), *folded)


def _missing(reasons: tuple[str, ...]) -> tuple[Block, ...]:
    return tuple(Notice(reason, "Missing") for reason in reasons)


def _facts(facts: Facts, otherwise: str) -> tuple[Block, ...]:
    return (facts,) if facts.items else (Notice(otherwise, "Missing"),)
