"""What `tune run` would do, and how long it would take, without starting anything."""

from pathlib import Path

from tuner.confirm import RUN_FACTOR
from tuner.slo import parse_slo
from tuner.study import StudyConfig

_START_S = 30.0
_PROBE_S = 15.0
_DRAIN_S = 2.5
_RUNS_PER_TRIAL = 1.6
"""Most challengers cost one run; the first setting and the default are followed up and down."""


def plan_lines(config: StudyConfig, directory: Path) -> list[str]:
    """The plan in words, one line an item."""
    load = config.workload
    run_s = config.warmup_seconds + config.run_seconds + _DRAIN_S
    confirm_s = config.warmup_seconds + config.run_seconds * RUN_FACTOR + _DRAIN_S
    search_s = config.max_trials * _RUNS_PER_TRIAL * run_s
    expected_s = 3 * _START_S + _PROBE_S + search_s + 2 * confirm_s
    limit = config.time_budget_s
    goal = ("the highest rate within the SLO" if config.rate_rps is None
            else f"throughput, then TTFT, at {config.rate_rps:g} req/s")
    budgets = config.token_budgets or "a grid from 32 up to vLLM's default"
    return [
        f"model      {_model(config)}",
        f"workload   {load.name}: prompts of {load.mean_input_len:.0f} tokens on average (longest "
        f"{load.longest_prompt}), answers of {load.mean_output_len:.0f}",
        *(f"           {share:4.0%} {c.name}: {c.input.describe()} in, {c.output.describe()} out"
          for c, share in zip(load.components, load.shares, strict=True)),
        f"SLO        {parse_slo(config.slo)} (decode deadline {config.decode_deadline_ms:g} ms)",
        f"goal       {goal}",
        f"budgets    {budgets}",
        f"trials     {config.max_trials}: the budget that the probe computes, vLLM's default, budgets around "
        f"the first, then what the sampler proposes",
        f"one run    {config.warmup_seconds:g} s warm-up, {config.run_seconds:g} s measured",
        "engines    3 starts: one for the search, one fresh for the recommendation, one for the default",
        f"duration   about {expected_s / 60:.0f} min"
        + (f"; the search stops early so that all ends within {limit / 60:.1f} min" if limit else ""),
        f"output     {directory}",
    ]


def _model(config: StudyConfig) -> str:
    if config.launch is not None:
        return config.launch.model
    return (config.server.get("target") or {}).get("model") or "the one that the server lists"
