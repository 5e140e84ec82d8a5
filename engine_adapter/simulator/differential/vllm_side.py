"""vLLM's own scheduler, the installed version's, without an engine around it and without a model."""

import functools
from collections import deque
from typing import Any

from engine_adapter.simulator.acceptance import accepted
from engine_adapter.simulator.differential.case import Case, CaseRequest
from engine_adapter.simulator.differential.observed import Decision, Delivered, State
from engine_adapter.simulator.differential.real_scheduler import block_hasher, real_scheduler
from engine_adapter.simulator.settings import SchedulerSettings

_OWN_TOKEN = 1 << 40
"""Token ids from here on belong to one request only: no two requests share a block with one."""


class VllmSide:
    """vLLM's `Scheduler` or `AsyncScheduler`, fed with the outputs of a model that was never run."""

    def __init__(self, case: Case) -> None:
        settings, self._case = case.settings, case
        turns = [-1, *(change.turn for change in case.changes)]
        self._scheduler, self.max_concurrent_batches = real_scheduler(
            settings, max(case.settings_at(turn).max_seqs for turn in turns))
        self._hasher = block_hasher(settings.block_size) if settings.prefix_caching else None
        self._under_way: deque[tuple[Any, list[tuple[str, int | None]]]] = deque()
        """With the drafts of each request that could be accepted; None for one that samples nothing
        because more of its prompt is to come."""
        self.cached_tokens = 0
        """Found in the prefix cache by the requests that the latest step admitted."""
        self.apply(settings)

    def add(self, row: int, request: CaseRequest) -> None:
        from vllm.v1.request import Request

        self._scheduler.add_request(Request(
            request_id=_request_id(row), prompt_token_ids=self._prompt(row, request),
            sampling_params=_sampling_params(request.output_len), pooling_params=None,
            arrival_time=float(request.arrival_ns), priority=request.priority, block_hasher=self._hasher))

    def abort(self, row: int) -> None:
        from vllm.v1.request import RequestStatus

        self._scheduler.finish_requests([_request_id(row)], RequestStatus.FINISHED_ABORTED)

    def apply(self, settings: SchedulerSettings) -> None:
        """Set what engine_adapter.vllm_scheduler sets in a running engine."""
        scheduler = self._scheduler
        scheduler.max_num_scheduled_tokens = settings.token_budget
        scheduler.max_num_active_reqs = settings.max_seqs
        scheduler.adaptive_long_prefill_threshold = settings.adaptive_long_prefill
        scheduler.scheduler_config.long_prefill_token_threshold = settings.long_prefill_token_threshold
        scheduler.scheduler_config.max_num_batched_tokens = settings.max_batched_tokens

    def reset_prefix_cache(self) -> None:
        self._scheduler.reset_prefix_cache()

    def has_requests(self) -> bool:
        """Whether EngineCore would call `schedule()`."""
        return bool(self._scheduler.has_requests())

    def schedule(self) -> Decision:
        scheduler = self._scheduler
        scheduler.preempted_rows.clear()
        output = scheduler.schedule()
        scheduled, requests = output.num_scheduled_tokens, scheduler.requests
        prefixes = {name: requests[name].num_computed_tokens - n for name, n in scheduled.items()}
        admitted = {new.req_id for new in output.scheduled_new_reqs}
        admitted |= output.scheduled_cached_reqs.resumed_req_ids
        self.cached_tokens = sum(prefixes[name] for name in admitted)
        drafts = {name: len(tokens) for name, tokens in output.scheduled_spec_decode_tokens.items()}
        if scheduled:
            # The drafts of a request that was just admitted are padding (schedule(): "Pad new decode
            # requests"); no model made them.
            self._under_way.append((output, [
                (name, None if requests[name].is_prefill_chunk
                 else 0 if name in admitted else drafts.get(name, 0))
                for name in scheduled]))
        return Decision(
            rows=tuple(int(name) for name in scheduled), tokens=tuple(scheduled.values()),
            prefixes=tuple(prefixes.values()), drafts=tuple(drafts.get(name, 0) for name in scheduled),
            preempted=tuple(scheduler.preempted_rows), state=self._state())

    def update(self) -> Delivered:
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        output, samples = self._under_way.popleft()
        names = [name for name, _ in samples]
        model_output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[self._sampled(name, drafts) for name, drafts in samples])
        results = self._scheduler.update_from_output(output, model_output)
        k = self._case.settings.num_spec_tokens
        if k and not self._case.settings.async_scheduling:
            drafted = [name for name, drafts in samples if drafts is not None]
            self._scheduler.update_draft_token_ids(DraftTokenIds(drafted, [[0] * k for _ in drafted]))
        delivered = [one for client in results.values() for one in client.outputs if one.new_token_ids]
        return Delivered(
            rows=tuple(int(one.request_id) for one in delivered),
            tokens=tuple(len(one.new_token_ids) for one in delivered),
            finished=tuple(int(one.request_id) for one in delivered if one.finish_reason is not None),
            state=self._state())

    def _sampled(self, name: str, drafts: int | None) -> list[int]:
        request = self._scheduler.requests.get(name)
        if drafts is None or request is None:
            return []
        case, row = self._case, int(name)
        taken = accepted(case.seed, row, request.num_output_tokens, drafts, case.draft_acceptance)
        return [_OWN_TOKEN + row] * (1 + taken)

    def _prompt(self, row: int, request: CaseRequest) -> list[int]:
        """Token ids whose full blocks are equal exactly where the prefix keys are."""
        size = self._case.settings.block_size
        blocks = (key if key >= 0 else _OWN_TOKEN + row for key in request.prefix_keys)
        tokens = [token for token in blocks for _ in range(size)]
        return tokens + [_OWN_TOKEN + row] * (request.input_len - len(tokens))

    def _state(self) -> State:
        scheduler = self._scheduler
        return State(
            running=tuple(int(request.request_id) for request in scheduler.running),
            waiting=tuple(int(request.request_id) for request in scheduler.waiting),
            free_blocks=scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


def _request_id(row: int) -> str:
    """Sorts like the row, for ties of priority and arrival."""
    return f"{row:06d}"


@functools.cache
def _sampling_params(output_len: int) -> Any:
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=output_len, min_tokens=output_len, ignore_eos=True)
    params.update_from_generation_config({}, None)
    return params
