"""Flags of the commands that replay a trace."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from workloads import UsageError, Workload
from workloads.traces.source import TraceSource

TraceFile = Annotated[str | None, typer.Option(
    "--trace", "--dataset-path", metavar="FILE", help="Replay this trace, row by row, in place of drawing "
    "requests; without --request-rate at its own times.")]
TraceFormat = Annotated[str | None, typer.Option(
    "--trace-format", "--dataset-name", help="See `tune workload formats`. Default: told from the file.")]
TraceTimeScale = Annotated[float | None, typer.Option(
    help="Multiply its times: 0.5 is twice the rate.")]
TraceTimeUnit = Annotated[str | None, typer.Option(
    help="Of its timestamps: s, ms, us or ns. Default: the format's.")]
TraceWindow = Annotated[str | None, typer.Option(
    metavar="FROM..TO", help="Only its requests of these seconds, as in 600..1200 or 10m..20m.")]
TraceBlockSize = Annotated[int | None, typer.Option(
    help="Tokens of its hash blocks. Default: the format's (Mooncake 512, Bailian and vLLM 16).", min=1)]
TraceColumns = Annotated[list[str] | None, typer.Option(
    "--trace-column", metavar="OURS=THEIRS", help="A column that has another name, as in "
    "input_len=prompt_tokens; repeatable.")]
ScaleLengths = Annotated[str | None, typer.Option(
    metavar="FACTOR|fit", help="Multiply its prompt and answer lengths, for a smaller model; fit: until the "
    "longest request fits --max-model-len.")]
SpreadTicks = Annotated[bool | None, typer.Option(
    "--spread-ticks", help="Spread requests of one timestamp over the time until the next.")]
ClipLong = Annotated[bool | None, typer.Option(
    "--clip-long", help="Cut its requests above --max-model-len in place of leaving them out.")]
SkipBadRows = Annotated[bool | None, typer.Option(
    "--skip-bad-rows", help="Leave out and count rows that cannot be used, in place of an error.")]

FLAGS = ("trace_format", "trace_time_scale", "trace_time_unit", "trace_window", "trace_block_size",
         "trace_column", "scale_lengths", "spread_ticks", "clip_long", "skip_bad_rows")
"""Names of the parameters that say how a trace is read."""


def trace_workload(trace: str | None, asked: Mapping[str, Any], *, tokenizer: str | None = None,
                   max_model_len: int | None = None) -> Workload | None:
    """The workload that replays `--trace`, read and shaped as the other flags say; None without it.

    UsageError for flags about a trace without one, and where it cannot be read.
    """
    given = {name: asked[name] for name in FLAGS if asked.get(name) not in (None, False, [])}
    if trace is None:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} needs a --trace to read")
        return None
    if not trace:
        raise UsageError("--trace names no file")
    return Workload.of_trace(source_of(trace, given, tokenizer), max_model_len=max_model_len)


def source_of(trace: str, given: Mapping[str, Any], tokenizer: str | None) -> TraceSource:
    """How to read `trace`; UsageError for a flag that cannot be meant."""
    from pydantic import ValidationError

    from tuner.cli.trace_options import column_names
    from workloads.workload import first_problem

    try:
        return TraceSource(
            path=Path(trace).absolute(), format=given.get("trace_format"), tokenizer=tokenizer,
            time_unit=given.get("trace_time_unit"), window=given.get("trace_window"),
            block_size=given.get("trace_block_size"), columns=column_names(given.get("trace_column")),
            time_scale=given.get("trace_time_scale", 1.0), scale_lengths=_factor(given),
            spread_ticks=given.get("spread_ticks", False),
            too_long="clip" if given.get("clip_long") else "reject",
            bad_rows="skip" if given.get("skip_bad_rows") else "refuse")
    except ValidationError as error:
        raise UsageError(f"--trace: {first_problem(error)}") from error


def _factor(given: Mapping[str, Any]) -> float | Literal["fit"]:
    text = given.get("scale_lengths", "1")
    if text == "fit":
        return "fit"
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--scale-lengths {text!r} is neither a number nor `fit`") from None
