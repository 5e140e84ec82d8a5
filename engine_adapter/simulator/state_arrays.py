"""Making and growing the arrays of a simulated scheduler."""

import numpy as np

from engine_adapter.errors import Rejected
from engine_adapter.simulator import kernel_state as k
from engine_adapter.simulator.kernel_rules import OTHER_RULES
from engine_adapter.simulator.kernel_state import Int64, State
from engine_adapter.simulator.settings import SchedulerSettings
from workloads.errors import UsageError

_NOT_IN_OTHER_RULES = {
    "prefix_caching": "prefix caching", "num_spec_tokens": "draft tokens",
    "async_scheduling": "asynchronous scheduling", "priority": "priorities",
}


def check_supported(settings: SchedulerSettings) -> None:
    """UsageError, one line, for combinations that no engine has or that are not simulated."""
    if settings.rule != "vllm-v1":
        for name, words in _NOT_IN_OTHER_RULES.items():
            if getattr(settings, name):
                raise UsageError(f"the rule {settings.rule} knows no {words}; only vllm-v1 does")
    if settings.num_spec_tokens == 0:
        return
    if settings.max_batched_tokens <= settings.draft_slots:
        raise UsageError(f"an input budget of {settings.max_batched_tokens} has no room beside "
                         f"{settings.draft_slots} draft slots")
    if settings.draft_method == "ngram" and settings.async_scheduling:
        raise UsageError("vLLM has no asynchronous scheduling with n-gram drafts")
    if settings.pipeline_parallel > 1 and not settings.async_scheduling:
        raise UsageError("draft tokens with pipeline parallel are only simulated with asynchronous "
                         "scheduling")
    if 0 < settings.long_prefill_token_threshold <= settings.num_spec_tokens:
        raise UsageError(f"a long-prefill threshold of {settings.long_prefill_token_threshold} would cut "
                         f"decodes with {settings.num_spec_tokens} draft tokens; vLLM fails on it")


def other_rule(settings: SchedulerSettings) -> int | None:
    """The rule as the kernels know it, None for vllm-v1."""
    return None if settings.rule == "vllm-v1" else OTHER_RULES.index(settings.rule)


def most_in_flight(settings: SchedulerSettings) -> int:
    """Steps that may be in flight at once (vLLM's max_concurrent_batches, model runner V2)."""
    return settings.pipeline_parallel + int(settings.async_scheduling)


def most_slots(settings: SchedulerSettings, input_len: Int64, output_len: Int64) -> Int64:
    """Tokens that KV blocks may have to hold for requests of these lengths, each running alone."""
    if settings.rule in ("orca", "request-level"):
        return input_len + output_len
    tokens = input_len + output_len - 1
    if settings.num_spec_tokens:
        # Each step in flight may carry its drafts, and the drafter writes behind them.
        tokens = tokens + settings.num_lookahead_tokens + (
            (1 + settings.num_spec_tokens) * most_in_flight(settings))
    slots: Int64 = np.minimum(tokens, settings.max_model_len)
    return slots


