"""From the flags of `tune run` to a StudyConfig; what is not given comes from the workload or the study."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine_adapter.models import resolve_model
from engine_adapter.vllm_launch import VllmLaunch
from tuner.cli import engine_options as options
from tuner.cli.replay_options import FLAGS as TRACE_FLAGS
from tuner.cli.replay_options import trace_workload
from tuner.engines import EngineSource
from tuner.slo import check_tenants, parse_slo
from tuner.space import parse_choices
from tuner.study import StudyConfig
from workloads import UsageError, Workload, load_workload
from workloads.arrival_processes import AllAtOnce

_CPU_MINUTES = 7.5
"""The whole tuning on the CPU preset: search and confirmation within eight minutes."""
LAUNCH_FLAGS = ("model", "max_model_len", "dtype", "enforce_eager", "kv_cache_memory_bytes",
           "gpu_memory_utilization", "tensor_parallel_size", "engine_arg")
_PLAIN = ("decode_deadline_ms", "prefill_slack_ms", "run_seconds", "seed", "burstiness")
"""Flags that are fields of StudyConfig under the same name."""
_CHOICES = {"token_budget": "token_budgets", "max_num_seqs": "max_seqs",
            "long_prefill_token_threshold": "thresholds"}
_HOW_FAR = ("num_trials", "max_minutes", "request_timeout")
FLAGS = ("preset", "workload", "trace", *TRACE_FLAGS, "slo", "rate", *_PLAIN, *_CHOICES, *LAUNCH_FLAGS,
         *_HOW_FAR)

_LEAST_RATE, _MOST_RATE = 1e-3, 1e5
_RANGES = {
    "rate": (_LEAST_RATE, _MOST_RATE), "run_seconds": (1.0, 86_400.0), "max_minutes": (0.1, 1e5),
    "request_timeout": (0.1, 86_400.0), "server_ready_timeout": (1.0, 86_400.0),
    "decode_deadline_ms": (0.001, 1e7), "prefill_slack_ms": (0.0, 1e7), "burstiness": (0.01, math.inf),
    "seed": (0, 2**63), "max_model_len": (2, 10**8), "kv_cache_memory_bytes": (1, 10**15),
    "gpu_memory_utilization": (0.01, 1.0), "tensor_parallel_size": (1, 4096),
}
"""Flag, least and most; what lies outside is a slip of the pen that would cost an engine start."""


def check_numbers(asked: Mapping[str, Any]) -> None:
    """Refuse numbers that cannot be meant, with the range that can."""
    for name, (least, most) in _RANGES.items():
        value = asked.get(name)
        if value is not None and not least <= value <= most:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} must be between {least:g} and {most:g}, got {value:g}")


def workload_asked(asked: Mapping[str, Any]) -> Workload:
    """What is to be sent: exactly one of a preset, a file and a trace."""
    given = [name for name in ("preset", "workload", "trace") if asked.get(name) is not None]
    if given != ["trace"]:
        if "trace" in given:
            raise UsageError(f"--trace and --{given[0]} both say what to send: keep one")
        trace_workload(None, asked)
        return options.workload_from_options(asked.get("preset"), asked.get("workload"))
    load = trace_workload(asked["trace"], asked, max_model_len=asked.get("max_model_len"))
    assert load is not None   # there is a trace
    return load


def config_from_flags(asked: Mapping[str, Any], source: EngineSource) -> StudyConfig:
    """What `tune run` was asked for; refuses what cannot be measured before anything is started."""
    load = workload_asked(asked)
    if isinstance(load.arrivals, AllAtOnce):
        raise UsageError("the workload's arrivals are all-at-once, so there is no rate to search: choose "
                         "another kind")
    if not source.can_search and (fixed := [name for name in _CHOICES if name in asked]):
        raise UsageError(f"this server's settings cannot be changed, only its capacity can be found: leave "
                         f"out --{fixed[0].replace('_', '-')}")
    choices = {field: parse_choices(asked[flag]) for flag, field in _CHOICES.items() if flag in asked}
    if source.kind == "command" and source.can_search:
        # What the command has no field for cannot be tried.
        choices.setdefault("thresholds", ())
    budgets, seqs = choices.get("token_budgets"), choices.get("max_seqs")
    for flag, values in (("--token-budget", budgets), ("--max-num-seqs", seqs)):
        if values and values[0] < 1:
            raise UsageError(f"{flag} must be at least 1, got {values[0]}")
    if budgets and seqs and budgets[0] < seqs[0]:
        raise UsageError(f"a token budget of {budgets[0]} is below every --max-num-seqs ({seqs[0]}): running "
                         f"decodes would be left out of steps; add a smaller --max-num-seqs")
    minutes = asked.get("max_minutes", _CPU_MINUTES if load.name == "cpu" and source.kind != "sim" else None)
    plain = {name: asked[name] for name in _PLAIN if name in asked}
    return StudyConfig(
        workload=load, slo=_slo(asked.get("slo") or load.objectives, load), launch=source.launch,
        rate_rps=asked.get("rate"),
        warmup_seconds=load.warmup_seconds, max_trials=asked.get("num_trials", 12),
        time_budget_s=None if minutes is None else minutes * 60,
        request_timeout_s=asked.get("request_timeout", 120.0), server=source.as_dict(),
        **{"decode_deadline_ms": load.decode_deadline_ms, "prefill_slack_ms": load.prefill_slack_ms,
           "run_seconds": load.run_seconds} | plain | choices,
    )


def resumed_config(saved: StudyConfig, asked: Mapping[str, Any]) -> StudyConfig:
    """The saved question; flags that are given again must say the same, how far to go may change."""
    differing = [f"--{name.replace('_', '-')}" for name in asked
                 if name not in _HOW_FAR and not _same(saved, name, asked[name], asked)]
    if differing:
        raise UsageError(f"this study was begun with another {', '.join(differing)}: leave that out to go on "
                         f"with it, or start a new study")
    minutes = asked.get("max_minutes")
    return replace(
        saved, max_trials=asked.get("num_trials", saved.max_trials),
        time_budget_s=saved.time_budget_s if minutes is None else minutes * 60,
        request_timeout_s=asked.get("request_timeout", saved.request_timeout_s))


def _same(saved: StudyConfig, flag: str, value: Any, asked: Mapping[str, Any]) -> bool:
    if flag in ("preset", "workload"):
        return load_workload(value).digest() == saved.workload.digest()
    if flag == "trace" or flag in TRACE_FLAGS:
        most = asked.get("max_model_len") or saved.workload.max_model_len
        return workload_asked({**asked, "max_model_len": most}).digest() == saved.workload.digest()
    if flag == "slo":
        return tuple(value) == saved.slo
    if flag == "rate":
        return bool(value == saved.rate_rps)
    if flag in _CHOICES:
        return bool(parse_choices(value) == getattr(saved, _CHOICES[flag]))
    if flag in LAUNCH_FLAGS and saved.is_simulated:
        return bool(saved.server["simulation"].get(flag.removesuffix("_size")) == value)
    if flag == "model" and saved.launch is None:
        return bool((saved.server.get("target") or {}).get("model") == value)
    if flag in LAUNCH_FLAGS:
        return saved.launch is not None and _same_launch(saved.launch, flag, value)
    return bool(getattr(saved, flag) == value)


def _same_launch(launch: VllmLaunch, flag: str, value: Any) -> bool:
    if flag == "model":
        return resolve_model(value) == launch.model
    if flag == "engine_arg":
        return options.parsed_engine_args(value).items() <= launch.engine_args.items()
    return bool(launch.engine_args.get(flag) == value)


def _slo(texts: Any, load: Workload) -> tuple[str, ...]:
    slo = tuple(texts)
    if not slo:
        raise UsageError("the workload has no SLO of its own: give one with --slo 'tbt:p99<=100ms'")
    objectives = check_tenants(parse_slo(slo), load).objectives
    if any(each.metric == "goodput" and not _has_rules(load, each.tenant) for each in objectives):
        raise UsageError("tune run cannot judge goodput, which needs limits per request: use tbt, ttft and "
                         "fluidity objectives here, and goodput in tune bench --goodput, or for the tenants "
                         "of a workload file")
    return slo


def _has_rules(load: Workload, tenant: str) -> bool:
    return any(promised.goodput for name, promised in load.tenants.items() if tenant in ("", name))
