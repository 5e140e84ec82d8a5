"""`tune workload fit`: a small, anonymous workload that stands for a trace."""

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import trace_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from workloads import Plan, Workload
    from workloads.fitting import Agreement
    from workloads.traces import ReadOptions, Trace

_SEEDS = (0, 1)
"""Of the traffic that is set beside the trace."""


def fit(
    trace: Annotated[str, typer.Argument(help="A trace; see `tune workload formats`.")],
    output: Annotated[str, typer.Option(
        "--output", "-o", help="The workload file to write, .yaml or .yml.")],
    name: Annotated[str | None, typer.Option(
        help="Name of the workload. Default: that of the written file.")] = None,
    report: Annotated[str | None, typer.Option(
        help="Also write trace and model side by side: .html, with charts, or .md.")] = None,
    keep_names: Annotated[bool, typer.Option(
        "--keep-names", help="Call tenants as the trace does, not t1, t2 …")] = False,
    form: trace_options.Format = None,
    time_unit: trace_options.TimeUnit = None,
    block_size: trace_options.BlockSize = None,
    lengths: trace_options.LengthsAre = None,
    column: trace_options.Columns = None,
    tokenizer: trace_options.Tokenizer = None,
    max_model_len: trace_options.MaxModelLen = None,
    clip_long: trace_options.ClipLong = False,
    skip_bad_rows: trace_options.SkipBad = False,
    window: trace_options.Window = None,
    rows: trace_options.Rows = None,
    seed: Annotated[int, typer.Option(help="Of formats that are distributions.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")] = False,
) -> None:
    """Fit a workload to a trace: tables of lengths, an arrival process and what prompts share, without
    any row of the trace. Its traffic is then made with two seeds and set beside the trace.

    Exit codes: 0 written, also where a figure misses its tolerance, which is said; 64 wrong usage, or
    a file that cannot be read or written.
    """
    from datetime import date
    from pathlib import Path

    from bench.files import write_text
    from reports.workload_report import report_ending
    from workloads.fitting import TraceFacts, agreements, fit_workload, regenerated, workload_yaml

    path, page = _yaml_file(output), None if report is None else report_ending(Path(report))
    recorded = _read(Path(trace), form, trace_options.read_options(
        time_unit=time_unit, block_size=block_size, lengths=lengths, columns=column, tokenizer=tokenizer,
        max_model_len=max_model_len, clip_long=clip_long, skip_bad=skip_bad_rows, window=window, rows=rows,
        seed=seed))
    workload = fit_workload(recorded, name=name or path.stem, max_model_len=max_model_len,
                            keep_names=keep_names)
    span_ns = recorded.span_ns
    facts = TraceFacts(len(recorded), None if span_ns is None else span_ns / 1e9, date.today(),
                       names_kept=keep_names)
    plans = [regenerated(workload, recorded, number) for number in _SEEDS]
    found = agreements(recorded, plans)
    written = {"workload": str(write_text(path, workload_yaml(workload, facts)))}
    if page is not None:
        written["report"] = str(_write_report(page, workload, recorded, plans[0], found))
    _print(workload, recorded, found, written, as_json)


def _yaml_file(output: str) -> "Path":
    from pathlib import Path

    from workloads import UsageError

    path = Path(output)
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--output {output!r} must end in .yaml or .yml, as workload files do")
    return path


def _read(path: "Path", form: str | None, options: "ReadOptions") -> "Trace":
    from dataclasses import replace

    from tuner.cli.workload_progress import reading_shown
    from workloads.traces import Trace, open_trace

    reader, pieces = open_trace(path, format=form, options=options), []
    with reading_shown(reader) as show_progress:
        for piece in reader.pieces():
            pieces.append(piece)
            show_progress()
    return replace(Trace.joined(pieces), rejected=dict(reader.rejected), clipped=reader.clipped)


def _write_report(page: "Path", workload: "Workload", trace: "Trace", plan: "Plan",
                  found: "Sequence[Agreement]") -> "Path":
    from reports.fit_agreement import agreement_section
    from reports.workload_report import write_workload_report
    from reports.workload_tables import Traffic
    from workloads.traces.statistics import measured_plan, measured_trace

    of_trace = Traffic.of("trace", "what was recorded", measured_trace(trace), rejected=trace.rejected,
                          clipped=trace.clipped)
    of_model = Traffic.of("model", f"the workload {workload.name} with seed {plan.seed}", measured_plan(plan))
    return write_workload_report([of_trace, of_model], page, title=f"Workload {workload.name}, fitted",
                                 first=(agreement_section(found),))


def _print(workload: "Workload", trace: "Trace", found: "Sequence[Agreement]", written: dict[str, str],
           as_json: bool) -> None:
    if as_json:
        import json

        figures = {one.name: {"trace": one.trace, "model": one.model, "difference": one.worst,
                              "within": one.within, "kind": one.kind, "holds": one.holds} for one in found}
        typer.echo(json.dumps({
            "name": workload.name, "digest": workload.digest(), "rows": len(trace),
            "rejected": sum(trace.rejected.values()), "clipped": trace.clipped,
            "components": len(workload.components),
            "arrivals": None if workload.arrivals is None else workload.arrivals.kind,
            "recorded_rate_rps": workload.recorded_rate_rps, "recorded_span_s": workload.recorded_span_s,
            "agreement": figures, "holds": all(one.holds is not False for one in found), **written,
        }, indent=1, allow_nan=False))
        return
    from rich.console import Console, RenderableType
    from rich.text import Text

    from reports.fit_agreement import agreement_table, agreement_verdict
    from reports.terminal import file_lines, rich_table, spaced

    left_out = sum(trace.rejected.values())
    told = f"{workload.description}{f' ({left_out} rows left out)' if left_out else ''}"
    arrivals = "" if workload.arrivals is None else f"; arrivals: {workload.arrivals.describe()}"
    kinds = len(workload.components)
    parts: list[RenderableType] = [
        Text.assemble((workload.name, "bold"), f": {told}; {kinds} component{'' if kinds == 1 else 's'}"
                      f"{arrivals}."),
        *([rich_table(agreement_table(found))] if found else []), Text(agreement_verdict(found))]
    Console().print(spaced([*parts, *file_lines(written)]))
