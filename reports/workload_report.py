"""Traffic as a document: what it is like, what that means for chunked prefill; a trace beside its model."""

from collections.abc import Sequence
from pathlib import Path

from bench.files import write_text
from reports.document import (
    Block,
    Bullets,
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
from reports.html_page import html_page
from reports.markdown import markdown
from reports.quantities import NONE, capitalised, digits, share, show
from reports.workload_charts import answer_chart, arrival_chart, prompt_chart
from reports.workload_tables import (
    Traffic,
    arrival_table,
    budget_table,
    comparison_table,
    length_table,
    rejected_table,
    tenant_table,
)
from workloads.errors import UsageError

VERDICTS: dict[str, tuple[str, Tone]] = {
    "good_fit": ("Good fit", "good"),
    "hardly_matters": ("Hardly matters", "muted"),
    "first_token_bound": ("Bound by the first token", "muted"),
    "few_streams": ("Few streams to protect", "muted"),
    "depends_on_rate": ("Depends on the rate", "muted"),
    "nothing": ("Nothing to judge", "bad"),
}
_ROUNDED = 0.5
"""Share of gaps of 0; 90 % in Mooncake's conversations, whose times are ticks of 3 s."""
_DEFINITIONS = (
    ("requests/s", "Requests over the time from the first to the last."),
    ("CV of the gaps", "Standard deviation over mean of the times between requests; Poisson has 1."),
    ("index of dispersion", "Variance over mean of the number of arrivals in windows of that length from the "
                            "first arrival on, the last one included; Poisson has 1."),
    ("percentiles", "Linear-interpolated over all requests, exact."),
    ("prefix reuse", "Share of the prompt tokens that stood at the beginning of an earlier prompt, or before "
                     "in the same conversation: what a prefix cache that forgets nothing holds."),
    ("prompt tokens after prefix hits", "What remains of each prompt then, and is computed."),
    ("prompts cut", "Prompts with more tokens to compute than the token budget: they take several steps."),
)


def workload_document(traffics: Sequence[Traffic], *, title: str = "",
                      first: Sequence[Section] = ()) -> Document:
    """The report of one traffic, with advice, or of several side by side; `first` comes before the rest."""
    one = traffics[0]
    sections = [*first, *([_verdict(one)] if len(traffics) == 1 else [_comparison(traffics)])]
    if len(traffics) == 1:
        sections.append(Section("lengths", "Lengths", (length_table(traffics), _above(one))))
    sections.append(Section("length-charts", "How lengths are distributed",
                            (prompt_chart(traffics), answer_chart(traffics))))
    arrivals: list[Block] = [arrival_chart(traffics)]
    if len(traffics) == 1:
        arrivals.insert(0, arrival_table(traffics))
        arrivals += [Notice(doubt, "Note") for doubt in arrival_doubts(one)]
    sections.append(Section("arrivals", "Arrivals", tuple(arrivals)))
    sections += _budgets(traffics)
    sections += _tenants(traffics)
    sections.append(Section("definitions", "Definitions", (Facts(_DEFINITIONS),)))
    about = "; ".join(f"{t.name}: {t.about}" if len(traffics) > 1 else t.about for t in traffics)
    return Document(title or f"Traffic of {one.name}", about, tuple(sections), "stallfree")


def write_workload_report(traffics: Sequence[Traffic], output: Path, *, title: str = "",
                          first: Sequence[Section] = ()) -> Path:
    """Writes the report, HTML or Markdown as the name of `output` ends, and returns `output`.

    UsageError for another ending, OutputError where it cannot be written; the file appears complete or
    not at all.
    """
    report_ending(output)
    document = workload_document(traffics, title=title, first=first)
    content = html_page(document) if output.suffix == ".html" else markdown(document)
    # Names may come from bytes that are no text.
    return write_text(output, content.encode("utf-8", errors="replace").decode("utf-8"))


def report_ending(output: Path) -> Path:
    """`output`, where its name says which report to write; else UsageError."""
    if output.suffix not in (".html", ".md"):
        raise UsageError(f"--output {str(output)!r} must end in .html or .md, which says what to write")
    return output


def arrival_doubts(traffic: Traffic) -> list[str]:
    """What to know before the index of dispersion is believed: times that are rounded, and a last window, in
    which the trace may end, that decides the index. Mostly empty."""
    figures, doubts = traffic.figures, []
    if figures["span_s"] and figures["same_time_share"] > _ROUNDED:
        doubts.append(f"{share(figures['same_time_share'])} of the requests come at the very time of the one "
                      f"before, so the times seem rounded: below the rounding, bursts say nothing.")
    whole = figures["index_of_dispersion_whole_windows"]
    changed = [f"{digits(whole[window])} at {window.removesuffix('s')} s"
               for window, value in figures["index_of_dispersion"].items()
               if value is not None and whole[window] is not None
               and abs(value - whole[window]) > max(0.1, whole[window] / 4)]
    if changed:
        doubts.append(f"Without the last window, in which the trace ends, the index of dispersion is "
                      f"{' and '.join(changed)}.")
    return doubts


def _verdict(traffic: Traffic) -> Section:
    advice = traffic.advice
    status, tone = VERDICTS[advice.verdict]
    blocks: list[Block] = [
        Headline(status, tone, f"{capitalised(traffic.counted())}. {advice.headline}", _tiles(traffic))]
    if advice.reasons:
        blocks.append(Bullets(advice.reasons))
    left_out = rejected_table(traffic)
    if left_out.rows:
        blocks.append(left_out)
    if traffic.figures["clipped"]:
        blocks.append(Notice(f"{digits(traffic.figures['clipped'])} rows were cut to fit the model.", "Note"))
    return Section("verdict", "Is this load a fit for chunked prefill?", tuple(blocks))


def _tiles(traffic: Traffic) -> tuple[KeyFigure, ...]:
    figures = traffic.figures
    prompt, answer = figures["input_len"], figures["output_len"]
    return (
        KeyFigure("Rate", show(figures["rate_rps"]), "requests/s", ""),
        KeyFigure("Median prompt", digits(prompt["p50"]) if prompt else NONE, "tokens",
                  f"p99 {digits(prompt['p99'])}" if prompt else ""),
        KeyFigure("Median answer", digits(answer["p50"]) if answer else NONE, "tokens",
                  f"p99 {digits(answer['p99'])}" if answer else ""),
        KeyFigure("Prefix reuse", share(figures["prefix_reuse"]), "", "of prompt tokens"),
    )


def _comparison(traffics: Sequence[Traffic]) -> Section:
    return Section("comparison", "Side by side", (
        Bullets(tuple(f"{traffic.name}: {traffic.counted()}." for traffic in traffics)),
        comparison_table(traffics)))


def _above(traffic: Traffic) -> Block:
    above = traffic.figures["share_of_prompts_above"]
    return Facts(tuple((f"Prompts above {digits(int(limit))} tokens", share(value))
                       for limit, value in above.items()))


def _budgets(traffics: Sequence[Traffic]) -> list[Section]:
    judged = [traffic for traffic in traffics if traffic.advice.budgets]
    if not judged:
        return []
    said = ("How many prompts have more tokens to compute than a step may carry, and into how many chunks "
            "prompts are cut on average when each has its steps for itself. Running answers first take a "
            "token each of the budget, and prompts share steps, so the real number is higher.")
    blocks: list[Block | Details] = [Paragraph(said)]
    for traffic in judged:
        made = budget_table(traffic.advice)
        blocks.append(made if len(judged) == 1 else Details(traffic.name, (made,)))
    return [Section("budgets", "Token budgets and prompts", tuple(blocks))]


def _tenants(traffics: Sequence[Traffic]) -> list[Section]:
    blocks: list[Block] = []
    for traffic in traffics:
        made = tenant_table(traffic)
        if made.rows:
            blocks += [*([Paragraph(traffic.name)] if len(traffics) > 1 else []), made]
    title = capitalised(traffics[0].statistics.parts)
    return [Section("tenants", title, tuple(blocks))] if blocks else []


