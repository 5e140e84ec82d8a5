"""Flags of `tune simulate` about the machine that is not there; names are vLLM's where it has one."""

from typing import Annotated

import typer

EngineKind = Annotated[str | None, typer.Option(
    "--engine", help="sim: start nothing and simulate every run, of the --model on the --hardware.")]
Workload = Annotated[str | None, typer.Option(
    help="A workload's YAML file, or the name of a preset.")]
Preset = Annotated[str | None, typer.Option(help="The same: chat, code-completion, cpu, long-doc-qa, mixed, "
                                                 "summarisation.")]
Hardware = Annotated[str | None, typer.Option(
    help="Sheet of the hardware (see --list-sheets), a YAML file of the same form, or what `tune calibrate` "
         "wrote.")]
Model = Annotated[str | None, typer.Option(
    help="Sheet of the model, a config.json, or a directory with one. A calibration needs none.")]
ListSheets = Annotated[bool, typer.Option(
    "--list-sheets", "--list", help="Show the sheets with their sources, and end.")]
SettingsAsked = Annotated[list[str] | None, typer.Option(
    metavar="NAME=VALUE,...",
    help="A setting: token_budget, max_seqs, long_prefill_token_threshold, adaptive_long_prefill, policy. "
         "Repeatable: several stand side by side. Default: vLLM's own for that hardware.")]
Policy = Annotated[str | None, typer.Option(
    help="Which tokens go into a step: vllm-v1 (default), sarathi-serve, vllm-v0, orca, request-level; or "
         "the order of the queue, fcfs or priority.")]
PipelineParallel = Annotated[int | None, typer.Option(
    "--pipeline-parallel-size", "-pp", help="As in vLLM.", min=1)]
Dtype = Annotated[str | None, typer.Option(help="Of weights and arithmetic, as bf16 or fp8.")]
MaxModelLen = Annotated[int | None, typer.Option(
    help="Longest prompt plus answer, in tokens. Default: the model's.")]
NumKvBlocks = Annotated[int | None, typer.Option(
    "--num-kv-blocks", "--num-gpu-blocks-override",
    help="Blocks of the KV cache. Default: what the memory holds.")]
BlockSize = Annotated[int | None, typer.Option(help="Tokens of a KV block.")]
PrefixCaching = Annotated[bool | None, typer.Option(
    "--enable-prefix-caching/--no-enable-prefix-caching", help="Find full blocks of equal prompts again.")]
AsyncScheduling = Annotated[bool | None, typer.Option(
    "--async-scheduling/--no-async-scheduling", help="Decide the next step while one runs.")]
SpeculativeTokens = Annotated[int | None, typer.Option(
    "--num-speculative-tokens", help="Draft tokens of each decode.")]
DraftAcceptance = Annotated[float | None, typer.Option(
    help="Chance that a draft token is kept, given that those before it were.")]
Watermark = Annotated[float | None, typer.Option(
    help="Share of the KV blocks that admissions leave free.")]
