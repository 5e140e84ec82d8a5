"""From flags to where the engines of a command come from."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.servers.command_template import CommandTemplate
from engine_adapter.vllm_launch import VllmLaunch
from tuner.cli.engine_options import launch_from_options
from tuner.engines import EngineSource
from tuner.knobs_asked import KnobsAsked
from workloads import UsageError, Workload


def engine_source(
    workload: Workload, knobs: KnobsAsked, engine: dict[str, Any], *, config: str | None,
    server: str | None, server_command: str | None, control_block: str | None,
    target: HttpTarget | None, request_timeout_s: float, ready_timeout_s: float,
) -> EngineSource:
    """The server that runs already, or how to start an engine; UsageError where flags contradict."""
    if server not in (None, "vllm"):
        raise UsageError(f"unknown --server {server!r}; known: vllm. Others start with --server-command")
    if server is not None and (target is not None or server_command is not None):
        raise UsageError("--server vllm starts a server of its own: leave out --base-url and "
                         "--server-command")
    own = {name: value for name, value in engine.items() if name != "model"} | {"config": config}
    if server_command is not None:
        _refuse(own | {"control_block": control_block}, "the command decides how the server starts")
        template = CommandTemplate(server_command)
        _check_fields(template, target)
        return EngineSource(
            kind="command", template=template, target=target, baseline=knobs_for_command(template, knobs),
            ready_timeout_s=ready_timeout_s, request_timeout_s=request_timeout_s)
    if control_block is not None and not Path(control_block).is_file():
        raise UsageError(f"--control-block {control_block} does not exist: give the file that the server was "
                         f"started with")
    if target is not None:
        live = {} if control_block is not None else knobs.as_flags()
        _refuse(own | live, "the server runs already and is measured as it is")
        return EngineSource(
            kind="remote", target=target, request_timeout_s=request_timeout_s,
            control_block=None if control_block is None else Path(control_block))
    if control_block is not None:
        raise UsageError("--control-block belongs to a server that runs already: name it with --base-url")
    kind: Literal["embedded", "vllm"] = "embedded" if server is None else "vllm"
    if config is not None:
        return EngineSource(kind=kind, launch=launch_from_config(Path(config), engine | knobs.as_flags()),
                            ready_timeout_s=ready_timeout_s)
    knobs.check()
    return EngineSource(
        kind=kind, launch=launch_from_options(workload, **engine, ceiling_budget=knobs.token_budget or 0),
        ready_timeout_s=ready_timeout_s)


def _check_fields(template: CommandTemplate, target: HttpTarget | None) -> None:
    """Refuse a command of which port or model are not known, or are said twice."""
    port = None if target is None else urlsplit(target.base_url).port
    if template.mentions("port") and port is not None:
        raise UsageError("--server-command mentions {port}, for which a free one is chosen: leave the port "
                         "out of --base-url and --port, or write it into the command")
    if not template.mentions("port") and port is None:
        raise UsageError("--server-command does not mention {port}: give --base-url with the address and "
                         "port at which the server will listen")
    if template.mentions("model") and (target is None or target.model is None):
        raise UsageError("--server-command mentions {model}: give --model")


def knobs_for_command(template: CommandTemplate, asked: KnobsAsked) -> Knobs | None:
    """What fills the fields of a command, None for one without fields for knobs; UsageError for a field
    without a flag, and for a flag without a field."""
    given = asked.given()
    flags = {name: f"--{flag.replace('_', '-')}"
             for name, flag in zip(asked.__dataclass_fields__, asked.as_flags(), strict=True)}
    for name in sorted(template.knobs - set(given)):
        raise UsageError(f"--server-command has a field for {flags[name]}: give that flag")
    for name in sorted(set(given) - template.knobs):
        raise UsageError(f"{flags[name]} has no field in --server-command: add it there")
    if not given:
        return None
    budget = given.get("token_budget", given.get("max_seqs", 1))
    return replace(Knobs(token_budget=budget, max_seqs=1), **given)


def _refuse(flags: dict[str, Any], why: str) -> None:
    if also := [f"--{name.replace('_', '-')}" for name, value in flags.items() if value not in (None, [])]:
        raise UsageError(f"{why}: leave out {', '.join(also)}")


def launch_from_config(path: Path, given: dict[str, Any]) -> VllmLaunch:
    """An engine from a `vllm serve --config` file alone; UsageError where other flags about it are given."""
    _refuse(given, "--config starts the engine from its file alone")
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