def refusals(settings: SchedulerSettings, input_len: Int64,
             output_len: Int64) -> tuple[Int64, tuple[str, ...]]:
    """For requests of these lengths, shape (n,): 0, or one more than the place of the reason why such a
    request can never run among the reasons that are returned with it."""
    blocks = settings.num_kv_blocks - 1
    slots = most_slots(settings, input_len, output_len)
    room = min(settings.token_budget, settings.max_batched_tokens - settings.draft_slots)
    whole = settings.rule == "vllm-v1" and not settings.chunked_prefill
    reasons = (
        f"prompt and answer are longer than the model's {settings.max_model_len} tokens",
        f"it needs more than the {blocks} KV blocks of {settings.block_size} tokens that there are",
        f"without chunked prefill a prompt must fit into the budget of {room} tokens",
    )
    fails = (
        input_len + output_len > settings.max_model_len,
        -(-slots // settings.block_size) > blocks,
        whole & (input_len > room),
    )
    found = np.zeros(len(input_len), dtype=np.int64)
    for place in range(len(fails) - 1, -1, -1):
        found[fails[place]] = place + 1
    return found, reasons


def rejected(settings: SchedulerSettings, input_len: int, output_len: int) -> Rejected | None:
    """Why a request of these lengths can never run, or None."""
    found, reasons = refusals(settings, np.array([input_len]), np.array([output_len]))
    if not found[0]:
        return None
    return Rejected(f"a request of {input_len} prompt and {output_len} output tokens can never run: "
                    f"{reasons[found[0] - 1]}")


def set_knobs(scalars: Int64, settings: SchedulerSettings) -> None:
    """Write what can change while the scheduler works."""
    scalars[k.BUDGET] = settings.token_budget
    scalars[k.INPUT_BUDGET] = settings.max_batched_tokens
    scalars[k.MAX_ACTIVE] = settings.max_seqs
    scalars[k.LONG_PREFILL] = settings.long_prefill_token_threshold
    scalars[k.ADAPTIVE] = settings.adaptive_long_prefill
    scalars[k.CHUNKED] = settings.chunked_prefill
    scalars[k.RESERVE_FULL] = settings.reserve_full_isl


def new_state(settings: SchedulerSettings, *, draft_acceptance: float, seed: int, rows: int = 0,
              table_places: int = 0, content_places: int = 0, contents: int = 0) -> State:
    """Empty arrays with room for so many requests, blocks of requests, and contents; the blocks
    themselves are laid out by `reset_blocks`."""
    scalars = np.zeros(k.NUM_SCALARS, dtype=np.int64)
    set_knobs(scalars, settings)
    scalars[k.MAX_MODEL_LEN] = settings.max_model_len
    scalars[k.NUM_BLOCKS] = settings.num_kv_blocks
    scalars[k.BLOCK_SIZE] = settings.block_size
    scalars[k.PRIORITY] = settings.priority
    scalars[k.CACHING] = settings.prefix_caching
    scalars[k.WATERMARK] = int(settings.watermark * settings.num_kv_blocks)
    scalars[k.NUM_SPEC] = settings.num_spec_tokens
    scalars[k.LOOKAHEAD] = settings.num_lookahead_tokens
    scalars[k.DRAFT_SLOTS] = settings.draft_slots
    scalars[k.DROP_LAST_HIT] = settings.num_spec_tokens > 0 and settings.draft_method == "eagle"
    scalars[k.ASYNC] = settings.async_scheduling
    scalars[k.STAGES] = settings.pipeline_parallel
    scalars[k.MOST_IN_FLIGHT] = most_in_flight(settings)
    scalars[k.SEED] = seed
    scalars[k.ACCEPT_BELOW] = acceptance_bound(draft_acceptance)
    scalars[k.QUEUE_FRONT] = -1
    blocks = settings.num_kv_blocks + 1 if settings.prefix_caching else 0
    return State(
        scalars=scalars,
        rows=np.zeros((rows, k.NUM_ROW_FIELDS), dtype=np.int64),
        running=np.zeros(rows, dtype=np.int64),
        waiting=np.zeros(rows, dtype=np.int64),
        spare=np.zeros(rows, dtype=np.int64),
        entries=np.zeros((most_in_flight(settings), min(rows, settings.max_seqs), k.NUM_ENTRY_FIELDS),
                         dtype=np.int64),
        entry_counts=np.zeros(most_in_flight(settings), dtype=np.int64),
        tables=np.zeros(table_places, dtype=np.int32),
        contents=np.zeros(content_places, dtype=np.int32),
        cached=np.full((contents, 2), -1, dtype=np.int32),
        blocks=np.zeros((blocks, k.NUM_BLOCK_FIELDS), dtype=np.int32),
    )


def acceptance_bound(draft_acceptance: float) -> int:
    """The chance as `accepted_drafts` takes it."""
    if not 0 <= draft_acceptance <= 1:
        raise UsageError(f"draft_acceptance must be from 0 to 1; got {draft_acceptance}")
    return round(draft_acceptance * 2**53)


def fill_rows(rows: Int64, input_len: Int64, output_len: Int64, arrival_ns: Int64, priority: Int64) -> None:
    """Set new rows to requests of these columns."""
    rows[:, k.INPUT] = rows[:, k.KNOWN] = input_len
    rows[:, k.OUTPUT] = output_len
    rows[:, k.ARRIVAL] = arrival_ns
    rows[:, k.URGENCY] = priority
    rows[:, k.FIRST_NS] = -1
