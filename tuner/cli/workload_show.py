"""`tune workload show`: what traffic is like, and what that means for chunked prefill."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import trace_options

if TYPE_CHECKING:
    from pathlib import Path

    from reports.workload_tables import Traffic
    from workloads.traces.options import ReadOptions


def show(
    file: Annotated[str, typer.Argument(
        help="A trace (see `tune workload formats`), the YAML file of a workload, or the name of a preset.")],
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
    request_rate: Annotated[float | None, typer.Option(
        help="Of a workload: requests per second of the plan that is looked at.")] = None,
    duration: Annotated[float | None, typer.Option(
        help="Of a workload: seconds of the plan. Default: as long as the trace that it was fitted to, "
             "else its run_seconds.")] = None,
    seed: Annotated[int, typer.Option(help="Of a workload's plan, and of formats that are distributions.",
                                      min=0)] = 0,
    decode_deadline_ms: Annotated[float | None, typer.Option(
        help="How often a token of an answer is taken to come, for the estimate of how many answers run. "
             "Default: the workload's, else 50.")] = None,
    output: Annotated[str | None, typer.Option(
        help="Also write a report: .html, with charts, or .md.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the screen.")] = False,
) -> None:
    """Percentiles, arrivals and prefix reuse of a trace or of a workload's plan,
    and whether that load is a fit for chunked prefill. Nothing is sent anywhere.

    Exit codes: 0 shown, 64 wrong usage or a file that cannot be read.
    """
    from pathlib import Path

    from reports.workload_report import report_ending, write_workload_report

    report = None if output is None else report_ending(Path(output))
    options = trace_options.read_options(
        time_unit=time_unit, block_size=block_size, lengths=lengths, columns=column, tokenizer=tokenizer,
        max_model_len=max_model_len, clip_long=clip_long, skip_bad=skip_bad_rows, window=window, rows=rows,
        seed=seed)
    if _is_workload(file):
        _refuse_trace_flags(form, options, seed)
        traffic, told = _of_workload(file, request_rate, duration, seed, decode_deadline_ms)
    else:
        _refuse_workload_flags(request_rate, duration)
        traffic, told = _of_trace(Path(file), form, options, decode_deadline_ms)
    files = {} if report is None else {"report": str(write_workload_report([traffic], report))}
    _print(traffic, told, files, as_json)


def _is_workload(file: str) -> bool:
    from workloads import PRESETS

    return file in PRESETS or file.endswith((".yaml", ".yml"))


def _refuse_trace_flags(form: str | None, options: "ReadOptions", seed: int) -> None:
    from workloads import UsageError
    from workloads.traces.options import ReadOptions

    if form is not None or options != ReadOptions(seed=seed):
        raise UsageError("flags about a trace file do not go with a workload; write them into its YAML file")


def _refuse_workload_flags(request_rate: float | None, duration: float | None) -> None:
    from workloads import UsageError

    if request_rate is not None or duration is not None:
        raise UsageError("--request-rate and --duration are for workloads: a trace has times of its own "
                         "(--window and --rows take a part of it)")


def _of_workload(
    name: str, request_rate: float | None, duration: float | None, seed: int, deadline_ms: float | None
) -> tuple["Traffic", dict[str, Any]]:
    from reports.workload_tables import Traffic
    from tuner.cli.load_options import LoadAsked, plan_of
    from workloads import load_workload
    from workloads.traces.statistics import measured_plan

    workload = load_workload(name)
    interval_s = _interval_s(deadline_ms, workload.decode_deadline_ms)
    # Nothing is measured here that would need a warm-up.
    asked = LoadAsked(rate=request_rate, num_prompts=None, num_warmups=0, burstiness=None, seed=seed,
                      duration=workload.recorded_span_s if duration is None else duration)
    plan = plan_of(workload, asked, by_lengths=False)
    traffic = Traffic.of(
        workload.name, f"a plan of seed {seed}", measured_plan(plan),
        token_interval_s=interval_s)
    return traffic, {"file": name, "format": "workload", "seed": seed, "plan_digest": plan.digest()}


def _of_trace(
    path: "Path", form: str | None, options: "ReadOptions", deadline_ms: float | None
) -> tuple["Traffic", dict[str, Any]]:
    from reports.workload_tables import Traffic
    from tuner.cli.workload_progress import reading_shown
    from workloads.traces import open_trace
    from workloads.traces.csv_header import listed
    from workloads.traces.named_csv import unused_columns
    from workloads.traces.statistics import TraceStatistics

    interval_s = _interval_s(deadline_ms, None)
    reader = open_trace(path, format=form, options=options)
    statistics = TraceStatistics()
    with reading_shown(reader) as show_progress:
        for piece in reader.pieces():
            statistics.add(piece)
            show_progress()
    traffic = Traffic.of(
        path.name, f"read as {reader.format}", statistics, rejected=reader.rejected, clipped=reader.clipped,
        token_interval_s=interval_s)
    passed_over = unused_columns(reader.path, options) if reader.format == "csv" else ()
    if passed_over:
        typer.echo(f"tune: columns that were not read: {listed(passed_over)} (--column OURS=THEIRS names "
                   f"others)", err=True)
    return traffic, {"file": str(path), "format": reader.format, "read": reader.read,
                     "columns_not_read": list(passed_over)}


def _interval_s(deadline_ms: float | None, default_ms: float | None) -> float:
    from math import isfinite

    from workloads import UsageError
    from workloads.traces.chunking_advice import TOKEN_INTERVAL_S

    if deadline_ms is not None and not (isfinite(deadline_ms) and deadline_ms > 0):
        raise UsageError(f"--decode-deadline-ms must be above 0; got {deadline_ms:g}")
    chosen_ms = default_ms if deadline_ms is None else deadline_ms
    return TOKEN_INTERVAL_S if chosen_ms is None else chosen_ms / 1e3


def _print(traffic: "Traffic", told: dict[str, Any], files: dict[str, str], as_json: bool) -> None:
    if as_json:
        import json

        whole = {**told, **traffic.figures, "chunking": traffic.advice.as_dict(), **files}
        # ASCII, as a file's name may hold what no terminal can write.
        typer.echo(json.dumps(whole, indent=1, allow_nan=False))
        return
    from rich.console import Console

    from reports.workload_terminal import workload_screen

    Console().print(workload_screen(traffic, files))
