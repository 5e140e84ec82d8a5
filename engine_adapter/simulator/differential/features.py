"""What a case exercises, by name, so that a proof can say how much of each it saw."""

from collections.abc import Callable

from engine_adapter.simulator.differential.case import Case

FEATURES: dict[str, Callable[[Case], bool]] = {
    "one step at a time":
        lambda case: not case.settings.async_scheduling and case.settings.pipeline_parallel == 1,
    "async scheduling": lambda case: case.settings.async_scheduling,
    "pipeline of 2 to 4": lambda case: case.settings.pipeline_parallel > 1,
    "async scheduling in a pipeline":
        lambda case: case.settings.async_scheduling and case.settings.pipeline_parallel > 1,
    "drafts of EAGLE or MTP": lambda case: _drafts(case, "eagle"),
    "drafts of a draft model": lambda case: _drafts(case, "draft_model"),
    "drafts of n-grams": lambda case: _drafts(case, "ngram"),
    "prefix caching": lambda case: case.settings.prefix_caching,
    "prefix cache reset": lambda case: bool(case.resets),
    "priority policy": lambda case: case.settings.priority,
    "long-prefill cap": lambda case: case.settings.long_prefill_token_threshold > 0,
    "long-prefill cap, adaptive":
        lambda case: case.settings.long_prefill_token_threshold > 0 and case.settings.adaptive_long_prefill,
    "chunked prefill off": lambda case: not case.settings.chunked_prefill,
    "full-prompt check off": lambda case: not case.settings.reserve_full_isl,
    "watermark": lambda case: int(case.settings.watermark * case.settings.num_kv_blocks) > 0,
    "input budget above token budget":
        lambda case: case.settings.max_batched_tokens > case.settings.token_budget,
    "token budget below 32": lambda case: case.settings.token_budget < 32,
    "max_model_len reached": lambda case: any(
        request.input_len + request.output_len == case.settings.max_model_len for request in case.requests),
    "KV blocks for two or fewer": lambda case: case.settings.num_kv_blocks <= 2 * case.blocks_needed(),
    "live knobs": lambda case: bool(case.changes),
    "aborts": lambda case: bool(case.aborts),
    "KV blocks of 1 to 5 tokens": lambda case: case.settings.block_size < 8,
    "KV blocks of 8 tokens": lambda case: case.settings.block_size == 8,
    "KV blocks of 16 tokens": lambda case: case.settings.block_size == 16,
    "KV blocks of 32 tokens": lambda case: case.settings.block_size == 32,
    "KV blocks of 128 tokens": lambda case: case.settings.block_size == 128,
}
"""By name, whether a case has it; every case has several."""


def _drafts(case: Case, method: str) -> bool:
    return case.settings.num_spec_tokens > 0 and case.settings.draft_method == method
