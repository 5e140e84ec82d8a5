"""Building vLLM's own scheduler on any machine: a configuration without a model that is ever run.

vLLM is imported when something is built for the first time, which takes some seconds.
"""

import contextlib
import copy
import functools
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine_adapter.simulator.settings import SchedulerSettings

_MODEL_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": 4096, "max_position_embeddings": 1 << 20, "dtype": "bfloat16",
}


def real_scheduler(settings: SchedulerSettings, most_running: int) -> tuple[Any, int]:
    """vLLM's `Scheduler` or `AsyncScheduler` as an engine of these settings has it, with a list
    `preempted_rows` of whom it preempted, and the number of steps that may be under way at once. At
    most `most_running` requests ever run."""
    config = _config(settings, most_running)
    with _second_model_runner():
        scheduler = _scheduler_classes()[settings.async_scheduling](
            vllm_config=config, kv_cache_config=_kv_cache_config(settings),
            structured_output_manager=_structured_output_manager(), block_size=settings.block_size)
        return scheduler, config.max_concurrent_batches


@functools.cache
def _base_config() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")    # of vLLM's own imports
        from vllm.engine.arg_utils import EngineArgs

        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "config.json").write_text(json.dumps(_MODEL), encoding="utf-8")
            config = EngineArgs(
                model=directory, skip_tokenizer_init=True, load_format="dummy", enforce_eager=True,
                max_model_len=1 << 20, max_num_seqs=16,
                speculative_config={"method": "ngram", "num_speculative_tokens": 1, "prompt_lookup_max": 2},
            ).create_engine_config()
    # It says at each reset of the prefix cache whether it could.
    logging.getLogger("vllm.v1.core.block_pool").setLevel(logging.ERROR)
    return config


def _config(settings: SchedulerSettings, most_running: int) -> Any:
    """vLLM's configuration for `settings`: making one costs a third of a second, a changed copy nothing."""
    base = _base_config()
    config = copy.copy(base)
    config.model_config = _with(base.model_config, max_model_len=settings.max_model_len)
    config.cache_config = _with(
        base.cache_config, block_size=settings.block_size, num_gpu_blocks=settings.num_kv_blocks,
        enable_prefix_caching=settings.prefix_caching)
    config.parallel_config = _with(
        base.parallel_config, pipeline_parallel_size=settings.pipeline_parallel)
    config.scheduler_config = _with(
        base.scheduler_config, max_num_seqs=most_running, max_num_active_seqs=settings.max_seqs,
        max_num_scheduled_tokens=settings.token_budget, max_num_batched_tokens=settings.max_batched_tokens,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive=settings.adaptive_long_prefill,
        policy="priority" if settings.priority else "fcfs", watermark=settings.watermark,
        enable_chunked_prefill=settings.chunked_prefill,
        scheduler_reserve_full_isl=settings.reserve_full_isl, async_scheduling=settings.async_scheduling)
    config.speculative_config = None if not settings.num_spec_tokens else _with(
        base.speculative_config, method=settings.draft_method,
        num_speculative_tokens=settings.num_spec_tokens)
    return config


def _with(config: Any, **values: Any) -> Any:
    changed = copy.copy(config)
    for name, value in values.items():
        if not hasattr(changed, name):
            raise AttributeError(f"this vLLM's {type(config).__name__} has no {name}")
        setattr(changed, name, value)
    return changed


@contextlib.contextmanager
def _second_model_runner() -> Iterator[None]:
    """vLLM 0.32 runs its second model runner on GPUs, and async scheduling in a pipeline needs it; on
    machines without Triton it must be asked for."""
    before = os.environ.get(_MODEL_RUNNER)
    os.environ[_MODEL_RUNNER] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_MODEL_RUNNER]
        else:
            os.environ[_MODEL_RUNNER] = before


def _kv_cache_config(settings: SchedulerSettings) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(
        block_size=settings.block_size, num_kv_heads=1, head_size=32, dtype=torch.bfloat16)
    return KVCacheConfig(
        num_blocks=settings.num_kv_blocks, kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])


@functools.cache
def _structured_output_manager() -> Any:
    from vllm.v1.structured_output import StructuredOutputManager

    return StructuredOutputManager(_base_config())


@functools.cache
def block_hasher(block_size: int) -> Callable[[Any], Any]:
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    init_none_hash(sha256)
    hasher: Callable[[Any], Any] = get_request_block_hasher(block_size, sha256)
    return hasher


@functools.cache
def _scheduler_classes() -> dict[bool, Any]:
    """By whether scheduling is async."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    def noting(base: Any) -> Any:
        class Noting(base):  # type: ignore[misc]
            def __init__(self, **kwargs: Any) -> None:
                super().__init__(**kwargs)
                self.preempted_rows: list[int] = []

            def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
                self.preempted_rows.append(int(request.request_id))
                return super()._preempt_request(request, *args, **kwargs)

        return Noting

    return {False: noting(Scheduler), True: noting(AsyncScheduler)}
