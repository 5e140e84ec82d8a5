"""One run, or several side by side, as a document: validity first, then set-up, then results."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reports.chart_parts import ACCENT, BAD, FOURTH, NEUTRAL, THIRD
from reports.definitions import definitions
from reports.document import (
    Block,
    Bullets,
    Cell,
    Details,
    Document,
    Facts,
    Headline,
    KeyFigure,
    Notice,
    Paragraph,
    Section,
    Table,
    table,
)
from reports.quantities import NONE, capitalised, quantity, show
from reports.run_view import RunView, distinct_names, setup_rows
from reports.simulated import Simulation, badge, simulated_notice
from reports.stage_table import stage_table, whole_run_note
from reports.survival_chart import Curve, survival_chart
from reports.tenant_table import tenant_table

FROM_INTENDED = ("mean_ttft_ms", "mean_ttft_from_intended_ms", "p99_ttft_from_intended_ms")
"""Shown where a cap or a late client makes them differ from the figures from the send."""
_LEADING = (
    "request_throughput",
    "output_throughput",
    "p99_tbt_ms",
    "max_tbt_ms",
    "fluidity_p10",
    "fluidity_pooled",
    "stalled_requests",
    "median_ttft_ms",
    "p99_ttft_ms",
    *FROM_INTENDED,
    "median_tpot_ms",
    "p99_itl_ms",
    "p99_e2el_ms",
    "median_scheduling_delay_ms",
    "longest_stall_ms",
    "error_rate",
    "achieved_rate_fraction",
)
"""The figures shown at once; everything else that was measured is folded away."""
_DIFFERENT = 1.02
_TILES = ("p99_tbt_ms", "max_tbt_ms", "median_ttft_ms", "output_throughput")
_LINES = ((ACCENT, "solid"), (NEUTRAL, "dash"), (BAD, "dot"), (THIRD, "dashdot"), (FOURTH, "longdash"))


def run_document(views: Sequence[RunView]) -> Document:
    """The report of at least one run."""
    names = distinct_names(views)
    leading = leading_figures(_LEADING, views)
    sections = [_validity(views, names)]
    if len(views) > 1:
        sections.append(_setups(views, names))
    sections.append(_results(views, names, leading))
    sections += _stages(views, names)
    sections += _tenants(views, names)
    curves = [
        Curve(name, *_LINES[position % len(_LINES)], view.gaps)
        for position, (name, view) in enumerate(zip(names, views, strict=True))
    ]
    sections.append(Section("gaps", "Where streams stall", (survival_chart(curves),)))
    sections += _sides(views, names)
    if len(views) == 1:
        facts = tuple(views[0].setup.items())
        told = Facts(facts) if facts else Notice("The run does not describe its set-up.", "Missing")
        sections.append(Section("setup", "Set-up", (told,)))
    shown = [quantity(key) for key in leading if any(key in view.figures for view in views)]
    rules = dict.fromkeys(rule for view in views for rule in view.rules)
    sections.append(definitions(shown, tuned=False, sending=rules))
    simulations = [view.simulation for view in views]
    return Document(_title(names, simulations), views[0].setup.get("Workload name", ""), tuple(sections),
                    "stallfree", badge(simulations))


def _title(names: Sequence[str], simulations: Sequence[Simulation | None]) -> str:
    simulated = sum(simulation is not None for simulation in simulations)
    if len(names) == 1:
        return f"Simulated run {names[0]}" if simulated else f"Run {names[0]}"
    if simulated == len(names):
        return f"{len(names)} simulated runs compared"
    return f"{len(names)} runs compared{f', {simulated} of them simulated' if simulated else ''}"


def leading_figures(keys: Sequence[str], views: Sequence[RunView]) -> list[str]:
    """`keys` without those from the intended send, where they say the same as those from the send."""
    differ = any(
        (sent := view.figures.get(f"{stat}_ttft_ms")) is not None
        and (intended := view.figures.get(f"{stat}_ttft_from_intended_ms")) is not None
        and intended > _DIFFERENT * sent
        for view in views for stat in ("mean", "p99")
    )
    return [key for key in keys if differ or key not in FROM_INTENDED]


def run_status(views: Sequence[RunView]) -> str:
    """Whether the runs are valid, and whether they were measured at all, in a word or two."""
    valid = all(view.validity.valid for view in views)
    if any(view.simulation is None for view in views):
        return "Valid" if valid else "Invalid"
    return "Simulated" if valid else "Simulated, invalid"


def run_sentence(view: RunView) -> str:
    """How many requests succeeded, at which load, how many did not and why."""
    load = f" {view.load}" if view.load else ""
    counts = (f"{view.completed} of {view.requests} requests succeeded{load}, "
              f"{show(float(view.gaps.n))} gaps between tokens.")
    return f"{counts} {view.failed_sentence}".rstrip()


def _validity(views: Sequence[RunView], names: Sequence[str]) -> Section:
    bad = [name for name, view in zip(names, views, strict=True) if not view.validity.valid]
    blocks: list[Block] = []
    if bad:
        # The counts are true of an invalid run too.
        counts = f" {run_sentence(views[0])}" if len(views) == 1 else ""
        sentence = f"The figures do not describe the engine: invalid is {', '.join(bad)}.{counts}"
    else:
        sentence = run_sentence(views[0]) if len(views) == 1 else f"All {len(views)} runs are valid."
    tiles = _tiles(views[0]) if len(views) == 1 else ()
    blocks.append(Headline(run_status(views), "bad" if bad else "good", sentence, tiles))
    for name, view in zip(names, views, strict=True):
        blocks += simulated_notice(view.simulation, f"{name}: " if len(views) > 1 else "")
    if len(views) > 1:
        told = zip(names, views, strict=True)
        blocks.append(Bullets(tuple(f"{name}: {run_sentence(view)}" for name, view in told)))
    for name, view in zip(names, views, strict=True):
        blocks += _doubts(view, f"{name}: " if len(views) > 1 else "")
    return Section("verdict", "Validity", tuple(blocks))


def _doubts(view: RunView, prefix: str) -> list[Block]:
    """Everything that a reader must know before he believes the figures."""
    blocks: list[Block] = [Notice(prefix + reason, "Invalid") for reason in view.validity.reasons]
    if view.failure:
        blocks.append(Notice(f"{prefix}the engine failed: {view.failure}"))
    if view.failed:
        blocks.append(Notice(f"{prefix}latencies are those of the {view.completed} requests that succeeded, "
                             f"not of the {view.failed} that did not."))
        if view.first_errors:
            blocks.append(Bullets(tuple(prefix + line for line in view.first_errors)))
    blocks += [Notice(f"{prefix}the load was not sustainable: {why}") for why in view.unsustainable]
    blocks += [Notice(prefix + warning) for warning in view.warnings]
    return [*blocks, *(Notice(prefix + note, "Note") for note in view.notes)]


def _tiles(view: RunView) -> tuple[KeyFigure, ...]:
    tiles = []
    for key in _TILES:
        named = quantity(key)
        value, _, unit = named.show(view.figures.get(key)).partition("\u00a0")
        tiles.append(KeyFigure(capitalised(named.label), value, unit, ""))
    return tuple(tiles)


def _setups(views: Sequence[RunView], names: Sequence[str]) -> Section:
    differing, same = setup_rows(views)
    blocks: list[Block | Details] = []
    if differing:
        said = "These settings differ; every difference in the results below may come from any of them."
        rows = [[name, *(value or NONE for value in values)] for name, *values in differing]
        blocks += [Paragraph(said), table(("setting", *names), rows)]
    else:
        blocks.append(Paragraph("The recorded set-ups are equal."))
    if same:
        blocks.append(Details(f"{len(same)} settings are the same", (Facts(tuple(same)),)))
    return Section("setup", "Differences in set-up", tuple(blocks))


def _results(views: Sequence[RunView], names: Sequence[str], keys: Sequence[str]) -> Section:
    known = {*_LEADING, "completed", "failed"}
    rest = sorted(key for key in {key for view in views for key in view.figures} - known
                  if not key.startswith("client_"))
    counts: list[list[Cell | str]] = [
        ["Succeeded requests", *(show(float(view.completed)) for view in views)],
        [
            "Other requests",
            *(Cell(show(float(view.failed)), "bad" if view.failed else "") for view in views),
        ],
    ]
    leading = _figures(views, names, keys)
    merged = table(leading.columns, [*counts, *leading.rows], numeric=tuple(leading.numeric))
    blocks: list[Block | Details] = [merged]
    if any(view.tokens for view in views):
        blocks.append(_told([view.tokens for view in views], names, "Tokens asked for and counted"))
    if rest:
        blocks.append(Details(f"{len(rest)} further figures", (_figures(views, names, rest),)))
    return Section("results", "Results", tuple(blocks))


def _stages(views: Sequence[RunView], names: Sequence[str]) -> list[Section]:
    staged = [(name, view) for name, view in zip(names, views, strict=True) if view.stages]
    if not staged:
        return []
    blocks: list[Block] = []
    for name, view in staged:
        caption = name if len(views) > 1 else ""
        blocks += [Paragraph(whole_run_note(view.stages)), replace(stage_table(view.stages), caption=caption)]
    return [Section("stages", "Stages of the load", tuple(blocks))]


def _tenants(views: Sequence[RunView], names: Sequence[str]) -> list[Section]:
    blocks = [replace(tenant_table(view.tenants), caption=name if len(views) > 1 else "")
              for name, view in zip(names, views, strict=True) if view.tenants]
    if not blocks:
        return []
    said = "Each tenant's requests alone, by what that tenant is promised; the figures above are of all."
    return [Section("tenants", "Tenants", (Paragraph(said), *blocks))]


def _sides(views: Sequence[RunView], names: Sequence[str]) -> list[Section]:
    """The two sides of a measurement: the client that measured, and what the server says itself."""
    sections = []
    if any(view.client for view in views):
        said = "How the measuring process itself fared: what was late here is not the server's."
        told = _told([view.client for view in views], names)
        sections.append(Section("client", "The client", (Paragraph(said), told)))
    if any(view.server for view in views):
        said = "What its own counters gained from just before the run until just after it, warm-up included."
        told = _told([view.server for view in views], names)
        sections.append(Section("server", "The server", (Paragraph(said), told)))
    return sections


def _told(facts: Sequence[Mapping[str, str]], names: Sequence[str], caption: str = "") -> Table:
    """Facts of each run side by side."""
    rows = [[name, *(of_run.get(name, NONE) for of_run in facts)]
            for name in dict.fromkeys(name for of_run in facts for name in of_run)]
    return table(("", *names), rows, caption=caption)


def _figures(views: Sequence[RunView], names: Sequence[str], keys: Sequence[str]) -> Table:
    rows = [
        [capitalised(quantity(key).heading), *(show(view.figures.get(key)) for view in views)]
        for key in keys
        if any(view.figures.get(key) is not None for view in views)
    ]
    return table(("figure", *names), rows, numeric=tuple(range(1, len(names) + 1)))
