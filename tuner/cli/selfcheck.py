"""`tune selfcheck`: what the client itself adds to the figures, at the load that is planned."""

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import engine_options as options

if TYPE_CHECKING:
    from bench.client_error import Compared
    from tuner.selfcheck import SelfCheck
    from workloads import Plan

_LONGEST_MS = 3_600_000


def selfcheck(
    preset: options.Preset = None,
    workload: options.WorkloadFile = None,
    input_len: Annotated[int | None, typer.Option(
        "--input-len", "--random-input-len", help="Tokens of every prompt. Default 1024.")] = None,
    output_len: Annotated[int | None, typer.Option(
        "--output-len", "--random-output-len", help="Tokens of every answer. Default 128.")] = None,
    random_range_ratio: Annotated[float | None, typer.Option(
        "--random-range-ratio", help="Spread both lengths evenly over this share around them.")] = None,
    request_rate: Annotated[float | None, typer.Option(
        help="Requests/s; inf sends all at once. Default 20 without --num-prompts.")] = None,
    num_prompts: Annotated[int | None, typer.Option(help="Requests to send.")] = None,
    duration: Annotated[float | None, typer.Option(
        help="Seconds to send requests, instead of --num-prompts. Default 10.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(
        help="Most requests in flight; with --request-rate inf one for each that ends.", min=1)] = None,
    burstiness: Annotated[float | None, typer.Option(
        help="Gamma shape of the arrivals: 1 is Poisson, below it burstier, inf constant.")] = None,
    stages: Annotated[str | None, typer.Option(
        help="The rate over time, as in 30s@2,60s@2..8,30s@8, instead of --request-rate.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that send.", min=1, max=256)] = 1,
    seed: Annotated[int, typer.Option(help="Of arrivals, lengths and prompts.")] = 0,
    ttft_ms: Annotated[float, typer.Option(
        help="The server's first token comes after so long.", max=_LONGEST_MS)] = 50.0,
    interval_ms: Annotated[float, typer.Option(
        help="And then one token every so many milliseconds.", max=_LONGEST_MS)] = 20.0,
    as_json: Annotated[bool, typer.Option(
        "--json", help="Print the figures as JSON to standard output, all else to standard error.")] = False,
) -> None:
    """Measure the measuring: the client's own error in TTFT and TBT at a load.

    Starts a server that sends tokens at an exact pace and knows when, plays the
    load against it as `tune bench` would, and compares. Needs no engine and no
    model. Exit codes: 0 the figures of such a run can be trusted, 3 they cannot,
    64 wrong usage, 130 interrupted.
    """
    import json

    from tuner.cli import bench_options as flags
    from tuner.cli.load_options import LoadAsked, plan_of

    by_lengths = preset is None and workload is None
    if by_lengths and input_len is None and output_len is None and random_range_ratio is None:
        input_len, output_len = 1024, 128
    if stages is None and num_prompts is None:
        request_rate = 20.0 if request_rate is None else request_rate
        duration = 10.0 if duration is None else duration
    plan = plan_of(
        flags.workload_of(preset, workload, input_len, output_len, random_range_ratio),
        LoadAsked(rate=request_rate, num_prompts=num_prompts, duration=duration, num_warmups=0,
                        burstiness=burstiness, seed=seed, max_concurrency=max_concurrency, stages=stages),
        by_lengths=by_lengths)
    checked = _measure(
        plan, ttft_ms=flags.above_zero("--ttft-ms", ttft_ms, or_zero=True),
        interval_ms=flags.above_zero("--interval-ms", interval_ms), workers=workers,
        max_concurrency=max_concurrency)
    typer.echo("\n".join(screen(checked)), err=as_json)
    if as_json:
        typer.echo(json.dumps(checked.as_dict(), indent=2, allow_nan=False))
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)


def _measure(plan: "Plan", *, ttft_ms: float, interval_ms: float, workers: int,
             max_concurrency: int | None) -> "SelfCheck":
    from rich.console import Console

    from tuner.cli.interrupts import run_interruptible
    from tuner.cli.run_display import RunDisplay
    from tuner.selfcheck import check_client

    with RunDisplay(Console(stderr=True)) as display:
        return run_interruptible(check_client(
            plan, ttft_ms=ttft_ms, interval_ms=interval_ms, workers=workers,
            max_concurrency=max_concurrency, on_progress=display.on_run))


def screen(checked: "SelfCheck") -> list[str]:
    """What is shown of a check, line by line."""
    run, error = checked.run, checked.error
    processes = "1 process" if checked.workers == 1 else f"{checked.workers} processes"
    return [
        f"Load    {len(run)} requests, at most {run.peak_in_flight()} in flight, "
        f"{int(run.num_tokens.sum())} tokens, {processes}",
        f"Server  first token after {checked.ttft_ms:g} ms, then one every {checked.interval_ms:g} ms",
        "",
        f"{'ms':<14}{'true':>10}{'measured':>10}{'error':>10}",
        *_rows("TTFT", error.ttft),
        *_rows("TBT", error.tbt),
        "",
        f"{'single, ms':<14}{'p50':>10}{'p99':>10}{'max':>10}",
        _row("TTFT error", *error.ttft.error.values()),
        _row("TBT error", *error.tbt.error.values()),
        _row("token late by", *(error.lateness[stat] for stat in error.tbt.error)),
        "",
        *_verdict(checked),
        *(f"Note: {note}." for note in checked.notes),
    ]


def _rows(name: str, compared: "Compared") -> list[str]:
    return [_row(f"{name} {stat}", compared.true[stat], compared.measured[stat], compared.difference(stat),
                 signed=True) for stat in compared.true]


def _row(name: str, *values_ns: float | None, signed: bool = False) -> str:
    cells = [_cell(value) for value in values_ns]
    if signed:
        cells[-1] = _cell(values_ns[-1], "+")
    return f"{name:<14}{''.join(cells)}"


def _cell(value_ns: float | None, sign: str = "-") -> str:
    # A rounded -0.0 has no sign worth showing.
    return f"{'-':>10}" if value_ns is None else f"{round(value_ns / 1e6, 3) + 0.0:>{sign}10.3f}"


def _verdict(checked: "SelfCheck") -> list[str]:
    if checked.reasons:
        return ["Not valid: figures of this client at this load cannot be trusted.",
                *(f"  - {reason}" for reason in checked.reasons)]
    told = [f"{_up(resolution)} ms in {stat} {name}" for name, compared, stat in (
        ("TTFT", checked.error.ttft, "p50"), ("TTFT", checked.error.ttft, "p99"),
        ("TBT", checked.error.tbt, "p50"), ("TBT", checked.error.tbt, "p99"),
    ) if (resolution := compared.resolution(stat)) is not None]
    return [f"Valid. At this load differences below {_listed(told)} are this client's."]


def _up(value_ns: float) -> str:
    """Milliseconds, rounded up to two digits behind the point."""
    return f"{-(-int(value_ns) // 10_000) / 100:.2f}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
