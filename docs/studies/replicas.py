"""Plays a load on several replicas of an engine that step together: data parallelism of a model with
experts, where the experts are divided among the replicas and every step waits for all of them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.scheduler import Scheduler, Step
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Times:
    """Nanoseconds, shape (n,) each."""

    scheduled_ns: Int64
    first_token_ns: Int64
    last_token_ns: Int64


@dataclass(frozen=True, eq=False, slots=True)
class SharedExperts:
    """What a step of all replicas takes: the slowest of them in what each does alone, and the experts and
    their exchange, which depend on the tokens of all."""

    alone: StepCost
    together_ns: npt.NDArray[np.float64]
    """By the mean number of tokens of a replica."""

    def __call__(self, steps: Sequence[Step]) -> float:
        # A replica with nothing to do runs one token along.
        mean = -(-sum(max(step.num_tokens, 1) for step in steps) // len(steps))
        alone = max(self.alone.step_ns(max(step.num_tokens, 1), step.chunks, step.decode_contexts)
                    for step in steps)
        return alone + float(self.together_ns[mean])


def play_together(load: SimulatedLoad, settings: SchedulerSettings, replicas: int,
                  cost_ns: Callable[[Sequence[Step]], float]) -> Times:
    """What the requests get, from `replicas` schedulers that each begin a step when all have ended theirs.

    As in vLLM, a request goes to the replica with the least `4 * waiting + running`; with asynchronous
    scheduling a step is decided while the one before it runs.
    """
    schedulers = [Scheduler(settings) for _ in range(replicas)]
    rows: list[list[int]] = [[] for _ in schedulers]
    scheduled, first, last = (np.full(len(load), -1, dtype=np.int64) for _ in range(3))
    underway: deque[tuple[list[Step], int]] = deque()
    now = free_at = arrived = 0
    busy: list[tuple[int, int]] = [(0, 0)] * replicas
    depth = 2 if settings.async_scheduling else 1
    while True:
        while arrived < len(load) and load.arrival_ns[arrived] <= now:
            score = [4 * waiting + running for running, waiting in busy]
            rank = score.index(min(score))
            schedulers[rank].add(int(load.input_len[arrived]), int(load.output_len[arrived]), arrival_ns=now)
            rows[rank].append(arrived)
            busy[rank] = (busy[rank][0], busy[rank][1] + 1)
            arrived += 1
        if len(underway) < depth:
            steps = [scheduler.schedule() for scheduler in schedulers]
            if any(map(len, steps)):
                busy = [(step.num_running, step.num_waiting) for step in steps]
                for step, its in zip(steps, rows, strict=True):
                    new = np.array(its, dtype=np.int64)[step.rows]
                    scheduled[new[scheduled[new] < 0]] = now
                free_at = max(now, free_at) + round(cost_ns(steps))
                underway.append((steps, free_at))
                continue
        if underway:
            steps, end = underway.popleft()
            now = max(now, end)
            for scheduler, step, its in zip(schedulers, steps, rows, strict=True):
                got = np.array(its, dtype=np.int64)[scheduler.update(step).rows]
                first[got[first[got] < 0]] = now
                last[got] = now
        elif arrived < len(load):
            now = int(load.arrival_ns[arrived])
        else:
            return Times(scheduled, first, last)
