"""The last screen of `tune run` for a server whose settings cannot be changed, readable at 80 columns."""

from collections.abc import Mapping

from rich.console import RenderableType
from rich.text import Text

from reports.capacity_file import Capacity
from reports.capacity_report import narrow_runs_table, server_line, slo_table, verdict_line
from reports.simulated import shouted, simulated_study
from reports.study_report import ended
from reports.terminal import STYLES, file_lines, rich_table, simulated_lines, spaced


def capacity_screen(capacity: Capacity, files: Mapping[str, str]) -> RenderableType:
    """The verdict, the server, a line for each rate, the SLO, where the files are.

    `files` names what was written and where, in the order to show.
    """
    status, tone, sentence = verdict_line(capacity)
    parts: list[RenderableType] = [
        Text.assemble((shouted(status), f"bold {STYLES[tone]}".strip()), f". {sentence}")]
    parts += simulated_lines(simulated_study(capacity.environment))
    parts += [Text(f"Warning: {ended(warning)}", style="yellow") for warning in capacity.warnings]
    if said := server_line(capacity):
        parts.append(Text(f"{said}."))
    tried, judged = narrow_runs_table(capacity), slo_table(capacity)
    if tried.rows:
        parts.append(Text.assemble(("Rates that were tried", "bold"), " (requests/s, times in ms)"))
    parts.append(rich_table(tried) if tried.rows else Text("No run has been measured yet."))
    if judged.rows:
        parts += [Text(judged.caption, style="bold"), rich_table(judged)]
    return spaced([*parts, *file_lines(files)])
