"""From a launch to vLLM's own configuration, and back to what it chose."""

from typing import Any

from engine_adapter.knobs import Knobs
from engine_adapter.vllm_launch import VllmLaunch

_SCHEDULER_ARGS = ("max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_seqs",
                   "max_num_active_seqs", "long_prefill_token_threshold",
                   "long_prefill_token_threshold_adaptive", "scheduling_policy", "scheduler_cls")


def configure(launch: VllmLaunch) -> tuple[Any, Knobs]:
    """The VllmConfig to start, our scheduler plugged in, and the knobs vLLM chooses by itself."""
    default_config = default_config_of(_engine_args(launch))
    args = _engine_args(launch)
    if launch.config_file is None:
        if launch.knobs is not None:
            for name, value in launch.knobs.engine_args().items():
                setattr(args, name, value)
        else:
            raise_ceiling(args, launch.ceiling_budget, default_config)
    plug_in(args, default_config)
    return args.create_engine_config(_usage_context()), knobs_of(default_config)


def default_config_of(args: Any) -> Any:
    """The VllmConfig of these AsyncEngineArgs without their scheduler settings; spoils `args`.

    It is that of `vllm serve` (usage context OPENAI_API_SERVER), since that is what will run.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    for name in _SCHEDULER_ARGS:
        setattr(args, name, getattr(AsyncEngineArgs, name))
    return args.create_engine_config(_usage_context())


def raise_ceiling(args: Any, ceiling_budget: int, default_config: Any) -> None:
    """Have a max_num_batched_tokens of at least `ceiling_budget`, where vLLM would choose a smaller one."""
    if ceiling_budget > knobs_of(default_config).token_budget:
        args.max_num_batched_tokens = ceiling_budget


def plug_in(args: Any, default_config: Any) -> None:
    """Have our scheduler, of the kind that the engine wants, unless another one was asked for."""
    if args.scheduler_cls is None:
        asynchronous = default_config.scheduler_config.async_scheduling
        name = "StallfreeAsyncScheduler" if asynchronous else "StallfreeScheduler"
        args.scheduler_cls = f"engine_adapter.vllm_scheduler.{name}"


def knobs_of(config: Any) -> Knobs:
    """The knobs that a VllmConfig puts in force at start."""
    scheduler = config.scheduler_config
    return Knobs(
        token_budget=scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens,
        max_seqs=scheduler.max_num_active_seqs or scheduler.max_num_seqs,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        adaptive_long_prefill=scheduler.long_prefill_token_threshold_adaptive,
        policy=scheduler.policy,
    )


def describe(config: Any, defaults: Knobs) -> dict[str, Any]:
    """JSON-able facts of a started engine, for EngineInfo."""
    import torch
    import vllm

    model, cache, scheduler = config.model_config, config.cache_config, config.scheduler_config
    return {
        "version": vllm.__version__,
        "max_model_len": model.max_model_len,
        "vocab_size": model.get_vocab_size(),
        "knobs": knobs_of(config).as_dict(),
        "default_knobs": defaults.as_dict(),
        "limits": {"token_budget": scheduler.max_num_batched_tokens, "max_seqs": scheduler.max_num_seqs},
        "num_kv_blocks": cache.num_gpu_blocks or 0,
        "kv_block_size": cache.block_size,
        "fingerprint": {
            "vllm": vllm.__version__,
            "torch": torch.__version__,
            "device": config.device_config.device_type,
            "dtype": str(model.dtype).removeprefix("torch."),
            "kv_cache_dtype": str(cache.cache_dtype),
            "enforce_eager": bool(model.enforce_eager),
            "prefix_caching": bool(cache.enable_prefix_caching),
            "async_scheduling": bool(scheduler.async_scheduling),
            "tensor_parallel": config.parallel_config.tensor_parallel_size,
            "pipeline_parallel": config.parallel_config.pipeline_parallel_size,
        },
    }


def _engine_args(launch: VllmLaunch) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    if launch.config_file is None:
        return AsyncEngineArgs(model=launch.model, **launch.engine_args)
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    return AsyncEngineArgs.from_cli_args(parser.parse_args(["--config", str(launch.config_file)]))


def _usage_context() -> Any:
    from vllm.usage.usage_lib import UsageContext

    return UsageContext.OPENAI_API_SERVER
