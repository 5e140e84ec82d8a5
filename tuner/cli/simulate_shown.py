"""What `tune simulate` shows and writes of its runs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from reports import Judgement, RunView, judgement_from, run_screen, view_run
from reports.settings_screen import settings_screen
from tuner.one_run import MISSED
from tuner.result_file import result_name, write_result
from tuner.simulate import SimulatedRun


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """Where --save-result puts its files; a name of their own for each where none was given."""

    directory: Path
    name: str | None
    detailed: bool

    def write(self, one: SimulatedRun) -> Path:
        """One file for one setting."""
        path = self.directory / (self.name or result_name(one.run, datetime.now().astimezone()))
        write_result(path, one.as_dict(), one.run if self.detailed else None)
        return path


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting without its run, which may be large."""

    view: RunView
    judgement: Judgement | None
    told: dict[str, Any]
    exit_code: int
    failing: str
    files: dict[str, str]


def shown(one: SimulatedRun, results: ResultFiles | None) -> Shown:
    """What is shown of `one`, whose result file is written where one was asked for."""
    files = {} if one.directory is None else {"run": str(one.directory)}
    if results is not None:
        files["result"] = str(results.write(one))
    told = one.as_dict()
    judgement = None if one.judgement is None else judgement_from(one.judgement.as_dict())
    view = view_run(one.run, path=str(one.directory or ""), summary=told)
    return Shown(view, judgement, told, one.exit_code, one.failing(), files)


def show(runs: Sequence[Shown], *, as_json: bool) -> int:
    """Print the screen, with `as_json` to standard error and the figures to standard output, then what
    made the command fail; returns its exit code: of several settings the best of any."""
    only = runs[0] if len(runs) == 1 else None
    console = Console(stderr=as_json)
    if only is not None:
        console.print(run_screen(only.view, only.judgement, only.files))
    else:
        files = {f"{kind} {number}": path for number, one in enumerate(runs, start=1)
                 for kind, path in one.files.items()}
        console.print(settings_screen([one.view for one in runs], [one.judgement for one in runs], files))
    if as_json:
        told = only.told if only is not None else {"settings": [one.told for one in runs]}
        typer.echo(json.dumps(told, indent=2, allow_nan=False))
    if refused := max(one.told["refused"] for one in runs):
        typer.echo(f"tune: warning: requests that can never fit were refused: {refused}", err=True)
    best = min(runs, key=lambda one: one.exit_code)
    if best.exit_code:
        none = f"none of {len(runs)} settings {'holds the SLO' if best.exit_code == MISSED else 'is valid'}: "
        typer.echo(f"tune: {none if only is None else ''}{best.failing}", err=True)
    return best.exit_code
