"""From the flags of `tune run`, or from a saved study, to where its engines come from."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.servers.command_template import CommandTemplate
from tuner.cli.run_config import LAUNCH_FLAGS, workload_asked
from tuner.cli.server_options import TARGET_FLAGS, secrets_from_options, target_from_options
from tuner.cli.source_options import engine_source
from tuner.engines import EngineSource
from tuner.knobs_asked import KnobsAsked
from tuner.simulation import target_from
from tuner.space import parse_choices
from tuner.study import StudyConfig
from workloads import UsageError

SIMULATION_FLAGS = {"hardware": "hardware", "pipeline_parallel_size": "pipeline_parallel",
                    "num_kv_blocks": "num_kv_blocks", "enable_prefix_caching": "prefix_caching",
                    "async_scheduling": "async_scheduling"}
"""Flags about an engine that is only simulated, with their names in `target_from`."""
_SIMULATED_TOO = {"model": "model", "max_model_len": "max_model_len", "dtype": "dtype",
                  "gpu_memory_utilization": "gpu_memory_utilization",
                  "tensor_parallel_size": "tensor_parallel"}
"""Those about a launch that a simulation understands as well."""
SERVER_FLAGS = ("engine", *SIMULATION_FLAGS, "server", "server_command", "control_block", *TARGET_FLAGS)
_SECRETS = ("api_key_env", "api_key_file", "header")
"""Never saved, so a resumed study needs them again."""


def source_of(asked: Mapping[str, Any], server: Mapping[str, Any], ready_timeout_s: float) -> EngineSource:
    """By the flags of the command; UsageError where they contradict one another."""
    if server["engine"] is not None:
        return _simulated(asked, server)
    if needless := [name for name in SIMULATION_FLAGS if server[name] is not None]:
        raise UsageError(f"--{needless[0].replace('_', '-')} is about a simulated engine: add --engine sim")
    load = workload_asked(asked)
    command = server["server_command"]
    target = target_from_options(**{name: server[name] for name in TARGET_FLAGS}, model=asked.get("model"),
                                 started_here=command is not None)
    knobs = KnobsAsked() if command is None else _first_knobs(CommandTemplate(command), asked)
    source = engine_source(
        load, knobs, {name: asked.get(name) for name in LAUNCH_FLAGS}, config=None, server=server["server"],
        server_command=command, control_block=server["control_block"], target=target,
        request_timeout_s=asked.get("request_timeout", 120.0), ready_timeout_s=ready_timeout_s)
    if source.launch is None:
        return source
    budgets = _choices(asked, "token_budget")
    return replace(source, launch=replace(source.launch, ceiling_budget=max(budgets, default=0)))


def _simulated(asked: Mapping[str, Any], flags: Mapping[str, Any]) -> EngineSource:
    if flags["engine"] != "sim":
        raise UsageError(f"unknown --engine {flags['engine']!r}; known: sim. Left out, vLLM is started")
    others = {name: flags[name] for name in ("server", "server_command", "control_block", *TARGET_FLAGS)}
    others |= {name: asked.get(name) for name in LAUNCH_FLAGS if name not in _SIMULATED_TOO}
    if needless := [name for name, value in others.items() if value not in (None, False, [])]:
        raise UsageError(f"--engine sim simulates the engine: leave out --{needless[0].replace('_', '-')}")
    if flags["hardware"] is None:
        raise UsageError("say what to simulate with --hardware: a sheet (see `tune simulate --list-sheets`), "
                         "or the file of `tune calibrate`")
    facts: dict[str, Any] = {ours: asked.get(flag) for flag, ours in _SIMULATED_TOO.items()}
    facts |= {ours: flags[flag] for flag, ours in SIMULATION_FLAGS.items()}
    return EngineSource(kind="sim", simulation=target_from(**facts),
                        ceiling_budget=max(_choices(asked, "token_budget"), default=0))


def resumed_source(saved: StudyConfig, asked: Mapping[str, Any], server: Mapping[str, Any],
                   ready_timeout_s: float) -> EngineSource:
    """The saved one, with the key and the headers, which are never saved, from the flags."""
    again = [name for name in SERVER_FLAGS if name not in _SECRETS and server[name] is not None
             and (server[name] is not False or name == "ignore_eos")]
    if again:
        raise UsageError(f"the study knows its server: leave out --{again[0].replace('_', '-')} to go on "
                         f"with it, or start a new study")
    facts = saved.server
    if saved.is_simulated:
        source = EngineSource(kind="sim", simulation=target_from(**facts["simulation"]),
                              ceiling_budget=max(saved.token_budgets or (), default=0))
        if source.as_dict()["cost_digest"] != facts["cost_digest"]:
            raise UsageError("the sheet or calibration that this study was begun with has changed since: "
                             "start a new study")
        return source
    target = None
    if "target" in facts:
        shown = {name: value for name, value in facts["target"].items() if name != "header_names"}
        secrets = secrets_from_options(**{name: server[name] for name in _SECRETS})
        if missing := sorted(set(facts["target"]["header_names"]) - set(secrets["headers"])):
            raise UsageError(f"the study sent a header {missing[0]}, whose value was not saved: give it "
                             f"again with --header {missing[0]}=VALUE")
        target = HttpTarget.from_secret_dict(shown | secrets)
    template = CommandTemplate(facts["command"]) if "command" in facts else None
    baseline = None
    if template is not None and saved.token_budgets and saved.max_seqs:
        baseline = Knobs(max(saved.token_budgets), max(saved.max_seqs))
    block = facts.get("control_block")
    return EngineSource(
        kind=facts["kind"], launch=saved.launch, target=target, template=template, baseline=baseline,
        control_block=None if block is None else Path(block), ready_timeout_s=ready_timeout_s,
        request_timeout_s=asked.get("request_timeout", saved.request_timeout_s))


def _first_knobs(template: CommandTemplate, asked: Mapping[str, Any]) -> KnobsAsked:
    """Where a search over a command starts: at the largest values that are to be tried, as an engine's own
    default is. Nothing for a command without fields. UsageError where fields and flags do not fit."""
    fields = {"token_budget": "--token-budget", "max_seqs": "--max-num-seqs"}
    choices = {name: _choices(asked, flag.removeprefix("--").replace("-", "_"))
               for name, flag in fields.items()}
    known = [name for name in fields if name in template.knobs]
    if not known:
        if template.knobs:
            raise UsageError("to search, --server-command must mention {token_budget} and {max_seqs}; "
                             "without any of these fields only the server's capacity is found")
        return KnobsAsked()
    for name, flag in fields.items():
        if name not in known:
            raise UsageError(f"to search, --server-command must mention {{{name}}} too, and {flag} must say "
                             f"what to try")
        if not choices[name]:
            raise UsageError(f"--server-command mentions {{{name}}}: say with {flag} what to try")
    budget, seqs = max(choices["token_budget"]), max(choices["max_seqs"])
    if seqs > budget:
        raise UsageError(f"--max-num-seqs {seqs} is above every --token-budget: running decodes would be "
                         f"left out of steps; leave it out")
    if "long_prefill_token_threshold" in asked and "long_prefill_token_threshold" not in template.knobs:
        raise UsageError("--long-prefill-token-threshold has no field in --server-command: add "
                         "{long_prefill_token_threshold} there")
    return KnobsAsked(
        token_budget=budget, max_seqs=seqs,
        long_prefill_token_threshold=0 if "long_prefill_token_threshold" in template.knobs else None,
        policy="fcfs" if "policy" in template.knobs else None)


def _choices(asked: Mapping[str, Any], flag: str) -> tuple[int, ...]:
    return tuple(parse_choices(asked[flag])) if flag in asked else ()
