"""Tables about traffic, for the report and for the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.document import Cell, Table, table
from reports.quantities import NONE, capitalised, change, digits, duration, share, show
from reports.tolerant import text
from workloads.traces.chunking_advice import TOKEN_INTERVAL_S, Advice, Load, chunking_advice
from workloads.traces.statistics import TraceStatistics

_STATS = ("mean", "p50", "p90", "p95", "p99", "max")
_LENGTHS = {"input_len": "prompt tokens", "uncached_input_len": "prompt tokens after prefix hits",
            "output_len": "answer tokens"}
_MOST_TENANTS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """A trace, or a plan drawn from a workload, as reports show it."""

    name: str
    about: str
    """What it is and how it was read or drawn, in a few words."""
    statistics: TraceStatistics
    figures: Mapping[str, Any]
    """What TraceStatistics.as_dict says of it."""
    advice: Advice

    @classmethod
    def of(cls, name: str, about: str, statistics: TraceStatistics, *,
           rejected: Mapping[str, int] | None = None, clipped: int = 0,
           token_interval_s: float = TOKEN_INTERVAL_S) -> "Traffic":
        """With the advice for answers of which a token comes every `token_interval_s`."""
        return cls(text(name), about, statistics, statistics.as_dict(rejected=rejected, clipped=clipped),
                   chunking_advice(Load.of(statistics, token_interval_s=token_interval_s)))

    def counted(self) -> str:
        """How many requests over which time, as a sentence without its end."""
        figures = self.figures
        requests = f"{digits(figures['rows'])} request{'' if figures['rows'] == 1 else 's'}"
        if figures["span_s"] is None:
            return f"{requests}, no arrival times" if figures["rows"] else requests
        if not figures["span_s"]:
            return f"{requests}, all at once"
        return f"{requests} over {duration(figures['span_s'])}, {show(figures['rate_rps'], 'requests/s')}"


def length_table(traffics: Sequence[Traffic]) -> Table:
    """Percentiles of the lengths of each; those that nobody knows, or that say nothing new, are left out."""
    several = len(traffics) > 1
    # Without prefix hits a prompt is as long as what is computed of it.
    lengths = [(traffic, key) for key in _LENGTHS for traffic in traffics
               if traffic.figures[key] and (key != "uncached_input_len" or traffic.figures["prefix_reuse"])]
    rows = [[f"{traffic.name}: {_LENGTHS[key]}" if several else capitalised(_LENGTHS[key]),
             *(digits(traffic.figures[key][stat]) for stat in _STATS)] for traffic, key in lengths]
    return table(("tokens", *_STATS), rows, numeric=range(1, 1 + len(_STATS)))


def arrival_table(traffics: Sequence[Traffic]) -> Table:
    """Rates, and how uneven the arrivals are."""
    return _side_by_side(traffics, _arrival_figures)


def comparison_table(traffics: Sequence[Traffic]) -> Table:
    """Every figure of two side by side, with the difference of the second from the first."""
    return _side_by_side(traffics, _all_figures)


def budget_table(advice: Advice) -> Table:
    """What each token budget does to the prompts."""
    rows = [[str(row.token_budget), digits(row.prompts_cut), share(row.share_of_prompts),
             share(row.share_of_tokens), digits(row.mean_chunks)] for row in advice.budgets]
    return table(("token budget", "prompts cut", "share", "of prompt tokens", "mean chunks"), rows,
                 numeric=range(5))


def tenant_table(traffic: Traffic) -> Table:
    """The tenants or components of one, those with most requests first; no rows where there is one only."""
    parts = traffic.statistics.parts
    found = sorted(traffic.figures.get(parts, {}).items(), key=lambda item: -item[1]["rows"])
    rows: list[list[Cell | str]] = [
        [name or "(none)", share(of["rows"] / traffic.figures["rows"]), show(of["rate_rps"]),
         show(of["arrival_cv"]), *(digits(of[key][stat]) if of[key] else NONE
                                   for key in ("input_len", "output_len") for stat in ("p50", "p99"))]
        for name, of in found[:_MOST_TENANTS]]
    more = len(found) - len(rows)
    return table(
        (parts.removesuffix("s"), "requests", "per s", "CV", "prompt p50", "p99", "answer p50", "p99"), rows,
        numeric=range(1, 8), caption=f"{more} smaller ones are left out." if more > 0 else "")


def rejected_table(traffic: Traffic) -> Table:
    """Rows that were left out, by reason."""
    reasons = sorted(traffic.figures["rejected_by_reason"].items(), key=lambda item: (-item[1], item[0]))
    rows = [[reason, digits(count)] for reason, count in reasons if count]
    return table(("rows left out", "number"), rows, numeric=(1,))


def _side_by_side(
    traffics: Sequence[Traffic], figures_of: Callable[[Traffic], Iterator[tuple[str, float | None]]]
) -> Table:
    columns = [dict(figures_of(traffic)) for traffic in traffics]
    rows: list[list[Cell | str]] = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name) for column in columns]
        if all(value is None for value in values):
            continue
        written = share if name.startswith(("share", "prefix")) else digits
        difference = [change(*values) or NONE] if len(values) == 2 else []
        rows.append([capitalised(name), *(NONE if value is None else written(value) for value in values),
                     *difference])
    heads = [traffic.name for traffic in traffics] if len(traffics) > 1 else ["value"]
    heads += ["difference"] if len(traffics) == 2 else []
    return table(("figure", *heads), rows, numeric=range(1, 1 + len(heads)))


def _arrival_figures(traffic: Traffic) -> Iterator[tuple[str, float | None]]:
    figures = traffic.figures
    yield "requests", figures["rows"]
    yield "span (s)", figures["span_s"]
    yield "requests/s", figures["rate_rps"]
    yield "CV of the gaps between arrivals", figures["arrival_cv"]
    for window, value in figures["index_of_dispersion"].items():
        yield f"index of dispersion, {window.removesuffix('s')} s", value


def _all_figures(traffic: Traffic) -> Iterator[tuple[str, float | None]]:
    yield from _arrival_figures(traffic)
    figures = traffic.figures
    for key, label in _LENGTHS.items():
        for stat in _STATS:
            yield f"{label}, {stat}", (figures[key] or {}).get(stat)
    yield "prompt tokens for each answer token", figures["input_per_output"]
    yield "prefix reuse", figures["prefix_reuse"]
    for limit, value in figures["share_of_prompts_above"].items():
        yield f"share of prompts above {limit}", value
