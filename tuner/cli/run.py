"""`tune run`: from a workload and an SLO to a recommended configuration, proven on fresh engines."""

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import engine_options as options
from tuner.cli import replay_options as replay
from tuner.cli import server_options as servers
from tuner.cli import simulate_options as simulated

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tuner.engines import EngineSource
    from tuner.study import Study


def run(
    preset: options.Preset = None,
    workload: options.WorkloadFile = None,
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
    model: options.Model = None,
    slo: Annotated[list[str] | None, typer.Option(
        help="METRIC:STAT<=VALUE, as in --slo 'tbt:p99<=100ms' --slo 'fluidity:p10>=0.9'; all must hold. "
             "Default: the workload's own.")] = None,
    decode_deadline_ms: Annotated[float | None, typer.Option(
        help="Fluidity: the reader takes one token this often.")] = None,
    prefill_slack_ms: Annotated[float | None, typer.Option(
        help="Fluidity: the first token may come this much after a lone prefill would bring it.")] = None,
    rate: Annotated[float | None, typer.Option(
        "--rate", "--request-rate",
        help="Tune at this offered rate (requests/s): throughput, then TTFT. Default: find the setting with "
             "the highest capacity.")] = None,
    burstiness: Annotated[float | None, typer.Option(
        help="Gamma shape of the arrivals; 1 is Poisson, below it burstier.")] = None,
    token_budget: Annotated[str | None, typer.Option(
        help="Budgets to try, as in 64,128,256 or 32..512. Default: a grid up to vLLM's own.")] = None,
    max_num_seqs: Annotated[str | None, typer.Option(
        help="Active sequences to try, in the same form.")] = None,
    long_prefill_token_threshold: Annotated[str | None, typer.Option(
        help="Long-prefill thresholds to try, in the same form; 0 is off.")] = None,
    num_trials: Annotated[int | None, typer.Option(help="Settings to try. Default 12.", min=1)] = None,
    max_minutes: Annotated[float | None, typer.Option(
        help="Stop searching in time for the confirmation to end by then. Default: 7.5 for the preset cpu, "
             "else no limit.")] = None,
    run_seconds: Annotated[float | None, typer.Option(
        help="Length of one search run; a confirming run takes twice as long. "
             "Default: the workload's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of arrivals, lengths, prompts and the search. "
                                                  "Default 0.")] = None,
    request_timeout: Annotated[float | None, typer.Option(
        help="Seconds without a token after which a request, or the engine, counts as hung. "
             "Default 120.")] = None,
    max_model_len: options.MaxModelLen = None,
    dtype: options.Dtype = None,
    enforce_eager: options.EnforceEager = None,
    kv_cache_memory_bytes: options.KvCacheMemory = None,
    gpu_memory_utilization: options.GpuMemory = None,
    tensor_parallel_size: options.TensorParallel = None,
    engine_arg: options.EngineArgs = None,
    server_ready_timeout: options.ReadyTimeout = 900.0,
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
    engine: simulated.EngineKind = None,
    hardware: simulated.Hardware = None,
    pipeline_parallel_size: simulated.PipelineParallel = None,
    num_kv_blocks: simulated.NumKvBlocks = None,
    enable_prefix_caching: simulated.PrefixCaching = None,
    async_scheduling: simulated.AsyncScheduling = None,
    output_dir: Annotated[str, typer.Option("--output-dir", "-o", help="Where studies lie.")] = "results",
    experiment_name: Annotated[str | None, typer.Option(
        "--experiment-name", "-e", help="Name of this study's directory. Default: the time.")] = None,
    resume: Annotated[bool, typer.Option(
        "--resume", help="Go on with the study named by -e, or with the newest one, where it was "
                         "interrupted.")] = False,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Print what would be tried and how long it takes; start nothing.")] = False,
    as_json: Annotated[bool, typer.Option(
        "--json", help="Print recommendation.json to standard output, all else to standard error.")] = False,
) -> None:
    """Find the scheduler settings that carry the most load within an SLO, and prove them.

    Starts one engine, tries settings on it live, then starts a fresh engine from the recommended
    file and one with the default settings and measures both. Of a server that runs already and whose
    settings cannot be changed it finds the capacity. With --engine sim nothing is started and every run
    is simulated, in seconds: to be confirmed on the engine. Exit codes: 0 done, 1 the SLO is infeasible
    here, 2 not confirmed, 3 the engine or the evidence failed, 64 wrong usage, 130 interrupted (go
    on with --resume).
    """
    from pathlib import Path

    from engine_adapter.clock import WallClock
    from tuner.cli.run_config import FLAGS, check_numbers, config_from_flags, resumed_config
    from tuner.cli.run_source import SERVER_FLAGS, resumed_source, source_of
    from tuner.study import Study

    given = dict(locals())
    asked = {name: given[name] for name in FLAGS if given[name] is not None}
    of_server = {name: given[name] for name in SERVER_FLAGS}
    check_numbers(asked | {"server_ready_timeout": server_ready_timeout})
    home = Path(output_dir)
    if resume:
        directory = _study_to_resume(home, experiment_name)
        config = resumed_config(Study.saved_config(directory), asked)
        source = resumed_source(config, asked, of_server, server_ready_timeout)
    else:
        directory = home / (experiment_name or _timestamp())
        source = source_of(asked, of_server, server_ready_timeout)
        config = config_from_flags(asked, source)
    if dry_run:
        from tuner.dry_run import plan_lines

        typer.echo("\n".join(plan_lines(config, directory, can_search=source.can_search)))
        return
    open_study = Study.resume if resume else Study.create
    study = open_study(directory, config, WallClock())
    code = (_tune if source.can_search else _find_capacity)(study, source, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _timestamp() -> str:
    from datetime import datetime

    return datetime.now().astimezone().strftime("%Y%m%d_%H%M%S")


def _study_to_resume(home: "Path", name: str | None) -> "Path":
    from workloads import UsageError

    if name is not None:
        return home / name
    studies = sorted(home.glob("*/study.json"), key=lambda path: path.stat().st_mtime)
    if not studies:
        raise UsageError(f"there is no study in {home} to resume: leave --resume out, or give its -o")
    return studies[-1].parent


def _find_capacity(study: "Study", source: "EngineSource", *, as_json: bool) -> int:
    import json

    from rich.console import Console

    from bench.files import jsonable
    from engine_adapter.clock import WallClock
    from reports import capacity_screen, load_capacity, write_report
    from tuner.capacity import CAPACITY_FILE, find_capacity
    from tuner.capacity_result import EXIT_CODES
    from tuner.cli.interrupts import Interrupted, run_interruptible
    from tuner.cli.live import StudyDisplay
    from tuner.progress import StudyProgress
    from tuner.slo import parse_slo

    console = Console(stderr=as_json)
    progress = StudyProgress()
    try:
        with StudyDisplay(console) as display:
            progress.on_change = display.show
            result = run_interruptible(find_capacity(
                study, source.maker(study.directory / "logs"), parse_slo(study.config.slo),
                clock=WallClock(), progress=progress))
    except Interrupted:
        return _interrupted(study, console)
    files = {what: str(study.directory / name) for what, name in
             {"report": "report.html", "result": CAPACITY_FILE, "all runs": "runs"}.items()}
    console.print(capacity_screen(load_capacity(study.directory), files))
    if as_json:
        typer.echo(json.dumps(jsonable(result), indent=2, allow_nan=False))
    # Last: a full disk must not take the answer off the screen.
    write_report([study.directory], "html", study.directory / "report.html")
    return EXIT_CODES[result["verdict"]]


def _interrupted(study: "Study", console: "Console") -> int:
    console.print(f"interrupted; everything finished is in {study.directory}. Go on with: "
                  f"tune run --resume -o {study.directory.parent} -e {study.directory.name}",
                  markup=False, highlight=False, soft_wrap=True)
    return 130


def _tune(study: "Study", source: "EngineSource", *, as_json: bool) -> int:
    import json

    from rich.console import Console

    from bench.files import jsonable
    from engine_adapter.clock import WallClock
    from reports import load_study, study_screen, write_report
    from tuner.cli.interrupts import Interrupted, run_interruptible
    from tuner.cli.live import StudyDisplay
    from tuner.progress import StudyProgress
    from tuner.recommendation import EXIT_CODES
    from tuner.slo import parse_slo
    from tuner.tuning import tune_study

    console = Console(stderr=as_json)
    clock = source.clock()
    maker = source.maker(study.directory / "logs", clock)
    progress = StudyProgress()
    try:
        with StudyDisplay(console) as display:
            progress.on_change = display.show
            result = run_interruptible(tune_study(
                study, maker, parse_slo(study.config.slo), clock=clock, wall=WallClock(), progress=progress))
    except Interrupted:
        return _interrupted(study, console)
    console.print(study_screen(load_study(study.directory), _files(study)))
    if as_json:
        typer.echo(json.dumps(jsonable(result), indent=2, allow_nan=False))
    # Last: a full disk must not take the answer off the screen.
    write_report([study.directory], "html", study.directory / "report.html")
    return EXIT_CODES[result["verdict"]]


def _files(study: "Study") -> dict[str, str]:
    names = {"report": "report.html", "result": "recommendation.json"}
    if study.recommended_config.exists():
        names = {"config": "recommended.yaml"} | names
    return {what: str(study.directory / name) for what, name in names.items()} | {
        "all runs": str(study.directory / "runs")}
