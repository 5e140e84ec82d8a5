"""Results of other load generators as a document: what they measured, and in what their words differ."""

from collections.abc import Sequence
from typing import Any

from bench import CATALOG
from bench.foreign import ImportedFigure, ImportedResult
from bench.foreign.imported import Key
from reports.document import Block, Cell, Document, Facts, Headline, Notice, Paragraph, Section, Table, table
from reports.quantities import NONE, Quantity, capitalised, figure_key, quantity, show

_SHORT = {"ttft": "TTFT", "tbt": "TBT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E",
          "ttft_from_intended": "TTFT from intended send", "e2e_from_intended": "E2E from intended send"}
CLIENT_UNKNOWN = ("the file does not say how late the tool's client was: a busy client makes a server look "
                  "slow")
_REFUSED = "A percentile that too few samples support is not shown (p99 needs 100)."
_SOURCES = {"samples": "its samples", "stated": "the tool"}


def imported_document(results: Sequence[ImportedResult]) -> Document:
    """The report of at least one result; several stand side by side."""
    names = result_names(results)
    several = len(results) > 1
    sections = [_verdict(results, names), _figures(results), _definitions(results)]
    sections += [_theirs(result, f"theirs-{position}", f": {names[position]}" if several else "")
                 for position, result in enumerate(results) if result.theirs]
    title = f"{len(results)} results of other tools" if several else f"Result of {results[0].tool}"
    return Document(title, ", ".join(dict.fromkeys(result.source.name for result in results)),
                    tuple(sections), "stallfree")


def imported_view(results: Sequence[ImportedResult]) -> dict[str, Any]:
    """The same as plain values for JSON; times in ns."""
    return {"kind": "imported", "results": [
        {**result.as_dict(), "rate_rps": "inf" if result.rate_rps == float("inf") else result.rate_rps,
         "name": name} for result, name in zip(results, result_names(results), strict=True)]}


def result_names(results: Sequence[ImportedResult]) -> list[str]:
    """The names of their files; where several results are of one name they are numbered in order."""
    names = [result.source.name for result in results]
    return [f"{name} ({position})" if names.count(name) > 1 else name
            for position, name in enumerate(names, start=1)]


def imported_figures(results: Sequence[ImportedResult]) -> Table:
    """One row a figure that has a value. Of a single result also the samples behind it, and who computed
    it."""
    found = [result.figures() for result in results]
    keys = [key for metric in CATALOG for key in dict.fromkeys(key for figures in found for key in figures)
            if key[0] == metric and any(key in figures and figures[key].value is not None
                                        for figures in found)]
    rows: list[list[Cell | str]] = []
    for key in keys:
        figures = [result.figure(*key) for result in results]
        values = [_shown(key, figure) for figure in figures]
        label = capitalised(_quantity(key).label)
        if len(results) > 1:
            rows.append([label, *values])
        else:
            n = figures[0].n
            rows.append([label, *values, NONE if n is None else show(float(n)), _SOURCES[figures[0].source]])
    if len(results) > 1:
        return table(("figure", *result_names(results)), rows, numeric=tuple(range(1, len(results) + 1)))
    return table(("figure", "value", "samples", "source"), rows, numeric=(1, 2))


def _figures(results: Sequence[ImportedResult]) -> Section:
    figures = imported_figures(results)
    blocks = (figures, Paragraph(_REFUSED)) if figures.rows else (Notice("There are no figures.", "Missing"),)
    return Section("figures", "Figures", blocks)


def _shown(key: Key, figure: ImportedFigure) -> str:
    value = figure.value
    is_time = CATALOG[key[0]].unit_of(key[1]) == "ns"
    return _quantity(key).show(value / 1e6 if value is not None and is_time else value)


def _quantity(key: Key) -> Quantity:
    return quantity(figure_key(key[0], key[1] or ""))


def _verdict(results: Sequence[ImportedResult], names: Sequence[str]) -> Section:
    tools = ", ".join(dict.fromkeys(result.tool for result in results))
    counted = f"{len(results)} results, measured by {tools}."
    told = result_sentence(results[0]) if len(results) == 1 else counted
    blocks: list[Block] = [Headline("Imported", "", told)]
    for result, name in zip(results, names, strict=True):
        prefix = f"{name}: " if len(results) > 1 else ""
        blocks += [Notice(prefix + warning) for warning in result.warnings]
        if "schedule_lag" not in result.samples:
            blocks.append(Notice(prefix + CLIENT_UNKNOWN, "Note"))
        if len(results) > 1:
            blocks.append(Paragraph(f"{name}: {result_sentence(result)}"))
    if len(results) == 1:
        blocks.append(Facts(_facts(results[0])))
    return Section("verdict", "What was measured", tuple(blocks))


def result_sentence(result: ImportedResult) -> str:
    """How many requests succeeded, at which load, and who measured it."""
    if result.completed is None:
        counts = "the file does not count its requests"
    elif result.failed is None:
        counts = f"{result.completed} requests succeeded"
    else:
        counts = f"{result.completed} of {result.completed + result.failed} requests succeeded"
    load = []
    if result.rate_rps is not None:
        load.append("all sent at once" if result.rate_rps == float("inf")
                    else f"at {quantity('capacity_rps').show(result.rate_rps)}")
    if result.max_concurrency is not None:
        load.append(f"at most {result.max_concurrency} in flight")
    tool = f"{result.tool} {result.tool_version}".strip()
    return ", ".join([capitalised(counts), *load, f"measured by {tool}."])


def _facts(result: ImportedResult) -> tuple[tuple[str, str], ...]:
    known = {"File": result.source.name, "Model": result.model, "Endpoint": result.endpoint,
             "Duration": show(result.duration_s, "s") if result.duration_s is not None else "",
             "Date": result.date}
    return tuple((name, value) for name, value in known.items() if value)


def _definitions(results: Sequence[ImportedResult]) -> Section:
    """Our definition of every figure shown, and the difference where the tool has its own."""
    metrics = {key[0] for result in results for key in result.figures()}
    items = []
    for metric in CATALOG:
        if metric in metrics:
            notes = {result.tool: result.definitions[metric] for result in results
                     if metric in result.definitions}
            told = " ".join(f"{tool}: {note}." for tool, note in notes.items())
            name = _SHORT.get(metric, capitalised(metric.replace("_", " ")))
            items.append((name, f"{CATALOG[metric].definition} {told}".strip()))
    return Section("definitions", "Definitions", (Facts(tuple(items)),))


def _theirs(result: ImportedResult, anchor: str, whose: str) -> Section:
    said = "Figures under the tool's own names; they are none of ours, or counted otherwise."
    rows = [[key, f"{figure.value:.6g}", figure.unit] for key, figure in result.theirs.items()]
    return Section(anchor, f"As {result.tool} states it{whose}",
                   (Paragraph(said), table(("name", "value", "unit"), rows, numeric=(1,))))
