"""A trace beside the traffic that a workload fitted to it makes."""

from collections.abc import Sequence

from reports.document import Block, Cell, Notice, Section, Table, table
from reports.quantities import capitalised, digits, share
from workloads.fitting import Agreement, missed


def agreement_table(found: Sequence[Agreement]) -> Table:
    """A row for each figure: the trace's, the model's by seed, and the largest difference."""
    seeds = len(found[0].model) if found else 0
    heads = ("figure", "trace", *(f"model, seed {seed}" for seed in range(seeds)), "difference", "within")
    rows: list[list[Cell | str]] = []
    for one in found:
        difference = Cell(_difference(one, one.worst),
                          "" if one.holds is None else "good" if one.holds else "bad")
        rows.append([capitalised(one.name), _value(one, one.trace), *(_value(one, v) for v in one.model),
                     difference, _limit(one)])
    return table(heads, rows, numeric=range(1, len(heads)))


def agreement_verdict(found: Sequence[Agreement]) -> str:
    """Whether the model's traffic is that of the trace, in a sentence or two."""
    judged = [one for one in found if one.holds is not None]
    outside = missed(found)
    if not judged:
        return "There is too little in the trace to compare the model with."
    if not outside:
        return (f"The model regenerates the trace: all {len(judged)} judged figures are within tolerance. "
                f"Figures without a tolerance are only shown.")
    named = ", ".join(f"{one.name} by {_difference(one, one.worst)} (at most {_limit(one)})"
                      for one in outside)
    return f"The model misses the trace in {len(outside)} of {len(judged)} judged figures: {named}."


def agreement_section(found: Sequence[Agreement]) -> Section:
    """The verdict and the table, for a report."""
    blocks: list[Block] = [Notice(agreement_verdict(found), "Warning" if missed(found) else "Note")]
    if found:
        blocks.append(agreement_table(found))
    return Section("agreement", "Does the model make the same traffic?", tuple(blocks))


def _limit(one: Agreement) -> str:
    return "" if one.within is None else _difference(one, one.within).removeprefix("+")


def _difference(one: Agreement, value: float) -> str:
    sign = "+" if value >= 0 else ""
    return f"{sign}{digits(round(value, 3))}" if one.kind == "absolute" else f"{sign}{share(round(value, 4))}"


def _value(one: Agreement, value: float) -> str:
    return share(value) if one.name == "prefix reuse" else digits(round(value, 6))
