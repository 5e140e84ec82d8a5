"""When the steps of a simulated engine begin and end, and its step log: kernel_loop's times, step by step."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine_adapter.simulator.cost_formulas import extended
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog

if TYPE_CHECKING:
    from engine_adapter.simulator.scheduler import Step


class StepTimes:
    """The time of one engine, which passes as its steps are launched and awaited."""

    def __init__(self, settings: SchedulerSettings, cost: StepCost, start_ns: int) -> None:
        self.now_ns = start_ns
        """Of the simulated engine: what it decides next, it decides now."""
        largest = max(settings.max_batched_tokens, settings.max_model_len) + settings.max_seqs
        self._cost = replace(cost, linear_ns=extended(cost.linear_ns, largest))
        self._stage_free_ns = [start_ns] * settings.pipeline_parallel
        self._launched: deque[tuple[int, ...]] = deque()
        self._preempted = 0
        self._steps: list[tuple[int, ...]] = []
        self._chunks: list[tuple[int, ...]] = []

    def visible_ns(self, sent_ns: int, input_len: int) -> int:
        """When the scheduler sees a prompt of so many tokens."""
        return sent_ns + rounded(self._cost.arrival_ns + self._cost.arrival_token_ns * input_len)

    def pause(self) -> None:
        """A decision that only preempted."""
        self.now_ns += rounded(self._cost.host_ns)

    def note_preemptions(self, requests: int) -> None:
        """For the row of the next step that carries anything."""
        self._preempted += requests

    def launch(self, step: "Step", number_of: Callable[[int], int]) -> None:
        """Start a step behind those in flight; `number_of` names the request of a row in the step log."""
        start_ns = self.now_ns
        device = self._cost.step_ns(step.num_tokens, step.chunks, step.decode_contexts)
        self.now_ns += rounded(self._cost.between_steps_ns(len(step)))
        tokens, prefixes, chunk = step.tokens, step.prefixes, step.is_prefill
        self._chunks += [(step.number, number_of(row), new, prefix) for row, new, prefix in zip(
            step.rows[chunk].tolist(), tokens[chunk].tolist(), prefixes[chunk].tolist(), strict=True)]
        self._launched.append((
            step.number, start_ns, self._through_stages(device), step.num_tokens, int(tokens[chunk].sum()),
            int(np.count_nonzero(~chunk)), int((tokens * (2 * prefixes + tokens)).sum()) // 2,
            step.kv_blocks_used, step.num_running, step.num_waiting, self._preempted))
        self._preempted = 0

    def end_oldest(self) -> int:
        """Let time pass until the oldest step ends; when its tokens are read."""
        number, start_ns, end_ns, *rest = self._launched.popleft()
        self.now_ns = max(self.now_ns, end_ns)
        self._steps.append((number, start_ns, self.now_ns, *rest))
        return self.now_ns + rounded(self._cost.delivery_ns)

    def taken_log(self) -> StepLog:
        """The steps that ended since the last call, and chunks of those that were launched."""
        steps = np.array(self._steps, dtype=np.int64).reshape(-1, len(STEP_COLUMNS))
        chunks = np.array(self._chunks, dtype=np.int64).reshape(-1, len(CHUNK_COLUMNS))
        self._steps, self._chunks = [], []
        return StepLog(
            steps={name: steps[:, at].copy() for at, name in enumerate(STEP_COLUMNS)},
            chunks={name: chunks[:, at].copy() for at, name in enumerate(CHUNK_COLUMNS)})

    def _through_stages(self, device: float) -> int:
        """When a step that is handed over now leaves the last pipeline stage."""
        free, at = self._stage_free_ns, self.now_ns
        for stage in range(len(free)):
            if stage:
                at += rounded(self._cost.transfer_ns)
            free[stage] = at = max(at, free[stage]) + rounded(device / len(free))
        return at


def rounded(nanoseconds: float) -> int:
    """Whole nanoseconds, as the compiled loop rounds them."""
    return int(nanoseconds + 0.5)
