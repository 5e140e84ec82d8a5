"""Results of other load generators, and our own result files, as a document: what they measured, and in what
their words differ."""

from collections.abc import Sequence
from typing import Any

from bench import CATALOG
from bench.foreign import ImportedFigure, ImportedResult
from bench.foreign.imported import Key
from engine_adapter.simulator.info import ENGINE_NAME
from reports.document import (
    Block,
    Cell,
    Document,
    Facts,
    Headline,
    Notice,
    Paragraph,
    Section,
    Table,
    Tone,
    table,
)
from reports.quantities import NONE, Quantity, capitalised, figure_key, quantity, share, show
from reports.simulated import BADGE

_SHORT = {"ttft": "TTFT", "tbt": "TBT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E",
          "ttft_from_intended": "TTFT from intended send", "e2e_from_intended": "E2E from intended send"}
CLIENT_UNKNOWN = ("the file does not say how late the tool's client was: a busy client makes a server look "
                  "slow")
_REFUSED = "A percentile that too few samples support is not shown (p99 needs 100)."
_KEYS: dict[Key, str] = {("achieved_rate", None): "achieved_rate_fraction",
                         ("stall", "total"): "stalled_time_ms", ("stall", "count"): "stall_count"}
"""Figures that are written otherwise than their name in the catalog says."""
_SOURCES = {"samples": "its samples", "stated": "the tool"}


def imported_document(results: Sequence[ImportedResult]) -> Document:
    """The report of at least one result; several stand side by side."""
    names = result_names(results)
    several = len(results) > 1
    sections = [_verdict(results, names), _figures(results)]
    sections += [Section(f"client-{position}", f"Client{f': {name}' if several else ''}", (Facts(facts),))
                 for position, (name, result) in enumerate(zip(names, results, strict=True))
                 if (facts := client_facts(result))]
    sections.append(_definitions(results))
    sections += [_theirs(result, f"theirs-{position}", f": {names[position]}" if several else "")
                 for position, result in enumerate(results) if result.theirs]
    return Document(_title(results), ", ".join(dict.fromkeys(result.source.name for result in results)),
                    tuple(sections), "stallfree", BADGE if any(map(is_simulated, results)) else "")


def _title(results: Sequence[ImportedResult]) -> str:
    if len(results) == 1:
        return f"Result of {results[0].tool}"
    others = [not result.own for result in results]
    whose = "of other tools" if all(others) else "side by side" if any(others) else f"of {results[0].tool}"
    return f"{len(results)} results {whose}"


