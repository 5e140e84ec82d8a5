"""What `tune run` would do, and how long it would take, without starting anything."""

from collections.abc import Iterator
from pathlib import Path

from tuner.confirm import RUN_FACTOR
from tuner.run_length import lowest_rate_rps, run_seconds, wall_seconds
from tuner.slo import parse_slo
from tuner.study import StudyConfig
from workloads import Workload

_START_S = 30.0
_PROBE_S = 15.0
_DRAIN_S = 2.5
_RUNS_PER_TRIAL = 1.6
"""Most challengers cost one run; the first setting and the default are followed up and down."""
_RUNS_OF_A_CAPACITY = 7
"""Of a search for one capacity, about."""


def plan_lines(config: StudyConfig, directory: Path, *, can_search: bool = True) -> list[str]:
    """The plan in words, one line an item; `can_search` says whether settings can be changed at all."""
    load = config.workload
    return [
        *_server(config),
        f"workload   {load.name}: {_prompts(load)} of {load.mean_input_len:.0f} tokens on average (longest "
        f"{load.longest_prompt}), answers of {load.mean_output_len:.0f}",
        *(f"           {share:4.0%} {c.name}: {c.input.describe()} in, {c.output.describe()} out"
          for c, share in zip(load.components, load.shares, strict=True)),
        *([f"warning    {load.trace.left_out}"] if load.trace is not None and load.trace.left_out else []),
        f"SLO        {parse_slo(config.slo)} (decode deadline {config.decode_deadline_ms:g} ms)",
        *(_search(config) if can_search else _capacity(config)),
        f"output     {directory}",
    ]


def _prompts(load: Workload) -> str:
    return "first prompts" if any(c.conversation for c in load.components) else "prompts"


def _server(config: StudyConfig) -> Iterator[str]:
    if config.is_simulated:
        asked = config.server["simulation"]
        yield f"simulated  {asked['model']} on {asked['hardware']}" if "model" in asked else (
            f"simulated  {asked['hardware']}")
        return
    target, command = config.server.get("target") or {}, config.server.get("command")
    model = config.launch.model if config.launch is not None else target.get("model")
    if command is not None:
        yield f"command    {command}"
    if config.server["kind"] == "remote":
        yield f"server     {target['base_url']}"
    if model is not None or command is None:
        yield f"model      {model or 'the one that the server lists'}"


def _search(config: StudyConfig) -> list[str]:
    search_s = config.max_trials * _RUNS_PER_TRIAL * _run_s(config)
    starts, engines = _starts(config)
    goal = ("the highest rate within the SLO" if config.rate_rps is None
            else f"throughput, then TTFT, at {config.rate_rps:g} req/s")
    by_command = config.server["kind"] == "command"
    budgets = config.token_budgets or "a grid from 32 up to vLLM's default"
    tried = ("the largest values, then what the sampler proposes" if by_command else
             "the budget that the probe computes, vLLM's default, budgets around the first, then what the "
             "sampler proposes")
    return [
        f"goal       {goal}",
        f"budgets    {budgets}",
        *([f"sequences  {config.max_seqs}"] if by_command else []),
        f"trials     {config.max_trials}: {tried}",
        _one_run(config),
        f"engines    {engines}",
        _duration(config, starts * _START_S + search_s + 2 * _run_s(config, RUN_FACTOR)),
    ]


def _starts(config: StudyConfig) -> tuple[int, str]:
    match config.server["kind"]:
        case "command":
            starts = config.max_trials + 3
            return starts, f"up to {starts} starts: one for the probe, one a trial, two for the proof"
        case "remote":
            return 0, "none is started: the settings of the running server are changed, and put back"
        case "sim":
            return 0, "none is started: every run is simulated, nothing is measured"
    return 3, "3 starts: one for the search, one fresh for the recommendation, one for the default"


def _capacity(config: StudyConfig) -> list[str]:
    longer = run_seconds(config, config.rate_rps or lowest_rate_rps(config)) / config.run_seconds
    at_low_rates = f", up to {longer:.2g} times that at low rates" if longer > 1 else ""
    runs = 1 if config.rate_rps is not None else _RUNS_OF_A_CAPACITY
    starts = config.server["kind"] != "remote"
    expected_s = runs * _run_s(config) + _run_s(config, RUN_FACTOR) + starts * _START_S
    goal = ("the highest rate at which the SLO holds" if config.rate_rps is None
            else f"whether the SLO holds at {config.rate_rps:g} req/s")
    return [
        f"goal       {goal}; the settings of this server cannot be changed from here",
        _one_run(config) + at_low_rates,
        "engines    1 start" if starts else "engines    none is started: the server runs already",
        _duration(config, expected_s),
    ]


def _run_s(config: StudyConfig, factor: float = 1.0) -> float:
    return wall_seconds(config, config.warmup_seconds + config.run_seconds * factor + _DRAIN_S)


def _one_run(config: StudyConfig) -> str:
    return f"one run    {config.warmup_seconds:g} s warm-up, {config.run_seconds:g} s measured"


def _duration(config: StudyConfig, expected_s: float) -> str:
    limit = config.time_budget_s
    stops = f"; the search stops early so that all ends within {limit / 60:.1f} min" if limit else ""
    expected_s += wall_seconds(config, _PROBE_S)
    about = f"{expected_s:.0f} s" if config.is_simulated else f"{expected_s / 60:.0f} min"
    return f"duration   about {about}{stops}"
