"""The scheduler plug-in: vLLM's own scheduler, plus live knobs and a step log.

Loaded by vLLM inside its EngineCore process through `scheduler_cls`. It decides nothing by
itself: it sets the attributes that `Scheduler.schedule()` reads at every step (vLLM 0.32) and
notes what came out. When vLLM has changed so that it cannot, it steps aside for good and the
engine goes on as if it were not there; the adapter sees that and says so.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from engine_adapter.control_block import ENVIRONMENT_NAME, ControlBlock
from engine_adapter.knobs import Knobs
from engine_adapter.request_number import request_number

if TYPE_CHECKING:
    _SchedulerBeside: Any = Scheduler
else:
    _SchedulerBeside = object

_PR_SET_PDEATHSIG = 1


class _Plugin(_SchedulerBeside):  # type: ignore[misc]
    """Mixed into vLLM's scheduler classes below."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _die_with_parent()
        self._block = ControlBlock.attach(Path(os.environ[ENVIRONMENT_NAME]))
        self._knobs_version = 0
        self._asked: Knobs | None = None
        self._preempted = 0
        self._pending: deque[tuple[Any, tuple[int, ...], list[tuple[int, ...]]]] = deque()
        self._aside = False
        self._prefixes: Any = None
        with contextlib.suppress(Exception):  # without this count all else still works
            self._prefixes = _counting(self.kv_cache_manager)
            self._block.count_prefixes(0, 0)
        try:
            self._block.report(self._in_force(), 0)
        except Exception:
            self._step_aside()
        self._block.announce(os.getpid())

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        if self._aside:
            return super().schedule(*args, **kwargs)
        start_ns = time.perf_counter_ns()
        start_budget = self.scheduler_config.max_num_batched_tokens
        try:
            self._refresh_knobs()
            if self._asked is not None:
                # The adaptive threshold divides max_num_batched_tokens, which a fresh engine
                # of this budget would have; the model runner keeps its start-up value.
                self.scheduler_config.max_num_batched_tokens = self._asked.token_budget
        except Exception:
            self._step_aside()
        refreshed_ns = time.perf_counter_ns()
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.scheduler_config.max_num_batched_tokens = start_budget
        scheduled_ns = time.perf_counter_ns()
        if output.total_num_scheduled_tokens and not self._aside:
            try:
                self._note(output, start_ns)
                if self._prefixes is not None:
                    self._block.count_prefixes(self._prefixes.queries, self._prefixes.hits)
            except Exception:
                self._step_aside()
        self._block.add_overhead(time.perf_counter_ns() - scheduled_ns + refreshed_ns - start_ns)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        result = super().update_from_output(scheduler_output, model_runner_output)
        end_ns = time.perf_counter_ns()
        if self._pending and self._pending[0][0] is scheduler_output:
            _, step, chunks = self._pending.popleft()
            self._block.write_step((step[0], step[1], end_ns, *step[3:]), chunks)
            self._block.add_overhead(time.perf_counter_ns() - end_ns)
        return result

    def _preempt_request(self, *args: Any, **kwargs: Any) -> Any:
        self._preempted += 1
        return super()._preempt_request(*args, **kwargs)

    def _refresh_knobs(self) -> None:
        if (asked := self._block.asked_since(self._knobs_version)) is None:
            return
        self._knobs_version, knobs = asked
        # A policy needs another queue class, so it is fixed at start-up.
        self.max_num_scheduled_tokens = knobs.token_budget
        self.max_num_active_reqs = knobs.max_seqs
        self.scheduler_config.long_prefill_token_threshold = knobs.long_prefill_token_threshold
        self.adaptive_long_prefill_threshold = knobs.adaptive_long_prefill
        self._asked = knobs
        self._block.report(self._in_force(), self._knobs_version)

    def _in_force(self) -> Knobs:
        return Knobs(
            token_budget=self.max_num_scheduled_tokens,
            max_seqs=self.max_num_active_reqs,
            long_prefill_token_threshold=self.scheduler_config.long_prefill_token_threshold,
            adaptive_long_prefill=self.adaptive_long_prefill_threshold,
            policy=self.scheduler_config.policy,
        )

    def _note(self, output: Any, start_ns: int) -> None:
        requests, step = self.requests, self.current_step
        chunks: list[tuple[int, ...]] = []
        prefill = work_twice = 0
        scheduled = output.num_scheduled_tokens
        for request_id, tokens in scheduled.items():
            request = requests[request_id]
            prefix = request.num_computed_tokens - tokens
            work_twice += tokens * (2 * prefix + tokens)
            # More than one token at once is prompt, or recomputed after a preemption.
            if tokens > 1 or prefix < request.num_prompt_tokens:
                prefill += tokens
                chunks.append((step, request_number(request_id), tokens, prefix))
        pool = self.kv_cache_manager.block_pool
        running, waiting = self.get_request_counts()
        row = (step, start_ns, 0, output.total_num_scheduled_tokens, prefill, len(scheduled) - len(chunks),
               work_twice // 2, pool.num_gpu_blocks - pool.get_num_free_blocks(), running, waiting,
               self._preempted)
        self._preempted = 0
        self._pending.append((output, row, chunks))

    def _step_aside(self) -> None:
        self._aside = True
        self._block.step_aside()


class StallfreeScheduler(_Plugin, Scheduler):  # type: ignore[misc]
    """For engines that vLLM runs without async scheduling, such as CPU ones."""


class StallfreeAsyncScheduler(_Plugin, AsyncScheduler):  # type: ignore[misc]
    """For engines that vLLM runs with async scheduling."""


def _counting(manager: Any) -> Any:
    """vLLM's own count of what its prefix cache finds, which it keeps for its metrics page only."""
    from vllm.v1.metrics.stats import PrefixCacheStats

    manager.prefix_cache_stats = PrefixCacheStats()
    manager.log_stats = True
    return manager.prefix_cache_stats


def _die_with_parent() -> None:
    """End this process when the one that started it is killed, so that no engine outlives it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
