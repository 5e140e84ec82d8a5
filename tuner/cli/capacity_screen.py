"""What is shown of a capacity search."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FIGURES = (("p99_tbt_ms", "p99 TBT ms"), ("max_tbt_ms", "longest gap ms"), ("p90_ttft_ms", "p90 TTFT ms"),
            ("fluidity_index_p10", "p10 fluidity"))


def capacity_lines(result: Mapping[str, Any], file: Path) -> list[str]:
    """The verdict, a line for each run, the confirming one last, and where all of it lies."""
    environment = result["environment"]
    runs = [*result["runs"], *([result["confirmed"]] if result["confirmed"] else [])]
    head = ["requests/s", *(name for _, name in _FIGURES), "verdict"]
    rows = [head, *(_row(run, confirming=run is result["confirmed"]) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return [
        "",
        f"{result['verdict'].replace('_', ' ').capitalize()}: {result['verdict_text']}",
        f"{environment['engine']} {environment['engine_version']} runs {environment['model']}; SLO "
        f"{', '.join(result['slo'])}",
        "",
        *("  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)) + "  " + row[-1]
          for row in rows),
        "",
        *(f"Note: {warning}" for warning in result["warnings"]),
        f"Result: {file}; all runs: {file.parent / 'runs'} (show one with tune report)",
    ]


def _row(run: Mapping[str, Any], *, confirming: bool) -> list[str]:
    figures = run["figures"]
    values = [figures.get(key) for key, _ in _FIGURES]
    verdict = "holds" if run["holds"] else run["outcome"].replace("_", " ")
    return [f"{run['rate_rps']:.3g}", *("-" if value is None else f"{value:.3g}" for value in values),
            f"{verdict} (confirming run)" if confirming else verdict]
