"""vLLM's scheduler in simulated time, written from EngineCore and the contract of `play` alone."""

from collections import deque
from dataclasses import replace

import numpy as np

from engine_adapter.simulator.differential.case import Case
from engine_adapter.simulator.differential.vllm_side import VllmSide
from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.step_cost import StepCost

TURN_NS = 4_000_000
"""From one turn of a case to the next, when it is played in time."""
STEP_COLUMNS = ("start_ns", "end_ns", "num_tokens", "kv_blocks_used", "num_running", "num_waiting",
                "num_preempted")
"""Of the step log, for `TimedVllm.steps`."""


def load_of(case: Case) -> SimulatedLoad:
    """The requests of `case`, each sent at its turn."""
    keys = [request.prefix_keys for request in case.requests]
    return SimulatedLoad(
        arrival_ns=np.array([request.turn * TURN_NS for request in case.requests]),
        input_len=np.array([request.input_len for request in case.requests]),
        output_len=np.array([request.output_len for request in case.requests]),
        priority=np.array([request.priority for request in case.requests]),
        prefix_keys=np.array([key for some in keys for key in some], dtype=np.int64),
        prefix_offset=np.cumsum([0, *map(len, keys)]),
        draft_acceptance=case.draft_acceptance, seed=case.seed)


class TimedVllm:
    """What the requests of a case get from vLLM's scheduler when its steps take what a StepCost says."""

    def __init__(self, case: Case, cost: StepCost) -> None:
        self.load, self._case, self._cost = load_of(case), case, cost
        self._side = VllmSide(case)
        self._now, self._preempted = int(self.load.arrival_ns[0]), 0
        self._stage_free = [0] * case.settings.pipeline_parallel
        self._queue: deque[list[int] | None] = deque()
        self.steps: list[list[int]] = []
        """A row for each step, in the order of STEP_COLUMNS."""
        self.reads: list[list[tuple[int, int]]] = [[] for _ in case.requests]
        """For each request, when it got how many tokens."""
        self._play()

    def _visible_ns(self, row: int) -> int:
        delay = self._cost.arrival_ns + self._cost.arrival_token_ns * int(self.load.input_len[row])
        return int(self.load.arrival_ns[row]) + round(delay)

    def _play(self) -> None:
        side = self._side
        coming = deque(sorted(range(len(self.load)), key=lambda row: (self._visible_ns(row), row)))
        while True:
            while coming and self._visible_ns(coming[0]) <= self._now:
                row = coming.popleft()
                # An engine stamps no two requests with the same arrival.
                side.add(row, replace(self._case.requests[row], arrival_ns=row))
            if side.has_requests() and self._decide() and len(self._queue) < side.max_concurrent_batches:
                continue
            if any(step is not None for step in self._queue):
                self._await_oldest()
            elif coming and not side.has_requests():
                self._queue.clear()
                self._now = max(self._now, self._visible_ns(coming[0]))
            elif not side.has_requests():
                return

    def _decide(self) -> bool:
        """Whether EngineCore would decide another step before it waits for one."""
        side, cost, settings = self._side, self._cost, self._case.settings
        decision = side.schedule()
        self._preempted += len(decision.preempted)
        if not decision.rows:
            if decision.preempted and not any(self._queue):
                self._now += round(cost.host_ns)
            self._queue.append(None)
            return side.has_requests()
        start = self._now
        device = cost.fixed_ns + cost.linear_ns[1] * sum(decision.tokens)
        self._now += round(cost.between_steps_ns(len(decision.rows)))
        end = self._now
        for stage, free in enumerate(self._stage_free):
            if stage:
                end += round(cost.transfer_ns)
            end = self._stage_free[stage] = max(end, free) + round(device / len(self._stage_free))
        self._queue.append([
            start, end, sum(decision.tokens),
            settings.num_kv_blocks - decision.state.free_blocks,
            len(decision.state.running), len(decision.state.waiting), self._preempted])
        self._preempted = 0
        return True

    def _await_oldest(self) -> None:
        step = self._queue.popleft()
        if step is None:
            return
        self._now = step[1] = max(self._now, step[1])
        delivered = self._side.update()
        self.steps.append(step)
        for row, tokens in zip(delivered.rows, delivered.tokens, strict=True):
            self.reads[row].append((self._now + round(self._cost.delivery_ns), tokens))
