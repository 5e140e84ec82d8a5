"""`tune workload make`: the requests of a trace or workload as a file that other tools send."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import replay_options, trace_options

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.cli.load_options import LoadAsked
    from workloads import Plan, Workload

_OF_TRACE = ("form", "time_unit", "block_size", "lengths", "column", "tokenizer", "max_model_len",
             "clip_long", "skip_bad_rows", "window", "rows", "time_scale", "scale_lengths", "spread_ticks",
             "keep", "overlay")
"""Names of the parameters that say how a trace is read and shaped."""


def make(
    source: Annotated[str, typer.Argument(
        help="A trace (see `tune workload formats`), the YAML file of a workload, or the name of a preset.")],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write.")],
    output_format: Annotated[str | None, typer.Option(
        help="timed-trace: what `vllm bench serve` reads, with ids of blocks of 16 tokens. mooncake: the "
             "same in milliseconds, with blocks of 512. csv: no ids, but which turn follows which. Default: "
             "csv for a file of that name, else timed-trace.")] = None,
    request_rate: Annotated[float | None, typer.Option(
        help="Requests/s. Default: a trace's own times, and the rate that a workload was fitted to.")] = None,
    num_prompts: Annotated[int | None, typer.Option(help="Requests to write.")] = None,
    duration: Annotated[float | None, typer.Option(
        help="Seconds of arrivals, instead of --num-prompts. Default: all of a trace; as many as "
             "the trace had that a workload was fitted to; a workload's run_seconds.")] = None,
    stages: Annotated[str | None, typer.Option(
        help="Of a workload: the rate over time, as in 30s@2,60s@2..8, instead of --request-rate.")] = None,
    burstiness: Annotated[float | None, typer.Option(
        help="Gamma shape of arrivals that are drawn: 1 is Poisson, below it burstier, inf constant. "
             "Default: the workload's.")] = None,
    seed: Annotated[int, typer.Option(
        help="Of what is drawn. A trace begins with its first request for 0, with another one for any other "
             "number.", min=0)] = 0,
    token_ms: Annotated[float | None, typer.Option(
        help="How long an answer takes for each token, for later turns that follow it: files with hash ids "
             "hold fixed times. Default: the workload's decode_deadline_ms, 50 for a trace.")] = None,
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
    time_scale: Annotated[float | None, typer.Option(
        help="Multiply the trace's times: 0.5 is twice the rate.")] = None,
    scale_lengths: replay_options.ScaleLengths = None,
    spread_ticks: replay_options.SpreadTicks = False,
    keep: Annotated[float | None, typer.Option(
        help="Take this share of its requests over the same time, as bursty as all of them.")] = None,
    overlay: Annotated[int | None, typer.Option(
        help="Lay so many successive parts of it over one another: so many times the rate.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the text.")] = False,
) -> None:
    """Write the requests that a run would send, for `vllm bench serve` and other tools.

    The same seed writes the same bytes. Exit codes: 0 written, 64 wrong usage, a file that cannot be
    read or one that cannot be written.
    """
    asked = dict(locals())
    from pathlib import Path

    from bench.files import write_pieces
    from tuner.cli.load_options import LoadAsked, plan_of
    from workloads.traces.writing import trace_lines, written_times

    target = Path(output)
    chosen = _output_format(output_format, target)
    _keep_source(source, target)
    workload = _workload_of(source, {name: asked[name] for name in _OF_TRACE}, seed)
    token_ns = _answer_token_ns(token_ms, workload)
    load = LoadAsked(rate=request_rate, num_prompts=num_prompts, duration=duration, num_warmups=0,
                     burstiness=burstiness, seed=seed, stages=stages)
    plan = plan_of(workload, _as_recorded(load, workload), by_lengths=False)
    times_ns = written_times(plan, chosen, answer_token_ns=token_ns)
    write_pieces(target, trace_lines(plan, chosen, times_ns))
    facts = {"file": str(target), "format": chosen, "bytes": target.stat().st_size,
             **_facts(plan, times_ns, workload), "send_with": _command(len(plan), target, chosen)}
    if as_json:
        import json

        typer.echo(json.dumps(facts, indent=1))
    else:
        _tell(facts, plan)


def _output_format(asked: str | None, target: "Path") -> Any:
    from workloads import UsageError
    from workloads.traces.writing import OUTPUT_FORMATS

    if asked is None:
        return "csv" if target.suffix.lower() == ".csv" else "timed-trace"
    if asked not in OUTPUT_FORMATS:
        raise UsageError(f"unknown --output-format {asked!r}; known: {', '.join(OUTPUT_FORMATS)}")
    return asked


def _keep_source(source: str, target: "Path") -> None:
    from pathlib import Path

    from workloads import UsageError

    if target.exists() and Path(source).exists() and target.samefile(source):
        raise UsageError(f"--output {target} is the source itself: choose another file")


def _workload_of(source: str, of_trace: Mapping[str, Any], seed: int) -> "Workload":
    """The preset, the workload of the file, or one that replays the trace."""
    from workloads import PRESETS, UsageError, Workload, load_workload

    if source in PRESETS or source.endswith((".yaml", ".yml")):
        if given := [name for name, value in of_trace.items() if value not in (None, False, [])]:
            flag = {"form": "format"}.get(given[0], given[0]).replace("_", "-")
            raise UsageError(f"--{flag} is about a trace file: write it into the YAML file of a workload "
                             f"that has `traces`")
        return load_workload(source)
    return Workload.of_trace(_trace_source(source, of_trace, seed), max_model_len=of_trace["max_model_len"])


def _trace_source(path: str, asked: Mapping[str, Any], seed: int) -> Any:
    from pathlib import Path

    from pydantic import ValidationError

    from workloads import UsageError
    from workloads.traces.source import TraceSource
    from workloads.workload import first_problem

    same = ("time_unit", "block_size", "lengths", "tokenizer", "window", "rows", "time_scale",
            "scale_lengths", "spread_ticks", "keep", "overlay")
    given: dict[str, Any] = {name: asked[name] for name in same if asked[name] is not None}
    try:
        return TraceSource(
            path=Path(path).absolute(), format=asked["form"], seed=seed,
            columns=trace_options.column_names(asked["column"]),
            too_long="clip" if asked["clip_long"] else "reject",
            bad_rows="skip" if asked["skip_bad_rows"] else "refuse", **given)
    except ValidationError as error:
        if error.errors()[0]["loc"][0] == "scale_lengths":   # two kinds of value: pydantic names both
            raise UsageError(f"--scale-lengths {asked['scale_lengths']!r} is neither a number above 0 nor "
                             f"`fit`") from error
        raise UsageError(f"--{first_problem(error).replace('_', '-', 1)}") from error


def _as_recorded(load: "LoadAsked", workload: "Workload") -> "LoadAsked":
    """What was not asked for as it was in the trace that a workload was fitted to."""
    from dataclasses import replace

    if load.stages is not None:
        return load
    has_length = load.num_prompts is not None or load.duration is not None
    return replace(load, rate=workload.recorded_rate_rps if load.rate is None else load.rate,
                   duration=load.duration if has_length else workload.recorded_span_s)


def _answer_token_ns(asked_ms: float | None, workload: "Workload") -> int:
    from math import isfinite

    from workloads import UsageError

    token_ms = workload.decode_deadline_ms if asked_ms is None else asked_ms
    if not (isfinite(token_ms) and 0 <= token_ms <= 1e6):
        raise UsageError(f"--token-ms must be between 0 and a million; got {token_ms:g}")
    return round(token_ms * 1e6)


def _facts(plan: "Plan", times_ns: Any, workload: "Workload") -> dict[str, Any]:
    trace = workload.trace
    span_s = int(times_ns.max() - times_ns.min()) / 1e9
    return {
        "rows": len(plan), "span_s": span_s, "rate_rps": len(plan) / span_s if span_s else None,
        "input_tokens": int(plan.input_len.sum()), "output_tokens": int(plan.output_len.sum()),
        "rejected": {} if trace is None else dict(trace.rejected),
        "clipped": 0 if trace is None else trace.clipped,
        "plan_digest": plan.digest(),
    }


def _command(rows: int, target: "Path", chosen: str) -> str:
    from shlex import join

    if chosen == "csv":
        return join(["tune", "bench", "--trace", str(target)])
    words = ["vllm", "bench", "serve", "--model", "MODEL", "--dataset-name", "timed_trace", "--dataset-path",
             str(target), "--num-prompts", str(rows)]
    if chosen == "mooncake":
        words += ["--timed-trace-chunk-hash-size", "512", "--timed-trace-sec-multiplier", "0.001"]
    return join(words)


def _tell(facts: Mapping[str, Any], plan: "Plan") -> None:
    when = "all at once" if facts["rate_rps"] is None else (
        f"over {facts['span_s']:.4g} s, {facts['rate_rps']:.4g} requests/s")
    typer.echo(f"{facts['file']}: {facts['rows']} requests {when}; {facts['input_tokens']} prompt and "
               f"{facts['output_tokens']} answer tokens; {facts['bytes'] / 1e6:.3g} MB")
    for why, count in facts["rejected"].items():
        typer.echo(f"left out of the trace: {count} ({why})")
    if facts["clipped"]:
        typer.echo(f"cut to fit: {facts['clipped']} requests of the trace")
    if facts["format"] == "csv" and plan.blocks is not None:
        typer.echo("the blocks that prompts share are left out: a CSV file has no place for them")
    typer.echo(f"send it with: {facts['send_with']}")
