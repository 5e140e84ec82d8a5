"""From the flags of `tune bench` to what is measured: workload, plan, engine, objectives."""

import math
from pathlib import Path
from typing import Any

import yaml

from bench import GoodputRules
from engine_adapter.vllm_launch import VllmLaunch
from tuner.slo import Slo, parse_slo
from workloads import Plan, UsageError, Workload, build_plan, load_workload

_NEED_CURVE = ("fluidity", "stall", "stalled_requests")
_INPUT_LEN, _OUTPUT_LEN = 1024, 128
"""The random data set's defaults in `vllm bench serve`."""


def workload_of(preset: str | None, file: str | None, input_len: int | None, output_len: int | None,
                range_ratio: float | None) -> Workload:
    """The workload of exactly one of: a preset, a file, lengths; UsageError otherwise."""
    by_lengths = not (input_len is None and output_len is None and range_ratio is None)
    if (preset is not None) + (file is not None) + by_lengths != 1:
        raise UsageError("say what to send with exactly one of --preset NAME, --workload FILE, or "
                         "--input-len and --output-len")
    if by_lengths:
        return Workload.from_lengths(
            _INPUT_LEN if input_len is None else input_len,
            _OUTPUT_LEN if output_len is None else output_len, range_ratio or 0.0)
    return load_workload(preset or file or "")


def plan_of(workload: Workload, *, by_lengths: bool, rate: float | None, num_prompts: int | None,
            duration: float | None, num_warmups: int | None, burstiness: float | None, seed: int) -> Plan:
    """The requests of the run. Only lengths with a number of prompts go without a rate: all at once."""
    if num_prompts is not None and duration is not None:
        raise UsageError("give the length of the run as either --num-prompts or --duration")
    if rate is None and not (by_lengths and num_prompts is not None):
        also = "; or --num-prompts to send so many at once" if by_lengths else ""
        raise UsageError(f"give the load with --request-rate, in requests per second{also}")
    rate_rps = math.inf if rate is None else rate
    if math.isinf(rate_rps) and rate_rps > 0 and num_prompts is None:
        raise UsageError("--request-rate inf sends all requests at once: say how many with --num-prompts")
    timed_warmup = num_warmups is None and not math.isinf(rate_rps)
    return build_plan(
        workload, rate_rps=rate_rps, seed=seed, num_prompts=num_prompts, num_warmups=num_warmups,
        duration_s=(workload.run_seconds if duration is None else duration) if num_prompts is None else None,
        warmup_s=workload.warmup_seconds if timed_warmup else None, burstiness=burstiness)


def launch_from_config(path: Path, given: dict[str, Any]) -> VllmLaunch:
    """An engine from a `vllm serve --config` file alone; UsageError where other flags about it are given."""
    if also := [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, [])]:
        raise UsageError(f"--config starts the engine from its file alone: leave out {', '.join(also)}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the engine's configuration {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), str):
        raise UsageError(f"{path} names no model: give a file for `vllm serve --config`, such as a "
                         f"recommended.yaml, with a key model")
    return VllmLaunch(content["model"], config_file=path.resolve())


def slo_of(texts: list[str] | None, workload: Workload, *, fluidity: bool,
           goodput: GoodputRules | None) -> Slo | None:
    """The SLO that was asked for, else the workload's own where this run can judge it, else None.

    UsageError for one that was asked for and that a flag makes impossible to judge.
    """
    if not (texts or workload.slo):
        return None
    slo = parse_slo(texts or workload.slo)
    lacking = [
        f"{objective.key} needs {remedy}" for objective in slo.objectives
        for missing, metrics, remedy in (
            (not fluidity, _NEED_CURVE, "deadlines: leave out --no-fluidity"),
            (goodput is None, ("goodput",), "rules: give --goodput, as in --goodput 'ttft:200 tpot:50'"),
        ) if missing and objective.metric in metrics
    ]
    if lacking and texts:
        raise UsageError(f"--slo {lacking[0]}")
    return None if lacking else slo


def goodput_of(texts: list[str] | None, *, fluidity: bool) -> GoodputRules | None:
    """The rules of all `--goodput` flags together; None without one."""
    if not texts:
        return None
    rules = GoodputRules.parse(" ".join(texts))
    if rules.needs_deadlines and not fluidity:
        raise UsageError("--goodput with fluidity or stall needs deadlines: leave out --no-fluidity")
    return rules


def metadata_of(pairs: list[str] | None) -> dict[str, str]:
    """The pairs of all `--metadata KEY=VALUE`; UsageError for one without a key or `=`."""
    metadata = {}
    for pair in pairs or ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals):
            raise UsageError(f"--metadata {pair!r} is not KEY=VALUE, as in --metadata driver=600.1")
        metadata[key] = value
    return metadata


def above_zero(flag: str, value: float, *, or_zero: bool = False) -> float:
    """`value`, if it is finite and above 0 (or 0 where that is allowed); else a UsageError."""
    if math.isfinite(value) and (value > 0 or (or_zero and value == 0)):
        return value
    bound = "of at least" if or_zero else "above"
    raise UsageError(f"{flag} must be a finite number {bound} 0; got {value:g}")