def imported_view(results: Sequence[ImportedResult]) -> dict[str, Any]:
    """The same as plain values for JSON; times in ns."""
    return {"kind": "imported", "results": [
        {**result.as_dict(), "simulated": is_simulated(result),
         "rate_rps": "inf" if result.rate_rps == float("inf") else result.rate_rps,
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
    return quantity(_KEYS.get(key) or figure_key(key[0], key[1] or ""))


def _verdict(results: Sequence[ImportedResult], names: Sequence[str]) -> Section:
    blocks: list[Block] = [_headline(results, names)]
    for result, name in zip(results, names, strict=True):
        prefix = f"{name}: " if len(results) > 1 else ""
        if result.validity is not None:
            blocks += [Notice(prefix + reason, "Invalid") for reason in result.validity.reasons]
        blocks += [Notice(prefix + warning) for warning in result.warnings]
        blocks += [Notice(prefix + note, "Note") for note in result_notes(result)]
        if len(results) > 1:
            blocks.append(Paragraph(f"{name}: {result_sentence(result)}"))
    if len(results) == 1:
        blocks.append(Facts(_facts(results[0])))
    return Section("verdict", "What was measured", tuple(blocks))


def _headline(results: Sequence[ImportedResult], names: Sequence[str]) -> Headline:
    tools = ", ".join(dict.fromkeys(result.tool for result in results))
    counted = f"{len(results)} results, measured by {tools}."
    told = result_sentence(results[0]) if len(results) == 1 else counted
    bad = [name for name, result in zip(names, results, strict=True)
           if result.validity is not None and not result.validity.valid]
    if bad:
        return Headline("Invalid", "bad", f"The figures do not describe the engine: invalid is "
                                          f"{', '.join(bad)}. {told}")
    words = list(dict.fromkeys(map(result_status, results)))
    status, tone = words[0] if len(words) == 1 else ("Side by side", "")
    return Headline(status, tone, told)


def result_status(result: ImportedResult) -> tuple[str, Tone]:
    """The one word that a reader sees first: of our own files whether the run is valid."""
    if not result.own:
        return "Imported", ""
    if result.validity is None:
        return "Validity unknown", ""
    if is_simulated(result):
        return (BADGE, "good") if result.validity.valid else (f"{BADGE}, invalid", "bad")
    return ("Valid", "good") if result.validity.valid else ("Invalid", "bad")


def is_simulated(result: ImportedResult) -> bool:
    """Whether it is a file of ours about a run that nobody measured."""
    return result.own and result.endpoint == ENGINE_NAME


def result_notes(result: ImportedResult) -> list[str]:
    """What a reader should know besides the warnings."""
    notes = list(result.validity.notes) if result.validity is not None else []
    return notes if result.tells_lateness else [*notes, CLIENT_UNKNOWN]


def client_facts(result: ImportedResult) -> tuple[tuple[str, str], ...]:
    """How the client fared, by name in words; empty where the file does not say."""
    lags = {word: result.stated.get(("schedule_lag", stat))
            for word, stat in (("median", "median"), ("p99", "p99"), ("longest", "max"))}
    late = ", ".join(f"{word} {_ms(figure.value)}" for word, figure in lags.items()
                     if figure is not None and figure.value is not None)
    capped = result.max_concurrency is not None and result.rate_rps != float("inf")
    held = "; waits for a place under the cap included" if late and capped else ""
    known = {"Requests sent late": late + held}
    if (health := result.client) is not None:
        known |= {
            "Wait in the socket": _p99(health.read_delay_p99_ns),
            "Read together": "" if health.merged_share is None
                             else f"{share(health.merged_share)} of the messages, with a later one",
            "Event loop late": _p99(health.loop_lag_p99_ns),
            "Processor time": "" if health.cpu_share is None else f"{share(health.cpu_share)} of a core",
        }
    return tuple((name, told) for name, told in known.items() if told)


def _p99(ns: int | None) -> str:
    return "" if ns is None else f"p99 {_ms(ns)}"


def _ms(ns: float) -> str:
    return show(round(ns / 1e6, 3), "ms")


def result_sentence(result: ImportedResult) -> str:
    """How many requests succeeded, at which load, and who measured it."""
    if result.completed is None:
        counts = "the file does not count its requests"
    elif result.failed is None:
        counts = f"{result.completed} requests succeeded"
    else:
        counts = f"{result.completed} of {result.completed + result.failed} requests succeeded"
    tool = f"{result.tool} {result.tool_version}".strip()
    made = "simulated" if is_simulated(result) else "measured"
    return ", ".join([capitalised(counts), *_load(result), f"{made} by {tool}."])


def _load(result: ImportedResult) -> list[str]:
    rate, cap = result.rate_rps, result.max_concurrency
    if rate == float("inf"):
        return ["all sent at once" if cap is None else f"in a closed loop of {cap}"]
    load = [] if rate is None else [f"at {quantity('capacity_rps').show(rate)}"]
    return load if cap is None else [*load, f"at most {cap} in flight"]


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
    said = ("Other numbers in the file." if result.own else
            "Figures under the tool's own names; they are none of ours, or counted otherwise.")
    rows = [[key, f"{figure.value:.6g}", figure.unit] for key, figure in result.theirs.items()]
    return Section(anchor, f"As {result.tool} states it{whose}",
                   (Paragraph(said), table(("name", "value", "unit"), rows, numeric=(1,))))
