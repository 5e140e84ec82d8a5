"""The capacity of a server as a document: the verdict, every rate that was tried, the run that proves it."""

from dataclasses import replace
from typing import Any

from reports.capacity_file import Capacity
from reports.definitions import definitions
from reports.document import (
    Block,
    Cell,
    Document,
    Facts,
    Headline,
    KeyFigure,
    Notice,
    Paragraph,
    Section,
    Table,
    Tone,
    table,
)
from reports.quantities import NONE, capitalised, duration, quantity, show
from reports.run_report import run_document
from reports.run_view import RunView, load_view
from reports.simulated import badge, marked_status, simulated_notice, simulated_study
from reports.study import Figures
from reports.study_facts import fact_lines
from reports.study_report import ended
from reports.study_tables import objective_cell, objective_name
from reports.tolerant import mapping, text
from workloads.errors import EvidenceError

_STATUS: dict[str, tuple[str, Tone]] = {
    "confirmed": ("Confirmed", "good"),
    "not_confirmed": ("Not confirmed", "bad"),
    "slo_infeasible": ("SLO not met at any rate", "bad"),
    "cut_short": ("Not decided", "bad"),
    "no_evidence": ("Nothing could be measured", "bad"),
    "unfinished": ("Unfinished", "muted"),
}
FIGURES = ("p99_tbt_ms", "max_tbt_ms", "p90_ttft_ms", "fluidity_p10")
"""Of every run, beside its rate."""
_MEANING = (
    "Capacity is the largest offered rate, in requests per second, at which every objective of the SLO holds "
    "and the load is sustainable. The search goes up and down a ladder of rates; the confirming run is "
    "longer and has arrivals and prompts that the search had not seen."
)


def capacity_document(capacity: Capacity) -> Document:
    """The report of a search, finished or not; what is missing is named where it would stand."""
    view, missing = shown_run(capacity)
    details = () if view is None else _sections_of(view, capacity)
    sections = (
        _verdict(capacity),
        Section("runs", "Rates that were tried", _tried(capacity)),
        *([Section("run", "The run behind it", (Notice(missing, "Missing"),))] if missing else []),
        *(section for section in details if section.id != "definitions"),
        Section("server-facts", "The server", (_server(capacity),)),
        *([section for section in details if section.id == "definitions"]
          or [definitions(map(quantity, FIGURES), tuned=False)]),
    )
    made, simulation = f"stallfree {capacity.version}".rstrip(), simulated_study(capacity.environment)
    return Document(
        title=f"{'Simulated capacity' if simulation else 'Capacity'} of {_name(capacity)}",
        source=text(capacity.workload.get("name")), sections=sections,
        footer=f"{made}{f', search of {capacity.created}' if capacity.created else ''}",
        badge=badge([simulation]))


def capacity_view(capacity: Capacity) -> dict[str, Any]:
    """The same for JSON."""
    view, missing = shown_run(capacity)
    simulation = simulated_study(capacity.environment)
    return {"kind": "capacity", "verdict": capacity.verdict,
            "simulated": None if simulation is None else simulation.as_dict(), "capacity": dict(capacity.raw),
            "run": None if view is None else view.as_dict(), "missing": [missing] if missing else []}


def shown_run(capacity: Capacity) -> tuple[RunView | None, str]:
    """The run that stands for the result, or why it cannot be shown."""
    shown = capacity.shown
    if shown is None:
        return None, "No run has been measured yet."
    if not shown.run:
        return None, "Of the run that stands for the result nothing was kept."
    try:
        return load_view(capacity.directory / shown.run), ""
    except EvidenceError as error:
        return None, str(error)


def verdict_line(capacity: Capacity) -> tuple[str, Tone, str]:
    """The verdict in a few words, its tone, and the one sentence that explains it."""
    status, tone = _STATUS.get(capacity.verdict, (capitalised(capacity.verdict.replace("_", " ")), "muted"))
    status = marked_status(status, simulated_study(capacity.environment))
    return status, tone, ended(capacity.verdict_text)


def server_line(capacity: Capacity) -> str:
    """Which server runs which model where; empty while nobody knows."""
    environment = capacity.environment
    named = f"{text(environment.get('engine'))} {text(environment.get('engine_version'))}".strip()
    model, where = text(environment.get("model")), _address(capacity)
    said = f"{named or 'The server'}{f' at {where}' if where else ''}"
    return f"{said} runs {model}" if model else said if named or where else ""


