"""The live picture of `tune run`: a panel on a terminal, one line an event everywhere else."""

import re
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tuner.cli.live_console import LiveConsole
from tuner.measuring import Measured
from tuner.progress import StudyProgress
from tuner.trial import TrialRecord

_ROWS = 8
_ACRONYMS = ("tbt", "itl", "ttft", "tpot", "e2e")


class StudyDisplay(LiveConsole):
    """Shows a StudyProgress; redrawn at most every `least_pause_s`."""

    least_pause_s = 0.4

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._drawn_s = -self.least_pause_s
        self._said: tuple[object, ...] = ()
        self._shown: Measured | None = None
        self._trials_shown = 0

    def show(self, progress: StudyProgress) -> None:
        """For StudyProgress.on_change."""
        if not self.is_live:
            self._lines(progress)
        elif self.elapsed_s - self._drawn_s >= self.least_pause_s:
            self._drawn_s = self.elapsed_s
            self.redraw(self._panel(progress))

    def _lines(self, progress: StudyProgress) -> None:
        said = (progress.phase, progress.knobs if progress.trial is not None else None)
        if said != self._said:
            self._said = said
            knobs = f" ({progress.knobs.label()})" if progress.trial is not None and progress.knobs else ""
            self.line(f"{progress.phase}{knobs}")
        if progress.last is not None and progress.last is not self._shown:
            self._shown = progress.last
            self.line(f"  {describe_run(progress.last)}")
        if len(progress.records) > self._trials_shown:
            self._trials_shown = len(progress.records)
            if progress.incumbent is not None:
                self.line(f"  best so far: {describe_record(progress.incumbent)}")

    def _panel(self, progress: StudyProgress) -> RenderableType:
        head = Text(f"{self.clock}  {progress.phase}", style="bold")
        if (left := time_left(progress, int(self.elapsed_s))) is not None:
            head.append(f"   {left}", style="dim")
        parts: list[RenderableType] = [head]
        if progress.rate_rps is not None:
            setting = f"{progress.knobs.label()} at " if progress.knobs is not None else ""
            parts.append(Text(f"now: {setting}{progress.rate_rps:.3g} req/s{_counts(progress)}"))
        if progress.last is not None:
            parts.append(Text(f"last run: {describe_run(progress.last)}"))
        if progress.incumbent is not None:
            parts.append(Text(f"best so far: {describe_record(progress.incumbent)}", style="green"))
        if progress.records:
            parts.append(_trials(progress.records[-_ROWS:], progress.max_trials, len(progress.records)))
        return Group(*parts)


def time_left(progress: StudyProgress, seconds_so_far: int) -> str | None:
    """When the search will be over: by the time budget, else by the pace of the trials so far."""
    if progress.seconds_left is not None:
        return f"search ends in {progress.seconds_left / 60:.1f} min at the latest"
    if not progress.records:
        return None
    left_s = (progress.max_trials - len(progress.records)) * seconds_so_far / len(progress.records)
    return f"about {left_s / 60:.0f} min of search left"


def describe_run(measured: Measured) -> str:
    """One line: rate, what every objective observed, the longest gap, verdict."""
    run = measured.run
    judged = [_observed(objective) for objective in (run.judgement or {}).get("objectives", [])
              if not (objective["implicit"] and objective["holds"])]
    shown = ", ".join([*judged, f"longest gap {_ms(run.figures.get('max_tbt_ms'))}"])
    return (f"{run.rate_rps:.3g} req/s: {shown} - "
            f"{'holds' if measured.holds else measured.outcome.value.replace('_', ' ')}"
            + (f" ({measured.note})" if measured.note else ""))


def _observed(objective: dict[str, Any]) -> str:
    metric, _, stat = re.split("[<>]=", objective["objective"])[0].partition(":")
    name = f"{stat} {metric.upper() if metric in _ACRONYMS else metric}".strip()
    if objective["observed"] is None:
        return f"{name} -"
    unit = " ms" if objective["unit"] == "ms" else ""
    return f"{name} {objective['observed']:.3g}{unit}"


def describe_record(record: TrialRecord) -> str:
    """One line: setting and capacity."""
    capacity = f" carries {record.capacity_rps:.3g} req/s" if record.capacity_rps is not None else ""
    return f"{record.knobs.label()}{capacity}"


def _trials(records: list[TrialRecord], planned: int, done: int) -> Table:
    table = Table(title=f"{done} of {planned} settings tried", title_justify="left", box=None,
                  padding=(0, 2, 0, 0))
    for name in ("#", "setting", "source", "req/s", "p99 TBT", "p10 fluidity", "outcome"):
        table.add_column(name, justify="left" if name in ("setting", "source", "outcome") else "right")
    for record in records:
        run = next((r for r in record.runs if r.holds and r.rate_rps == record.capacity_rps), record.runs[-1])
        table.add_row(
            str(record.number + 1), record.knobs.label(), record.source, f"{run.rate_rps:.3g}",
            _ms(run.figures.get("p99_tbt_ms")), _share(run.figures.get("fluidity_index_p10")),
            record.outcome.value.replace("_", " "))
    return table


def _counts(progress: StudyProgress) -> str:
    run = progress.run
    if run is None:
        return ""
    return f", {run.finished} of {run.planned} requests done, {run.in_flight} in flight"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
