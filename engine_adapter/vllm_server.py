"""vLLM's own OpenAI-compatible server, with our scheduler plugged in and its facts written down.

    python -m engine_adapter.vllm_server CONTROL_BLOCK [--ceiling-budget N] -- MODEL [flags of vllm serve]

Does what `vllm serve` (0.32) does with one API server. CONTROL_BLOCK is the file of live knobs and of
the step log, made when it does not exist; give it to `--control-block`. The facts (see engine_facts)
are written beside it when the engine is ready, before the server listens. N raises the start-up
max_num_batched_tokens that vLLM chooses by itself to at least N.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from engine_adapter.control_block import ENVIRONMENT_NAME, ControlBlock
from engine_adapter.engine_facts import facts_beside, write_facts
from engine_adapter.processes import is_running
from engine_adapter.vllm_config import default_config_of, describe, knobs_of, plug_in, raise_ceiling


def main() -> None:
    """Entry of the server's process; see the module."""
    ours, theirs = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(prog="engine_adapter.vllm_server", usage=(
        "python -m engine_adapter.vllm_server CONTROL_BLOCK [--ceiling-budget N] "
        "-- MODEL [flags of vllm serve]"))
    parser.add_argument("control_block", type=Path)
    parser.add_argument("--ceiling-budget", type=int, default=0)
    options = parser.parse_args(ours)
    block: Path = options.control_block.absolute()
    if (user := user_of(block)) is not None:
        parser.error(f"{block} is in use by the engine of process {user}: give another file")
    os.environ[ENVIRONMENT_NAME] = str(block)
    args = _parsed(theirs)

    import uvloop

    uvloop.run(_serve(args, facts_beside(block), options.ceiling_budget))


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1:]


def user_of(block: Path) -> int | None:
    """The process whose engine uses this control block; without one, a fresh block is there afterwards."""
    pid = ControlBlock.attach(block).plugin_pid if block.exists() else -1
    if pid > 0 and is_running(pid):
        return pid
    facts_beside(block).unlink(missing_ok=True)
    if pid != 0:
        block.unlink(missing_ok=True)
        ControlBlock.create(block)
    return None


def _parsed(words: list[str]) -> argparse.Namespace:
    """The arguments as `vllm serve` reads them, its checks and settings of the process included."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.logger import configure_logging_from_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    cli_env_setup()
    args: argparse.Namespace = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(words)
    if args.model_tag is not None:
        args.model = args.model_tag
    configure_logging_from_args(args)
    validate_parsed_serve_args(args)
    return args


async def _serve(args: Any, facts_path: Path, ceiling_budget: int) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.api_server.entry import build_and_serve, build_async_engine_client
    from vllm.entrypoints.launchers.launcher import setup_server
    from vllm.utils.system_utils import decorate_logs

    decorate_logs("APIServer", skip_if_decorated=True)
    # A port in use is noticed here, before the engine takes its half minute.
    listen_address, listener = setup_server(args, reuse_port=False)
    defaults = default_config_of(AsyncEngineArgs.from_cli_args(args))
    if args.max_num_batched_tokens is None:
        raise_ceiling(args, ceiling_budget, defaults)
    plug_in(args, defaults)
    async with build_async_engine_client(args) as engine:
        facts = describe(engine.vllm_config, knobs_of(defaults))
        names = args.served_model_name
        facts["served_model"] = (names if isinstance(names, str) else names[0]) if names else args.model
        write_facts(facts_path, facts)
        shutdown = await build_and_serve(engine, listen_address, listener, args)
    try:
        await shutdown
    finally:
        listener.close()


if __name__ == "__main__":
    main()
