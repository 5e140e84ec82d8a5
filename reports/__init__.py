"""Shows what was measured: one HTML file, Markdown or JSON of a study or of runs, and the last screen.

Public: `render`, `write_report`, `FORMATS` (files); `load_study`, `Study`, `load_view`, `view_run`,
`RunView`, `judgement_from`, `Judgement`, `load_imported`, `load_capacity` (what reports read);
`study_screen`, `capacity_screen`, `run_screen`, `imported_screen` (terminal).
Nothing is imported before it is used: jinja2, rich and plotly stay out of `tune --help`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.capacity_file import load_capacity
    from reports.capacity_terminal import capacity_screen
    from reports.imported_terminal import imported_screen
    from reports.rendering import FORMATS, load_imported, render, write_report
    from reports.run_view import RunView, load_view, view_run
    from reports.study import Judgement, Study
    from reports.study_file import judgement_from, load_study
    from reports.terminal import run_screen, study_screen
    from reports.workload_report import workload_document, write_workload_report
    from reports.workload_tables import Traffic
    from reports.workload_terminal import workload_screen

__all__ = [
    "FORMATS",
    "Judgement",
    "RunView",
    "Study",
    "Traffic",
    "capacity_screen",
    "imported_screen",
    "judgement_from",
    "load_capacity",
    "load_imported",
    "load_study",
    "load_view",
    "render",
    "run_screen",
    "study_screen",
    "view_run",
    "workload_document",
    "workload_screen",
    "write_report",
    "write_workload_report",
]

_HOME = {
    "FORMATS": "rendering", "load_imported": "rendering", "render": "rendering", "write_report": "rendering",
    "RunView": "run_view", "load_view": "run_view", "view_run": "run_view",
    "Judgement": "study", "Study": "study", "judgement_from": "study_file", "load_study": "study_file",
    "capacity_screen": "capacity_terminal", "load_capacity": "capacity_file",
    "Traffic": "workload_tables", "workload_document": "workload_report",
    "write_workload_report": "workload_report", "workload_screen": "workload_terminal",
    "imported_screen": "imported_terminal", "run_screen": "terminal", "study_screen": "terminal",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"reports.{_HOME[name]}"), name)
    raise AttributeError(f"module 'reports' has no attribute {name!r}")
