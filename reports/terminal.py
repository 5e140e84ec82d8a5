"""The last screen of `tune run` and `tune bench`, as rich renderables readable at 80 columns.

Every statement is in words; colour only repeats it.
"""

import shlex
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports.comparison import Comparison, change_text, compare, same_setting, traded
from reports.document import Cell, Tone
from reports.document import Table as DocumentTable
from reports.quantities import capitalised, quantity
from reports.run_report import FROM_INTENDED, leading_figures, run_sentence, run_status
from reports.run_view import RunView
from reports.simulated import Simulation, shouted, simulated_notice, simulated_study
from reports.stage_table import narrow_stage_table
from reports.study import Judgement, Study, knobs_label
from reports.study_facts import serve_note
from reports.study_report import confirmation_doubt, ended, verdict_line
from reports.study_tables import compared_values, objective_cell, objective_name, slo_table
from reports.tenant_table import narrow_tenant_table

STYLES: dict[Tone, str] = {"": "", "good": "green", "bad": "red", "muted": "dim"}
_COMMAND_WIDTH = 76
_STUDY_ROWS = ("capacity_rps", "p99_tbt_ms", "max_tbt_ms", "fluidity_p10", "median_ttft_ms", "p90_ttft_ms",
               "output_throughput", "failed")
_RUN_ROWS = ("request_throughput", "output_throughput", "median_tbt_ms", "p99_tbt_ms", "max_tbt_ms",
             "fluidity_p10", "median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms", *FROM_INTENDED,
             "median_tpot_ms", "p99_e2el_ms")


def study_screen(study: Study, files: Mapping[str, str]) -> RenderableType:
    """The recommendation against the default, what was traded, the command, where the files are.

    `files` names what was written and where, in the order to show. Works for any study, also
    an empty one: what is missing is said.
    """
    status, tone, sentence = verdict_line(study)
    parts: list[RenderableType] = [
        Text.assemble((shouted(status), f"bold {STYLES[tone]}".strip()), f". {sentence}")]
    parts += simulated_lines(simulated_study(study.environment))
    warnings = [*map(ended, study.warnings), *filter(None, [confirmation_doubt(study)])]
    parts += [Text(f"Warning: {warning}", style="yellow") for warning in warnings]
    if study.recommended is not None:
        parts.append(Text.assemble(("Setting  ", "bold"), knobs_label(study.recommended.knobs)))
    comparison = compare(study)
    if comparison is None:
        parts.append(Text("The default and the recommendation have not both been measured."))
    else:
        parts += _compared(comparison, with_trade=not same_setting(study))
    if study.slo:
        parts.append(rich_table(slo_table(study)))
    if study.recommended is not None and study.recommended.serve_command:
        lines: list[RenderableType] = [Text(shell_lines(study.recommended.serve_command))]
        if note := serve_note(study):
            how, _, command = note.partition(": ")
            lines.append(Text(f"{how}:\n{shell_lines(command)}", style="dim"))
        parts.append(_titled("Serve with", Group(*lines)))
    return spaced([*parts, *file_lines(files)])


def run_screen(view: RunView, judgement: Judgement | None, files: Mapping[str, str]) -> RenderableType:
    """One run: validity first, its figures with the numbers behind them, the SLO when one was given."""
    valid = view.validity.valid
    parts: list[RenderableType] = [
        Text.assemble((shouted(run_status([view])), "bold green" if valid else "bold red"),
                      f". {run_sentence(view)}")
    ]
    parts += simulated_lines(view.simulation)
    parts += _doubts(view)
    figures = _table("figure", "value", right=(1,))
    for key in leading_figures(_RUN_ROWS, [view]):
        if view.figures.get(key) is not None:
            figures.add_row(capitalised(quantity(key).label), quantity(key).show(view.figures[key]))
    parts.append(figures if view.completed else Text("No request succeeded: there are no figures."))
    if view.stages:
        parts.append(Text.assemble(("Stages", "bold"), " (rates in requests/s, times in ms)"))
        parts.append(rich_table(narrow_stage_table(view.stages)))
    if view.tenants:
        parts.append(Text.assemble(("Tenants", "bold"), " (times in ms)"))
        parts.append(rich_table(narrow_tenant_table(view.tenants)))
    about = {"Tokens": view.tokens, "Client": view.client,
             "The server's own counters, warm-up included": view.server}
    parts += [_titled(title, _facts(facts)) for title, facts in about.items() if facts]
    if judgement is not None and judgement.objectives:
        objectives = _table("objective", "observed", right=(1,))
        for result in judgement.objectives:
            objectives.add_row(Text(objective_name(result)), _cell(objective_cell(result)))
        parts.append(objectives)
    return spaced([*parts, *file_lines(files)])


