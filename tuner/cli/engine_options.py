"""Flags about the model and its engine that several commands share; names are vLLM's."""

from typing import Annotated, Any

import typer
import yaml

from engine_adapter.models import BUNDLED_MODEL, resolve_model
from engine_adapter.vllm_launch import VllmLaunch
from workloads import UsageError, Workload, load_workload

Model = Annotated[str | None, typer.Option(
    help=f"Directory, hub name, or {BUNDLED_MODEL} (bundled; what the preset cpu uses by default). Of a "
         f"server the name that it lists.")]
Preset = Annotated[str | None, typer.Option(
    help="Ready-made workload with its SLO: chat, code-completion, cpu, long-doc-qa, mixed, summarisation.")]
WorkloadFile = Annotated[str | None, typer.Option(
    "--workload", help="YAML file of a workload of your own; the presets' files show the form.")]
MaxModelLen = Annotated[int | None, typer.Option(help="Longest prompt plus answer, in tokens.")]
Dtype = Annotated[str | None, typer.Option(help="As in vLLM; its default is auto.")]
EnforceEager = Annotated[bool | None, typer.Option(
    "--enforce-eager/--no-enforce-eager", help="Skip compilation and CUDA graphs; the bundled model does.")]
KvCacheMemory = Annotated[int | None, typer.Option(
    "--kv-cache-memory-bytes", help="Size of the KV cache; the bundled model takes 1 GiB.")]
GpuMemory = Annotated[float | None, typer.Option(
    "--gpu-memory-utilization", help="As in vLLM.")]
TensorParallel = Annotated[int | None, typer.Option("--tensor-parallel-size", "-tp", help="As in vLLM.")]
EngineArgs = Annotated[list[str] | None, typer.Option(
    "--engine-arg", metavar="KEY=VALUE",
    help="Any other vLLM engine argument, as in --engine-arg quantization=fp8; repeatable.")]
ReadyTimeout = Annotated[float, typer.Option(
    "--server-ready-timeout", help="Seconds that the engine may take to start.")]

_OF_THE_BUNDLED_MODEL = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
_OURS = {
    "max_num_batched_tokens": "--max-num-batched-tokens", "max_num_seqs": "--max-num-seqs",
    "long_prefill_token_threshold": "--long-prefill-token-threshold", "scheduler_cls": "no flag of ours",
    "scheduling_policy": "--scheduling-policy", "model": "--model",
}


def workload_from_options(preset: str | None, file: str | None) -> Workload:
    """The workload of `--preset` or `--workload`; exactly one of them."""
    if (preset is None) == (file is None):
        raise UsageError("give the workload as either --preset NAME (try --preset cpu), --workload FILE or "
                         "--trace FILE")
    return load_workload(preset or file or "")


def launch_from_options(
    workload: Workload, *, model: str | None, max_model_len: int | None = None, dtype: str | None = None,
    enforce_eager: bool | None = None, kv_cache_memory_bytes: int | None = None,
    gpu_memory_utilization: float | None = None, tensor_parallel_size: int | None = None,
    engine_arg: list[str] | None = None, ceiling_budget: int = 0,
) -> VllmLaunch:
    """How to start the engine; what the user left out is the bundled model's own, or vLLM's default."""
    if model is None and workload.name != "cpu":
        raise UsageError(f"give the model to run with --model; the bundled one is --model {BUNDLED_MODEL}")
    bundled = model in (None, BUNDLED_MODEL)
    args: dict[str, Any] = dict(_OF_THE_BUNDLED_MODEL) if bundled else {}
    if bundled:
        args["max_model_len"] = workload.max_model_len
    given = {
        "max_model_len": max_model_len, "dtype": dtype, "enforce_eager": enforce_eager,
        "kv_cache_memory_bytes": kv_cache_memory_bytes, "gpu_memory_utilization": gpu_memory_utilization,
        "tensor_parallel_size": tensor_parallel_size, **parsed_engine_args(engine_arg or []),
    }
    args |= {name: value for name, value in given.items() if value is not None}
    longest = args.get("max_model_len")
    if longest is not None and workload.longest_request > longest:
        raise UsageError(f"the workload's longest request is {workload.longest_request} tokens, above "
                         f"--max-model-len {longest}: raise it or use shorter lengths")
    return VllmLaunch(resolve_model(model or BUNDLED_MODEL), args, ceiling_budget=ceiling_budget)


def parsed_engine_args(pairs: list[str]) -> dict[str, Any]:
    """vLLM engine arguments by field name, values read as YAML."""
    args = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().removeprefix("--").replace("-", "_")
        if not equals or not name:
            raise UsageError(f"--engine-arg {pair!r} is not KEY=VALUE, as in --engine-arg quantization=fp8")
        if name in _OURS:
            raise UsageError(f"--engine-arg {name} is set by {_OURS[name]}")
        try:
            args[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(f"--engine-arg {pair!r}: the value is not valid YAML") from None
    return args
