"""One run, or several side by side, as a document: validity first, then set-up, then results."""

from collections.abc import Sequence

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
from reports.survival_chart import Curve, survival_chart

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
    "median_tpot_ms",
    "p99_itl_ms",
    "p99_e2el_ms",
    "median_scheduling_delay_ms",
    "longest_stall_ms",
    "error_rate",
    "achieved_rate_fraction",
)
"""The figures shown at once; everything else that was measured is folded away."""
_TILES = ("p99_tbt_ms", "max_tbt_ms", "median_ttft_ms", "output_throughput")
_LINES = ((ACCENT, "solid"), (NEUTRAL, "dash"), (BAD, "dot"), (THIRD, "dashdot"), (FOURTH, "longdash"))


def run_document(views: Sequence[RunView]) -> Document:
    """The report of at least one run."""
    names = distinct_names(views)
    shown = [quantity(key) for key in _LEADING if any(key in view.figures for view in views)]
    sections = [_validity(views, names)]
    if len(views) > 1:
        sections.append(_setups(views, names))
    sections.append(_results(views, names))
    curves = [
        Curve(name, *_LINES[position % len(_LINES)], view.gaps)
        for position, (name, view) in enumerate(zip(names, views, strict=True))
    ]
    sections.append(Section("gaps", "Where streams stall", (survival_chart(curves),)))
    if len(views) == 1:
        facts = tuple(views[0].setup.items())
        told = Facts(facts) if facts else Notice("The run does not describe its set-up.", "Missing")
        sections.append(Section("setup", "Set-up", (told,)))
    sections.append(definitions(shown, tuned=False))
    title = f"Run {names[0]}" if len(views) == 1 else f"{len(views)} runs compared"
    return Document(title, views[0].setup.get("Workload name", ""), tuple(sections), "stallfree")


def _validity(views: Sequence[RunView], names: Sequence[str]) -> Section:
    bad = [name for name, view in zip(names, views, strict=True) if not view.validity.valid]
    blocks: list[Block] = []
    if bad:
        sentence = f"The figures do not describe the engine: invalid is {', '.join(bad)}."
    else:
        sentence = _sentence(views[0]) if len(views) == 1 else f"All {len(views)} runs are valid."
    tiles = _tiles(views[0]) if len(views) == 1 else ()
    blocks.append(Headline("Invalid" if bad else "Valid", "bad" if bad else "good", sentence, tiles))
    if len(views) > 1:
        told = zip(names, views, strict=True)
        blocks.append(Bullets(tuple(f"{name}: {_sentence(view)}" for name, view in told)))
    for name, view in zip(names, views, strict=True):
        prefix = f"{name}: " if len(views) > 1 else ""
        blocks += [Notice(prefix + reason, "Invalid") for reason in view.validity.reasons]
        if view.failure:
            blocks.append(Notice(f"{prefix}the engine failed: {view.failure}"))
        if view.failed:
            kinds = ", ".join(
                f"{count} {kind.replace('_', ' ')}" for kind, count in view.outcomes.items() if kind != "ok"
            )
            blocks.append(
                Notice(
                    f"{prefix}{view.failed} of {view.requests} requests did not succeed ({kinds}); "
                    f"latencies are those of the {view.completed} that succeeded."
                )
            )
        blocks += [Notice(f"{prefix}the load was not sustainable: {why}") for why in view.unsustainable]
        blocks += [Notice(prefix + note, "Note") for note in view.validity.notes]
    return Section("verdict", "Validity", tuple(blocks))


def _sentence(view: RunView) -> str:
    rate = f" at {quantity('capacity_rps').show(view.rate_rps)}" if view.rate_rps is not None else ""
    return (
        f"{view.completed} of {view.requests} requests succeeded{rate}, "
        f"{show(float(view.gaps.n))} gaps between tokens."
    )


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


def _results(views: Sequence[RunView], names: Sequence[str]) -> Section:
    rest = sorted({key for view in views for key in view.figures} - {*_LEADING, "completed", "failed"})
    counts: list[list[Cell | str]] = [
        ["Succeeded requests", *(show(float(view.completed)) for view in views)],
        [
            "Other requests",
            *(Cell(show(float(view.failed)), "bad" if view.failed else "") for view in views),
        ],
    ]
    leading = _figures(views, names, _LEADING)
    merged = table(leading.columns, [*counts, *leading.rows], numeric=tuple(leading.numeric))
    blocks: list[Block | Details] = [merged]
    if rest:
        blocks.append(Details(f"{len(rest)} further figures", (_figures(views, names, rest),)))
    return Section("results", "Results", tuple(blocks))


def _figures(views: Sequence[RunView], names: Sequence[str], keys: Sequence[str]) -> Table:
    rows = [
        [capitalised(quantity(key).heading), *(show(view.figures.get(key)) for view in views)]
        for key in keys
        if any(view.figures.get(key) is not None for view in views)
    ]
    return table(("figure", *names), rows, numeric=tuple(range(1, len(names) + 1)))