def simulated_lines(simulation: Simulation | None) -> list[RenderableType]:
    """What was simulated, and from what; nothing where an engine was measured."""
    if simulation is None:
        return []
    (notice,) = simulated_notice(simulation)
    return [Text(notice.text, style="yellow")]


def _doubts(view: RunView) -> list[RenderableType]:
    lines = [f"Invalid: {reason}" for reason in view.validity.reasons]
    if view.failure:
        lines.append(f"The engine failed: {view.failure}")
    if view.first_errors:
        lines.append("\n".join(view.first_errors))
    lines += [f"The load was not sustainable: {why}" for why in view.unsustainable]
    notes = [*view.warnings, *view.notes]
    return [*(Text(line, style="red") for line in lines),
            *(Text(f"Note: {note}", style="dim") for note in notes)]


def shell_lines(command: str) -> str:
    """The command over several lines of at most 76 columns, each but the last ended by a backslash,
    so that it can be copied from a terminal; a command that is no shell text comes back as it is."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(shlex.quote(word))
    lines: list[str] = []
    for group in map(" ".join, groups):
        if lines and len(lines[-1]) + 1 + len(group) + 2 <= _COMMAND_WIDTH:
            lines[-1] += f" {group}"
        else:
            lines.append(f"  {group}" if lines else group)
    return " \\\n".join(lines)


def _compared(comparison: Comparison, *, with_trade: bool) -> list[RenderableType]:
    figures = _table("", "default", "recommended", "change", right=(1, 2, 3))
    for key in _STUDY_ROWS:
        item = comparison.of(key)
        if item.default is None and item.recommended is None:
            continue
        style = {"better": "green", "worse": "red"}.get(item.effect, "")
        figures.add_row(capitalised(item.quantity.label), *compared_values(comparison, item, units=True),
                        Text(change_text(item), style=style))
    parts: list[RenderableType] = [figures, Text(comparison.basis, style="dim")]
    if comparison.caution:
        parts.append(Text(f"Warning: {comparison.caution}", style="yellow"))
    if with_trade and (sentences := traded(comparison)):
        parts.append(Text("\n".join(sentences)))
    return parts


def _table(*columns: str, right: Sequence[int] = ()) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for position, name in enumerate(columns):
        made.add_column(name, justify="right" if position in right else "left", overflow="fold")
    return made


def rich_table(source: DocumentTable) -> Table:
    """A table of a document for the terminal."""
    made = _table(*source.columns, right=tuple(source.numeric))
    for row in source.rows:
        made.add_row(*map(_cell, row))
    return made


def _cell(cell: Cell) -> Text:
    return Text(cell.text, style=STYLES[cell.tone])


def _facts(facts: Mapping[str, str]) -> RenderableType:
    made = Table.grid(padding=(0, 2, 0, 0))
    for name, told in facts.items():
        made.add_row(Text(name), Text(told))
    return made


def _titled(title: str, content: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), Padding(content, (0, 0, 0, 2)))


def file_lines(files: Mapping[str, str]) -> list[RenderableType]:
    """What was written and where, under a heading; nothing where nothing was."""
    if not files:
        return []
    width = max(map(len, files))
    return [_titled("Files", Text("\n".join(f"{name:<{width}}  {path}" for name, path in files.items())))]


def spaced(parts: Sequence[RenderableType]) -> RenderableType:
    """The parts with a blank line between them."""
    # rich tables bring their own blank lines; text needs one between paragraphs.
    spaced: list[RenderableType] = []
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        bare = isinstance(part, Table) or isinstance(following, Table)
        spaced.append(part if bare else Padding(part, (0, 0, 1, 0)))
    return Group(*spaced)