def runs_table(capacity: Capacity) -> Table:
    """Every run in the order of playing, the confirming ones last."""
    rows: list[list[Cell | str]] = [
        [
            run.run.removeprefix("runs/") or NONE,
            show(run.rate_rps),
            show(run.values.get("completed")),
            *(show(run.values.get(key)) for key in FIGURES),
            _held(run),
        ]
        for run in (*capacity.runs, *capacity.attempts)
    ]
    headings = (quantity(key).heading for key in FIGURES)
    return table(("run", "rate (requests/s)", "completed", *headings, "SLO"), rows,
                 numeric=range(1, 3 + len(FIGURES)))


def narrow_runs_table(capacity: Capacity) -> Table:
    """The same in 80 columns: rates in requests/s, times in ms."""
    shorter = ("rate", "p99 TBT", "longest gap", "p90 TTFT", "p10 fluidity", "SLO")
    whole = runs_table(capacity)
    proving = len(capacity.runs)
    rows = [[row[1], *row[3:-1], replace(row[-1], text=f"{row[-1].text}{', proof' * (place >= proving)}")]
            for place, row in enumerate(whole.rows)]
    return table(shorter, rows, numeric=range(len(shorter) - 1))


def slo_table(capacity: Capacity) -> Table:
    """Every objective with what the shown run observed."""
    shown = capacity.shown
    results = () if shown is None else shown.judgement.objectives
    rows: list[list[Cell | str]] = [[objective_name(each), objective_cell(each)] for each in results]
    rate = "" if shown is None else f" at {show(shown.rate_rps, 'requests/s')}"
    return table(("objective", "observed"), rows, caption=f"The SLO{rate}")


def _verdict(capacity: Capacity) -> Section:
    status, tone, sentence = verdict_line(capacity)
    blocks: list[Block] = [Headline(status, tone, sentence, _tiles(capacity)),
                           *simulated_notice(simulated_study(capacity.environment))]
    blocks += [Notice(ended(warning)) for warning in capacity.warnings]
    if said := server_line(capacity):
        blocks.append(Paragraph(f"{said}. SLO: {', '.join(capacity.slo)}."))
    judged = slo_table(capacity)
    if judged.rows:
        blocks.append(judged)
    return Section("verdict", "Verdict", tuple(blocks))


def _tiles(capacity: Capacity) -> tuple[KeyFigure, ...]:
    shown = capacity.shown
    if shown is None:
        return ()
    values = {"capacity_rps": capacity.capacity_rps, **{key: shown.values.get(key) for key in FIGURES}}
    tiles = []
    for key, value in values.items():
        if value is not None:
            number, _, unit = quantity(key).show(value).partition("\u00a0")
            tiles.append(KeyFigure(capitalised(quantity(key).label), number, unit, ""))
    return tuple(tiles)


def _tried(capacity: Capacity) -> tuple[Block, ...]:
    spent = f" It took {duration(capacity.wall_seconds)}." if capacity.wall_seconds is not None else ""
    blocks: list[Block] = [Paragraph(_MEANING + spent)]
    tried = runs_table(capacity)
    blocks.append(tried if tried.rows else Notice("No run has been measured yet.", "Missing"))
    return tuple(blocks)


def _held(run: Figures) -> Cell:
    if run.outcome not in ("", "ok", "slo_violated"):
        return Cell(run.outcome.replace("_", " "), "bad")
    return Cell(run.slo_word, "good" if run.holds else "muted")


def _sections_of(view: RunView, capacity: Capacity) -> list[Section]:
    """The report of that run, its sections named so that they cannot be taken for the whole."""
    which = "The confirming run" if capacity.confirmed is not None else "The run that stands for the result"
    return [
        section if section.id == "definitions" else replace(
            section, id=f"run-{section.id}", title=f"{which}: {section.title[:1].lower()}{section.title[1:]}")
        for section in run_document([view]).sections
    ]


def _server(capacity: Capacity) -> Facts | Notice:
    server = mapping(capacity.server)
    target = mapping(server.get("target"))
    facts = [(label, str(value)) for label, value in (
        ("Address", target.get("base_url")), ("API", target.get("api")), ("Path", target.get("endpoint")),
        ("Command", server.get("command"))) if value]
    facts += list(fact_lines(capacity.environment))
    return Facts(tuple(facts)) if facts else Notice("The server has not been seen yet.", "Missing")


def _address(capacity: Capacity) -> str:
    if capacity.server.get("kind") != "remote":
        return ""
    return text(mapping(capacity.server.get("target")).get("base_url"))


def _name(capacity: Capacity) -> str:
    return text(capacity.environment.get("model")) or _address(capacity) or "a server"
