"""`tune simulate`: what a load would do to settings and machines, in no time."""

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import engine_options as engine
from tuner.cli import replay_options as replay
from tuner.cli import simulate_options as options

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.cli.simulate_shown import ResultFiles, Shown
    from tuner.knobs_text import SettingAsked
    from tuner.simulate import SimulationSpec
    from tuner.simulation import SimulationTarget

_SLOW_S = 2.0
_COMPILING = "still simulating; the first time after an installation it is compiled, which takes some 15 s"
"""Nobody needs to be told of progress before."""


def simulate(
    workload: options.Workload = None,
    preset: options.Preset = None,
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
    num_prompts: Annotated[int | None, typer.Option(help="Requests to play.")] = None,
    duration: Annotated[float | None, typer.Option(
        help="Seconds of arrivals, instead of --num-prompts. Default: the workload's.")] = None,
    burstiness: Annotated[float | None, typer.Option(
        help="Gamma shape of the arrivals: 1 is Poisson, below it burstier, inf constant. Default: the "
             "workload's.")] = None,
    stages: Annotated[str | None, typer.Option(
        help="The rate over time, as in 30s@2,60s@2..8,30s@8, instead of --request-rate.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(
        help="Most requests in flight; with --request-rate inf one for each that ends.",
        min=1, max=1_000_000)] = None,
    num_warmups: Annotated[int | None, typer.Option(
        help="Requests before those that count. Default: the workload's seconds of warm-up; none at an "
             "infinite rate.")] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals, lengths and drafts.")] = 0,
    hardware: options.Hardware = None,
    model: options.Model = None,
    list_sheets: options.ListSheets = False,
    tensor_parallel_size: engine.TensorParallel = None,
    pipeline_parallel_size: options.PipelineParallel = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    num_kv_blocks: options.NumKvBlocks = None,
    block_size: options.BlockSize = None,
    gpu_memory_utilization: engine.GpuMemory = None,
    enable_prefix_caching: options.PrefixCaching = None,
    async_scheduling: options.AsyncScheduling = None,
    num_speculative_tokens: options.SpeculativeTokens = None,
    draft_acceptance: options.DraftAcceptance = None,
    watermark: options.Watermark = None,
    knobs: options.SettingsAsked = None,
    policy: options.Policy = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Tokens that a step may hold.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Requests that may run at once.")] = None,
    long_prefill_token_threshold: Annotated[int | None, typer.Option(
        help="Tokens of one prompt in a step while other requests wait or run; 0 is off.")] = None,
    long_prefill_token_threshold_adaptive: Annotated[bool | None, typer.Option(
        "--long-prefill-token-threshold-adaptive/--no-long-prefill-token-threshold-adaptive",
        help="Raise that threshold to a fair share of the budget.")] = None,
    scheduling_policy: Annotated[str | None, typer.Option(help="fcfs or priority.")] = None,
    slo: Annotated[list[str] | None, typer.Option(
        help="METRIC:STAT<=VALUE, as in --slo 'tbt:p99<=100ms'; repeatable. Exit code 1 where no setting "
             "holds it. Default: the workload's own, which is only shown.")] = None,
    goodput: Annotated[list[str] | None, typer.Option(
        help="What a good request keeps, in milliseconds, as in --goodput 'ttft:200 tpot:50'.")] = None,
    decode_deadline_ms: Annotated[float | None, typer.Option(
        help="Fluidity: the reader takes one token this often.")] = None,
    prefill_slack_ms: Annotated[float | None, typer.Option(
        help="Fluidity: the first token may come this much after a lone prefill would bring it.")] = None,
    prefill_curve: Annotated[str | None, typer.Option(
        help="Fluidity: times of lone prefills, as of a measured run. Default: simulated first, on the "
             "default settings.")] = None,
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
    output_dir: Annotated[str | None, typer.Option(
        "--output-dir", "-o", help="Where to keep run directories. Default: none is kept.")] = None,
    experiment_name: Annotated[str | None, typer.Option(
        "--experiment-name", "-e", help="Keep the run under this name; of several settings each in a "
                                        "numbered directory of it.")] = None,
    as_json: Annotated[bool, typer.Option(
        "--json", help="Print the figures as JSON to standard output, all else to standard error.")] = False,
) -> None:
    """Play a load against an engine that is only simulated.

    No engine and no GPU is needed. The scheduler decides as vLLM 0.32 does, a step costs what sheets or
    `tune calibrate` say, and a minute of traffic takes milliseconds. The same seed gives the same
    figures. Exit codes: 0 done, 1 no setting holds what --slo asks, 3 there is no valid figure, as where
    no request can fit, 64 wrong usage, 130 interrupted.
    """
    asked_of_trace = dict(locals())
    from pathlib import Path

    from tuner.cli import bench_options as flags
    from tuner.cli.load_options import LoadAsked, plan_of
    from tuner.cli.replay_options import trace_workload
    from tuner.cli.simulate_inputs import settings_asked, spec_of, target_of
    from tuner.knobs_asked import KnobsAsked
    from workloads import UsageError

    if list_sheets:
        from tuner.cli.sheet_list import show_sheets

        show_sheets(as_json=as_json)
        return
    from tuner.cli.simulate_shown import ResultFiles, show

    load = flags.workload_of(preset, workload, input_len, output_len, random_range_ratio, trace_workload(
        trace, asked_of_trace, max_model_len=max_model_len))
    plan = plan_of(load, LoadAsked(
        rate=request_rate, num_prompts=num_prompts, duration=duration, num_warmups=num_warmups,
        burstiness=burstiness, seed=seed, max_concurrency=max_concurrency, stages=stages),
        by_lengths=preset is None and workload is None)
    settings = settings_asked(knobs, policy, KnobsAsked(
        token_budget=max_num_batched_tokens, max_seqs=max_num_seqs, policy=scheduling_policy,
        long_prefill_token_threshold=long_prefill_token_threshold,
        adaptive_long_prefill=long_prefill_token_threshold_adaptive))
    target = target_of(hardware, model, {
        "tensor_parallel": tensor_parallel_size, "pipeline_parallel": pipeline_parallel_size, "dtype": dtype,
        "max_model_len": max_model_len, "num_kv_blocks": num_kv_blocks, "block_size": block_size,
        "gpu_memory_utilization": gpu_memory_utilization, "prefix_caching": enable_prefix_caching,
        "async_scheduling": async_scheduling, "num_spec_tokens": num_speculative_tokens,
        "watermark": watermark,
    })
    spec = spec_of(
        load, plan, burstiness=burstiness, slo=slo, goodput=goodput, decode_deadline_ms=decode_deadline_ms,
        prefill_slack_ms=prefill_slack_ms, prefill_curve=prefill_curve, max_concurrency=max_concurrency,
        draft_acceptance=draft_acceptance, label=label, metadata=metadata)
    keeping = output_dir is not None or experiment_name is not None
    home = flags.run_directory(
        Path(output_dir or "results"), experiment_name, kind="simulate") if keeping else None
    results = None
    if save_result or save_detailed or result_dir is not None or result_filename is not None:
        if result_filename is not None and len(settings) > 1:
            raise UsageError("--result-filename names one file for several settings: leave it out")
        results = ResultFiles(Path(result_dir or "."), result_filename, detailed=save_detailed)
    if code := show(_play(target, settings, spec, home, results), as_json=as_json):
        raise typer.Exit(code)


def _play(target: "SimulationTarget", settings: "list[SettingAsked]", spec: "SimulationSpec",
          home: "Path | None", results: "ResultFiles | None") -> "list[Shown]":
    """Every setting, shown and kept before the next: the runs of all would fill the memory."""
    from rich.console import Console

    from tuner.cli.run_display import RunDisplay, said_after
    from tuner.cli.simulate_shown import shown
    from tuner.simulate import directory_of, keep, refuse_taken, simulate_settings

    refuse_taken(home)
    found: list[Shown] = []
    with RunDisplay(Console(stderr=True)) as display, said_after(_SLOW_S, display.say, _COMPILING) as quiet:
        next_line_s = _SLOW_S
        for one in simulate_settings(target, settings, spec):
            if home is not None:
                one = keep(one, directory_of(home, len(found), of=len(settings)))
            quiet()
            found.append(shown(one, results))
            if display.elapsed_s >= next_line_s and len(found) < len(settings):
                next_line_s = display.elapsed_s + _SLOW_S
                display.say(f"{len(found)} of {len(settings)} settings simulated")
    return found
