"""`tune bench`: measure one setting of the engine at one load."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import engine_options as options
from tuner.cli import replay_options as replay
from tuner.cli import server_options as servers

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.engines import EngineSource
    from tuner.one_run import OneRun, RunSpec


def bench(
    model: options.Model = None,
    preset: options.Preset = None,
    workload: options.WorkloadFile = None,
    input_len: Annotated[int | None, typer.Option(
        "--input-len", "--random-input-len", help="Tokens of every prompt. Default 1024.")] = None,
    output_len: Annotated[int | None, typer.Option(
        "--output-len", "--random-output-len", help="Tokens of every answer. Default 128.")] = None,
    random_range_ratio: Annotated[float | None, typer.Option(
        "--random-range-ratio", help="Spread both lengths evenly over this share around them.")] = None,
    trace: replay.TraceFile = None,
    trace_format: replay.TraceFormat = None,
    trace_time_scale: replay.TraceTimeScale = None,
    trace_time_unit: replay.TraceTimeUnit = None,
    trace_window: replay.TraceWindow = None,
    trace_block_size: replay.TraceBlockSize = None,
    trace_column: replay.TraceColumns = None,
    scale_lengths: replay.ScaleLengths = None,
    spread_ticks: replay.SpreadTicks = None,
    clip_long: replay.ClipLong = None,
    skip_bad_rows: replay.SkipBadRows = None,
    request_rate: Annotated[float | None, typer.Option(
        help="Requests/s; inf sends all at once, the default for lengths with --num-prompts.")] = None,
    num_prompts: Annotated[int | None, typer.Option(help="Requests to measure.")] = None,
    duration: Annotated[float | None, typer.Option(
        help="Seconds to measure, instead of --num-prompts. Default: the workload's.")] = None,
    burstiness: Annotated[float | None, typer.Option(
        help="Gamma shape of the arrivals: 1 is Poisson, below it burstier, inf constant. Default: the "
             "workload's.")] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals, lengths and prompts.")] = 0,
    max_concurrency: Annotated[int | None, typer.Option(
        help="Most requests in flight. With --request-rate inf a closed loop: one for each that ends. With a "
             "rate whoever comes then waits, and his latency counts from when he came.",
        min=1, max=1_000_000)] = None,
    stages: Annotated[str | None, typer.Option(
        help="The rate over time, as in 30s@2,60s@2..8,30s@8, instead of --request-rate.")] = None,
    ramp_up_strategy: Annotated[str | None, typer.Option(
        help="linear or exponential: the rate changes over the whole run.")] = None,
    ramp_up_start_rps: Annotated[float | None, typer.Option(help="Rate at its begin.")] = None,
    ramp_up_end_rps: Annotated[float | None, typer.Option(help="Rate at its end.")] = None,
    workers: Annotated[int, typer.Option(
        help="Processes that send, for rates that are too much for one.", min=1, max=256)] = 1,
    server: servers.Server = None,
    server_command: servers.ServerCommand = None,
    base_url: servers.BaseUrl = None,
    host: servers.Host = None,
    port: servers.Port = None,
    backend: servers.Backend = None,
    endpoint: servers.Endpoint = None,
    api_key_env: servers.ApiKeyEnv = None,
    api_key_file: servers.ApiKeyFile = None,
    header: servers.Header = None,
    extra_body: servers.ExtraBody = None,
    ignore_eos: servers.IgnoreEos = None,
    tokenizer: servers.Tokenizer = None,
    text_prompts: servers.TextPrompts = False,
    ca_file: servers.CaFile = None,
    insecure: servers.Insecure = False,
    control_block: servers.ControlBlock = None,
    num_warmups: Annotated[int | None, typer.Option(
        help="Requests before the measured ones. Default: the workload's seconds of warm-up; none at an "
             "infinite rate.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Tokens that a step may hold.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Requests that may run at once.")] = None,
    long_prefill_token_threshold: Annotated[int | None, typer.Option(
        help="Tokens of one prompt in a step while other requests wait or run; 0 is off.")] = None,
    long_prefill_token_threshold_adaptive: Annotated[bool | None, typer.Option(
        "--long-prefill-token-threshold-adaptive/--no-long-prefill-token-threshold-adaptive",
        help="Raise that threshold to a fair share of the budget.")] = None,
    scheduling_policy: Annotated[str | None, typer.Option(help="fcfs or priority.")] = None,
    config: Annotated[str | None, typer.Option(
        help="Start the engine from this `vllm serve --config` file alone, as a recommended.yaml.")] = None,
    slo: Annotated[list[str] | None, typer.Option(
        help="METRIC:STAT<=VALUE, as in --slo 'tbt:p99<=100ms'; repeatable. Missing one is exit code 1. "
             "Default: the workload's own, which is only shown.")] = None,
    goodput: Annotated[list[str] | None, typer.Option(
        help="What a good request keeps, in milliseconds, as in --goodput 'ttft:200 tpot:50'.")] = None,
    decode_deadline_ms: Annotated[float | None, typer.Option(
        help="Fluidity: the reader takes one token this often.")] = None,
    prefill_slack_ms: Annotated[float | None, typer.Option(
        help="Fluidity: the first token may come this much after a lone prefill would bring it.")] = None,
    prefill_curve: Annotated[str | None, typer.Option(
        help="Fluidity: times of lone prefills, from an earlier run's prefill_curve.json or a study's "
             "study.json. Default: measured first, on the engine's default settings.")] = None,
    fluidity: Annotated[bool | None, typer.Option(
        "--fluidity/--no-fluidity", help="Whether to time lone prefills before the run. Default: yes; for a "
        "server that runs already only where an objective needs it.")] = None,
    request_timeout: Annotated[float, typer.Option(
        help="Seconds without a token after which a request, or the engine, counts as hung.")] = 120.0,
    max_model_len: options.MaxModelLen = None,
    dtype: options.Dtype = None,
    enforce_eager: options.EnforceEager = None,
    kv_cache_memory_bytes: options.KvCacheMemory = None,
    gpu_memory_utilization: options.GpuMemory = None,
    tensor_parallel_size: options.TensorParallel = None,
    engine_arg: options.EngineArgs = None,
    server_ready_timeout: options.ReadyTimeout = 900.0,
    save_result: Annotated[bool, typer.Option(
        "--save-result", help="Write the figures as `vllm bench serve` does too.")] = False,
    save_detailed: Annotated[bool, typer.Option(
        "--save-detailed", help="The same with lists of every request's times.")] = False,
    result_dir: Annotated[str | None, typer.Option(
        help="Directory of that file. Default: here.")] = None,
    result_filename: Annotated[str | None, typer.Option(
        help="Name of that file. Default: label, rate, model and time.")] = None,
    label: Annotated[str | None, typer.Option(help="A name for the run, for files and reports.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(
        metavar="KEY=VALUE", help="Something to remember with the run; repeatable.")] = None,
    output_dir: Annotated[str, typer.Option("--output-dir", "-o", help="Where runs lie.")] = "results",
    experiment_name: Annotated[str | None, typer.Option(
        "--experiment-name", "-e", help="Name of this run's directory. Default: the time.")] = None,
    as_json: Annotated[bool, typer.Option(
        "--json", help="Print the figures as JSON to standard output, all else to standard error.")] = False,
) -> None:
    """Measure one setting of an engine, or a server that runs already, under one load.

    Starts the embedded engine, or finds the server at --base-url; times lone prefills (for
    fluidity), sends the load, and keeps the run in a directory that `tune report` reads. A run
    that ends early is kept and marked. Exit codes: 0 done, 1 an SLO given with --slo is missed,
    3 the engine failed or the run is invalid, 64 wrong usage, 130 interrupted.
    """
    asked_of_trace = dict(locals())
    from pathlib import Path

    from tuner.cli import bench_options as flags
    from tuner.cli.load_options import LoadAsked, last_send_s, plan_of
    from tuner.cli.replay_options import trace_workload
    from tuner.cli.server_options import target_from_options
    from tuner.cli.source_options import engine_source
    from tuner.knobs_asked import KnobsAsked
    from tuner.one_run import RunSpec
    from tuner.prefill_reference import load_prefill_curve
    from workloads import UsageError

    if fluidity is False and prefill_curve is not None:
        raise UsageError("--prefill-curve and --no-fluidity contradict each other: leave one out")
    load = flags.workload_of(preset, workload, input_len, output_len, random_range_ratio, trace_workload(
        trace, asked_of_trace, tokenizer=tokenizer, max_model_len=max_model_len))
    asked = LoadAsked(
        rate=request_rate, num_prompts=num_prompts, duration=duration, num_warmups=num_warmups,
        burstiness=burstiness, seed=seed, max_concurrency=max_concurrency, stages=stages,
        ramp_strategy=ramp_up_strategy, ramp_start_rps=ramp_up_start_rps, ramp_end_rps=ramp_up_end_rps)
    plan = plan_of(load, asked, by_lengths=preset is None and workload is None)
    knobs = KnobsAsked(
        token_budget=max_num_batched_tokens, max_seqs=max_num_seqs, policy=scheduling_policy,
        long_prefill_token_threshold=long_prefill_token_threshold,
        adaptive_long_prefill=long_prefill_token_threshold_adaptive)
    engine: dict[str, Any] = {
        "max_model_len": max_model_len, "dtype": dtype, "enforce_eager": enforce_eager,
        "kv_cache_memory_bytes": kv_cache_memory_bytes, "gpu_memory_utilization": gpu_memory_utilization,
        "tensor_parallel_size": tensor_parallel_size, "engine_arg": engine_arg,
    }
    target = target_from_options(
        base_url=base_url, host=host, port=port, model=model, backend=backend, endpoint=endpoint,
        api_key_env=api_key_env, api_key_file=api_key_file, header=header, extra_body=extra_body,
        ignore_eos=ignore_eos, tokenizer=tokenizer, text_prompts=text_prompts, ca_file=ca_file,
        insecure=insecure, started_here=server_command is not None)
    if workers > 1 and target is None and server is None:
        raise UsageError("--workers needs a server: give --base-url or --server vllm")
    source = engine_source(
        load, knobs, engine | {"model": model}, config=config, server=server, server_command=server_command,
        control_block=control_block, target=target,
        request_timeout_s=flags.within("--request-timeout", request_timeout, 0.01, 86_400),
        ready_timeout_s=server_ready_timeout)
    rules_asked = flags.goodput_rules(goodput)
    with_curve = flags.wants_fluidity(
        fluidity, remote=source.kind == "remote", curve_given=prefill_curve is not None, slo=slo,
        rules=rules_asked, workload=load, by_lengths=preset is None and workload is None)
    rules = flags.goodput_of(rules_asked, fluidity=with_curve)
    decode_ms = load.decode_deadline_ms if decode_deadline_ms is None else decode_deadline_ms
    slack_ms = load.prefill_slack_ms if prefill_slack_ms is None else prefill_slack_ms
    spec = RunSpec(
        workload=load, plan=plan, burstiness=load.burstiness if burstiness is None else burstiness,
        directory=flags.run_directory(Path(output_dir), experiment_name),
        knobs=knobs if config is None and server_command is None else None,
        slo=flags.slo_of(slo, load, fluidity=with_curve, goodput=rules), slo_is_asked=bool(slo),
        goodput=rules, fluidity=with_curve,
        decode_deadline_ms=flags.within("--decode-deadline-ms", decode_ms, 0.001, 1e7),
        prefill_slack_ms=flags.within("--prefill-slack-ms", slack_ms, 0, 1e7),
        prefill_curve=None if prefill_curve is None else load_prefill_curve(Path(prefill_curve)),
        request_timeout_s=request_timeout, max_concurrency=max_concurrency, workers=workers,
        dispatch_for_s=last_send_s(plan, asked),
        address=source.target.base_url if source.kind == "remote" and source.target is not None else None,
        label=label, metadata=flags.metadata_of(metadata),
    )
    saving = save_result or save_detailed or result_dir is not None or result_filename is not None
    results = Path(result_dir or ".") if saving else None
    one = _measure(spec, source, results)
    files = {"run": str(spec.directory)}
    if results is not None:
        files["result"] = str(_save_result(one, results, result_filename, detailed=save_detailed))
    _show(one, files, as_json=as_json)
    if one.exit_code:
        raise typer.Exit(one.exit_code)


def _measure(spec: "RunSpec", source: "EngineSource", results: "Path | None") -> "OneRun":
    from rich.console import Console

    from engine_adapter.clock import WallClock
    from tuner.cli.interrupts import run_interruptible
    from tuner.cli.run_display import RunDisplay
    from tuner.one_run import measure_one

    # A run directory appears whole; until then the engine's log lies beside it.
    logs = spec.directory.with_name(f"{spec.directory.name}.logs") if source.has_logs else None
    _make_room(spec.directory, logs, results)
    maker = source.maker(logs)
    with RunDisplay(Console(stderr=True)) as display:
        try:
            return run_interruptible(measure_one(
                source.first(maker), maker.with_knobs, spec, clock=WallClock(), say=display.say,
                on_progress=display.on_run))
        finally:
            if logs is not None and spec.directory.is_dir():
                logs.rename(spec.directory / "engine-logs")
            elif logs is not None:
                display.say(f"no run was kept; the engine's log is in {logs}")


def _make_room(directory: "Path", logs: "Path | None", results: "Path | None") -> None:
    """Refuse before the engine starts what could not be written after it."""
    import os

    from bench import OutputError
    from workloads import UsageError

    if directory.exists():
        raise UsageError(f"{directory} exists already: give another --experiment-name or --output-dir")
    for path, flag in ((logs or directory.parent, "--output-dir"), (results, "--result-dir")):
        if path is None:
            continue
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write to {path}: {error.strerror}; choose another {flag}") from error
        if not os.access(path, os.W_OK):
            raise OutputError(f"{path} is not writable; choose another {flag}")


def _save_result(one: "OneRun", directory: "Path", name: str | None, *, detailed: bool) -> "Path":
    from datetime import datetime

    from tuner.result_file import result_name, write_result

    path = directory / (name or result_name(one.run, datetime.now().astimezone()))
    write_result(path, one.as_dict(), one.run if detailed else None)
    return path


def _show(one: "OneRun", files: dict[str, str], *, as_json: bool) -> None:
    import json

    from rich.console import Console

    from reports import judgement_from, run_screen, view_run

    view = view_run(one.run, path=files["run"], summary=one.as_dict())
    judgement = None if one.judgement is None else judgement_from(one.judgement.as_dict())
    Console(stderr=as_json).print(run_screen(view, judgement, files))
    if as_json:
        typer.echo(json.dumps(one.as_dict(), indent=2, allow_nan=False))
    if why := one.failing():
        typer.echo(f"tune: {why}", err=True)
