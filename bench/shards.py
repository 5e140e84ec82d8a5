"""How the requests of one plan are shared out to workers, and what these have handed over."""

import math
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np

from bench.merge import merge_runs, unplayed
from bench.run import Int64, Run
from engine_adapter.step_log import StepLog
from workloads import Plan, UsageError
from workloads.traces.shaping import first_of_session


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker plays: the requests `first_row`, `first_row + every`, ... of the plan, where a
    conversation counts as one, with all of its turns."""

    first_row: int
    every: int
    max_concurrency: int | None
    """Its part of the cap on requests in flight."""

    def rows(self, plan: Plan) -> Int64:
        """Its rows of `plan`, ascending."""
        rows = np.arange(len(plan), dtype=np.int64)
        if not (plan.predecessor >= 0).any():
            return rows[self.first_row::self.every]
        # By first rows in order: the number of a conversation, or of a request on its own.
        first = first_of_session(plan.session)
        number = np.unique(first, return_inverse=True)[1]
        mine: Int64 = rows[number % self.every == self.first_row]
        return mine


def to_share_out(plan: Plan) -> int:
    """How many conversations, and requests on their own, `plan` has: workers get whole ones."""
    return int((plan.predecessor < 0).sum())


def worker_shares(requests: int, workers: int, max_concurrency: int | None = None) -> list[Share]:
    """Each of `requests` (see `to_share_out`) to one worker, in turn; the parts of the cap add up to it.

    There are no more workers than requests, nor than the cap: one without either would do nothing.
    UsageError below 1 worker.
    """
    if workers < 1:
        raise UsageError(f"--workers must be at least 1; got {workers}")
    cap = math.inf if max_concurrency is None else max_concurrency
    every = int(min(workers, max(1, requests), max(1, cap)))
    return [
        Share(number, every, None if max_concurrency is None
              else max_concurrency // every + (number < max_concurrency % every))
        for number in range(every)
    ]


class ShardRecorder:
    """Collects one run of `plan` from its workers; the counterpart of RunRecorder for `play_sharded`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.start_ns = 0
        self.meta: dict[str, Any] = {}
        self.shares = worker_shares(to_share_out(plan), 1)
        self.parts: dict[int, Run] = {}
        """By the worker's number, from 0; each holds the worker's own rows only."""
        self.failure = ""
        """Why a worker handed nothing over; empty while none failed."""
        self._step_logs: list[StepLog] = []

    def add_steps(self, steps: StepLog) -> None:
        """Engine steps that follow those added before."""
        if len(steps) or steps.lost:
            self._step_logs.append(steps)

    def run(self, *, cut_short: str = "") -> Run:
        """The run as far as it was handed over; rows of a worker that handed over nothing are not sent.

        `cut_short`, or without it `failure`, makes it invalid. `meta["workers"]` has the requests,
        the part of the cap and the client health (None: nothing handed over) of each worker.
        """
        rows = [share.rows(self.plan) for share in self.shares]
        parts = [self.parts.get(number) or unplayed(self.plan, rows[number], self.start_ns)
                 for number in range(len(rows))]
        workers = [
            {"requests": len(rows[number]), "max_concurrency": share.max_concurrency,
             "client": asdict(self.parts[number].client) if number in self.parts else None}
            for number, share in enumerate(self.shares)
        ]
        return merge_runs(self.plan, parts, cut_short=cut_short or self.failure,
                          meta=self.meta | {"workers": workers},
                          steps=reduce(StepLog.joined, self._step_logs, StepLog()))
