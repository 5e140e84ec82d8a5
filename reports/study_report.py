"""A study as a document: what to run, why, what it costs, and whether to believe it."""

from reports.comparison import COMPARED, Comparison, Difference, compare, optimism, same_setting, traded
from reports.definitions import definitions
from reports.document import (
    Block,
    Bullets,
    Command,
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
from reports.shown_settings import shown_settings
from reports.study import Setting, Study
from reports.study_tables import comparison_table, environment_facts, slo_table, trials_table, workload_facts
from reports.survival_chart import Curve, survival_chart
from reports.trials_chart import trials_chart

_STATUS: dict[str, tuple[str, Tone]] = {
    "recommended": ("Recommended", "good"),
    "default_is_best": ("Keep the default", "good"),
    "not_confirmed": ("Not confirmed", "bad"),
    "slo_infeasible": ("SLO not met by any setting", "bad"),
    "unfinished": ("Unfinished", "muted"),
}
_TILES = ("capacity_rps", "p99_tbt_ms", "max_tbt_ms", "fluidity_p10")


def study_document(study: Study, evidence: Evidence) -> Document:
    """The report of a finished or half-written study; what is missing is named where it would stand."""
    comparison = compare(study)
    slo_metrics = [
        chart_metric(study, metric, stat).quantity for metric, stat in (("tbt", "p99"), ("fluidity", "p10"))
    ]
    sections = (
        _verdict(study, comparison),
        _comparison(study, comparison),
        Section("gaps", "Where streams stall", (*_missing(evidence.missing), _survival(study, evidence))),
        Section("load", "Under load", (load_chart(study),)),
        Section("tried", "What was tried", (trials_chart(study), *_trials(study))),
        Section(
            "workload", "Workload", _facts(workload_facts(study), "The study does not describe its workload.")
        ),
        Section(
            "environment",
            "Environment",
            _facts(environment_facts(study), "The study does not describe its environment."),
        ),
        definitions([*(quantity(key) for key in COMPARED), *slo_metrics], tuned=True),
    )
    model = str(study.environment.get("model") or "")
    made = f"stallfree {study.version}" if study.version else "stallfree"
    return Document(
        title="Scheduler settings" + (f" for {model}" if model else ""),
        source=str(study.workload.get("name") or ""),
        sections=sections,
        footer=f"{made}{f', study of {study.created}' if study.created else ''}",
    )


def verdict_line(study: Study) -> tuple[str, Tone, str]:
    """The verdict in a few words, its tone, and the one sentence that explains it."""
    status, tone = _STATUS.get(study.verdict, (capitalised(study.verdict.replace("_", " ")), "muted"))
    return status, tone, study.verdict_text or _own_words(study)


def _verdict(study: Study, comparison: Comparison | None) -> Section:
    status, tone, sentence = verdict_line(study)
    blocks: list[Block] = [Headline(status, tone, sentence, _tiles(comparison))]
    blocks += [Notice(warning) for warning in study.warnings]
    chosen = study.recommended
    if chosen is None:
        unfinished = study.verdict == "unfinished"
        said = "There is no recommendation yet." if unfinished else "No setting is recommended."
        blocks.append(Notice(said, "Missing"))
    else:
        if chosen.serve_command:
            blocks.append(Command(chosen.serve_command, "Serve with the recommended settings"))
        blocks.append(Facts(_setting_facts(chosen)))
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
    if named.key == "capacity_rps" and item.default is None and comparison.default_never_held:
        against = "default held the SLO at no rate"
    tone: Tone = "good" if item.effect == "better" else "bad" if item.effect == "worse" else ""
    value, _, unit = named.show(item.recommended).partition("\u00a0")
    return KeyFigure(capitalised(named.label), value, unit, against, tone)


def _setting_facts(chosen: Setting) -> tuple[tuple[str, str], ...]:
    facts = [(capitalised(name.replace("_", " ")), _plain(value)) for name, value in chosen.knobs.items()]
    if chosen.config_file:
        facts.append(
            ("Configuration file", f"{chosen.config_file} (vllm serve --config {chosen.config_file})")
        )
    return tuple(facts)


def _plain(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _read_back(chosen: Setting) -> list[Block]:
    if not chosen.effective_knobs:
        unread = "The settings have not been read back from an engine started with this configuration."
        return [Notice(unread, "Note")]
    changed = [
        f"{name.replace('_', ' ')} is {_plain(got)} instead of {_plain(chosen.knobs.get(name))}"
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
    for name, setting in (("default", study.default), ("recommended setting", study.recommended)):
        if setting is not None and setting.note:
            blocks.append(Notice(f"Confirmation of the {name}: {setting.note}"))
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
    return survival_chart(curves, limit_ms=metric.limit, caution=caution)


def _trials(study: Study) -> tuple[Block, ...]:
    if not study.trials:
        return (Notice("No trial has finished yet.", "Missing"),)
    count = "1 trial" if len(study.trials) == 1 else f"{len(study.trials)} trials"
    spent = f" in {duration(study.wall_seconds)}" if study.wall_seconds is not None else ""
    starts = f", engine starts: {study.engine_starts}" if study.engine_starts is not None else ""
    return (Paragraph(f"{count}{spent}{starts}."), trials_table(study))


def _missing(reasons: tuple[str, ...]) -> tuple[Block, ...]:
    return tuple(Notice(reason, "Missing") for reason in reasons)


def _facts(facts: Facts, otherwise: str) -> tuple[Block, ...]:
    return (facts,) if facts.items else (Notice(otherwise, "Missing"),)
