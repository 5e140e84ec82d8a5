"""From paths to a report: what stands behind each path decides which report it is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from bench.files import write_text
from bench.foreign import ImportedResult, load_results
from reports.capacity_file import CAPACITY_FILE, load_capacity
from reports.capacity_report import capacity_document, capacity_view
from reports.comparison import compare, traded
from reports.document import Document
from reports.evidence import Evidence, gather
from reports.html_page import html_page
from reports.imported_report import imported_document, imported_view
from reports.markdown import markdown
from reports.run_report import run_document
from reports.run_view import RunView, distinct_names, load_view, setup_rows
from reports.simulated import simulated_study
from reports.study import Study
from reports.study_file import STUDY_FILE, load_study
from reports.study_report import study_document
from workloads.errors import EvidenceError, UsageError

Format = Literal["html", "md", "json"]
FORMATS: tuple[str, ...] = get_args(Format)
SCHEMA_VERSION = 1
_STUDY_FILES = (STUDY_FILE, CAPACITY_FILE)


def render(paths: Sequence[Path], format: str) -> str:
    """The report of one study (its directory, `recommendation.json` or `capacity.json`), of runs side by
    side, or of result files, of other load generators or of `tune bench --save-result`.

    `format` is html, md or json. Raises UsageError for an unknown format, for a mixture and for a
    path that does not exist; EvidenceError for a path that is neither study nor run.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown report format {format!r}; known: {', '.join(FORMATS)}")
    if not paths:
        raise UsageError("name a study directory or at least one run directory")
    studies = [path for path in paths if path.name in _STUDY_FILES
               or any((path / name).exists() for name in _STUDY_FILES)]
    if studies and len(paths) > 1:
        raise UsageError(
            f"{studies[0]} is a study and is reported alone; to compare runs name their directories"
        )
    if studies:
        return _study(studies[0], format)
    if imported := load_imported(paths):
        if format == "json":
            return _json(imported_view(imported))
        return _written(imported_document(imported), format)
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist; give a study or run directory, or a result file")
        if not (path / "run.json").exists():
            raise EvidenceError(f"{path} is neither a run (no run.json) nor a study (no {STUDY_FILE} yet)")
    views = [load_view(path) for path in paths]
    return _json(_runs_view(views)) if format == "json" else _written(run_document(views), format)


def load_imported(paths: Sequence[Path]) -> tuple[ImportedResult, ...]:
    """The results in `paths` where they are result files, of other load generators or ours; else empty.

    Raises UsageError for a mixture with directories, and what `load_results` raises.
    """
    files = [path for path in paths if path.is_file() and path.name not in _STUDY_FILES]
    if not files:
        return ()
    if len(files) < len(paths):
        raise UsageError(f"{files[0]} is a result file and is not compared with a directory; report them "
                         f"one by one")
    return tuple(result for path in files for result in load_results(path))


def write_report(paths: Sequence[Path], format: str, output: Path) -> Path:
    """Renders into `output`, which appears complete or not at all, and returns it.

    Raises what `render` raises, and OutputError when the file cannot be written.
    """
    if not output.name:
        raise UsageError("give --output a file name, as in --output report.html")
    return write_text(output, render(paths, format))


def _study(path: Path, format: str) -> str:
    if path.name == CAPACITY_FILE or (path / CAPACITY_FILE).exists():
        capacity = load_capacity(path)
        return _json(capacity_view(capacity)) if format == "json" else _written(
            capacity_document(capacity), format)
    study = load_study(path)
    evidence = gather(study)
    if format == "json":
        return _json(_study_view(study, evidence))
    return _written(study_document(study, evidence), format)


def _written(document: Document, format: str) -> str:
    return _encodable(html_page(document) if format == "html" else markdown(document))


def _json(view: dict[str, Any]) -> str:
    whole = {"schema_version": SCHEMA_VERSION, **view}
    return _encodable(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _encodable(content: str) -> str:
    # JSON may hold half a surrogate pair, which no file can.
    return content.encode("utf-8", errors="replace").decode("utf-8")


def _study_view(study: Study, evidence: Evidence) -> dict[str, Any]:
    comparison, simulation = compare(study), simulated_study(study.environment)
    return {
        "kind": "study",
        "verdict": study.verdict,
        "simulated": None if simulation is None else simulation.as_dict(),
        "study": dict(study.raw),
        "comparison": [
            {
                "figure": item.quantity.key,
                "label": item.quantity.label,
                "unit": item.quantity.unit,
                "default": item.default,
                "recommended": item.recommended,
                "effect": item.effect or None,
            }
            for item in (comparison.differences if comparison else ())
        ],
        "traded": list(traded(comparison)) if comparison else [],
        "gaps": {
            "default": evidence.default.as_dict() if evidence.default else None,
            "recommended": evidence.recommended.as_dict() if evidence.recommended else None,
        },
        "missing": list(evidence.missing),
    }


def _runs_view(views: Sequence[RunView]) -> dict[str, Any]:
    differing, _ = setup_rows(views)
    return {
        "kind": "runs",
        "runs": [
            {**view.as_dict(), "name": name} for name, view in zip(distinct_names(views), views, strict=True)
        ],
        "setup_differences": [{"setting": name, "values": values} for name, *values in differing],
    }
