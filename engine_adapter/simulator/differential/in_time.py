"""Whole loads in simulated time: `play`, shortcuts and all, against vLLM's scheduler in EngineCore's loop.

The loop is written here a second time, from EngineCore and from what `play` promises, in plain Python.
"""

import itertools
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from engine_adapter.simulator.differential.case import Case
from engine_adapter.simulator.differential.observed import Decision
from engine_adapter.simulator.differential.vllm_side import VllmSide
from engine_adapter.simulator.load import Played, SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.step_cost import StepCost
from workloads.errors import StallfreeError

COST = StepCost.linear(
    fixed_ns=3e6, token_ns=2e4, chunk_ns=1e5, chunk_pair_ns=3.0, chunk_kv_ns=40.0, decode_ns=2e4,
    decode_kv_ns=7.0, host_ns=4e5, host_request_ns=900.0, transfer_ns=5e4, arrival_ns=2e5,
    arrival_token_ns=100.0, delivery_ns=3e5)
"""Every term counts."""

STEP_COLUMNS = ("start_ns", "end_ns", "num_tokens", "num_prefill_tokens", "num_decodes", "attention_work",
                "kv_blocks_used", "num_running", "num_waiting", "num_preempted")
"""Of the step log, for `TimedVllm.steps`."""


@dataclass(frozen=True, slots=True)
class TimedComparison:
    """What was compared, counted on vLLM's side."""

    steps: int
    reads: int
    difference: str | None
    """The first step, or else the first request, that was not the same."""


def compare_in_time(case: Case, *, turn_ns: int, cost: StepCost = COST) -> TimedComparison:
    """`play` the requests of `case`, each sent at its turn, and let vLLM's scheduler serve the same;
    compare every step of the log and every read of every request, in nanoseconds. Aborts, live knobs
    and resets are left out: `play` has none."""
    vllm = TimedVllm(case, turn_ns, cost)
    try:
        difference = _difference(vllm, play(vllm.load, case.settings, cost))
    except StallfreeError as error:
        difference = f"vLLM goes on, ours: {error}"
    return TimedComparison(
        steps=len(vllm.steps), reads=sum(map(len, vllm.reads)), difference=difference)


def _load_of(case: Case, turn_ns: int) -> SimulatedLoad:
    requests = case.requests
    keys = [request.prefix_keys for request in requests]
    return SimulatedLoad(
        arrival_ns=np.array([request.turn * turn_ns for request in requests]),
        input_len=np.array([request.input_len for request in requests]),
        output_len=np.array([request.output_len for request in requests]),
        priority=np.array([request.priority for request in requests]),
        prefix_keys=np.array([key for some in keys for key in some], dtype=np.int64),
        prefix_offset=np.cumsum([0, *map(len, keys)]),
        draft_acceptance=case.draft_acceptance, seed=case.seed)


class TimedVllm:
    """What the requests of a load get from vLLM's scheduler when its steps take what a StepCost says."""

    def __init__(self, case: Case, turn_ns: int, cost: StepCost) -> None:
        self.load, self._case, self._cost = _load_of(case, turn_ns), case, cost
        self._side = VllmSide(replace(case, changes=(), aborts=(), resets=()))
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
        return int(self.load.arrival_ns[row]) + _rounded(delay)

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
            if self._queue:
                self._await_oldest()
            elif coming:
                self._now = max(self._now, self._visible_ns(coming[0]))
            else:
                return

    def _decide(self) -> bool:
        """Whether EngineCore would decide another step before it waits for one."""
        side, cost = self._side, self._cost
        decision = side.schedule()
        self._preempted += len(decision.preempted)
        if not decision.rows:
            if decision.preempted and not any(self._queue):
                self._now += _rounded(cost.host_ns)
            self._queue.append(None)
            return side.has_requests()
        start = self._now
        device = self._device_ns(decision)
        self._now += _rounded(cost.between_steps_ns(len(decision.rows)))
        end = self._now
        for stage, free in enumerate(self._stage_free):
            if stage:
                end += _rounded(cost.transfer_ns)
            end = self._stage_free[stage] = max(end, free) + _rounded(device / len(self._stage_free))
        self._queue.append([start, end, *self._carried(decision)])
        self._preempted = 0
        return True

    def _device_ns(self, decision: Decision) -> float:
        """Requests that verify drafts cost as decodes; all else that is more than one token, as chunks."""
        chunks, contexts = [], []
        for row, tokens, prefix, drafts in zip(
                decision.rows, decision.tokens, decision.prefixes, decision.drafts, strict=True):
            if not drafts and self._is_chunk(row, tokens, prefix):
                chunks.append((tokens, prefix))
            else:
                contexts.append(prefix + tokens)
        return self._cost.step_ns(sum(decision.tokens), chunks, contexts)

    def _is_chunk(self, row: int, tokens: int, prefix: int) -> bool:
        return tokens > 1 or prefix < self._case.requests[row].input_len

    def _carried(self, decision: Decision) -> list[int]:
        """What the step log says of a step, its times left out."""
        shares = list(zip(decision.rows, decision.tokens, decision.prefixes, strict=True))
        chunks = [tokens for row, tokens, prefix in shares if self._is_chunk(row, tokens, prefix)]
        work_twice = sum(tokens * (2 * prefix + tokens) for _, tokens, prefix in shares)
        used = self._case.settings.num_kv_blocks - decision.state.free_blocks
        return [sum(decision.tokens), sum(chunks), len(shares) - len(chunks), work_twice // 2, used,
                len(decision.state.running), len(decision.state.waiting), self._preempted]

    def _await_oldest(self) -> None:
        step = self._queue.popleft()
        if step is None:
            return
        self._now = step[1] = max(self._now, step[1])
        delivered = self._side.update()
        self.steps.append(step)
        for row, tokens in zip(delivered.rows, delivered.tokens, strict=True):
            self.reads[row].append((self._now + _rounded(self._cost.delivery_ns), tokens))


def _difference(vllm: TimedVllm, played: Played) -> str | None:
    ours = np.stack([played.steps.steps[name] for name in STEP_COLUMNS], axis=1).tolist()
    for number, (theirs, mine) in enumerate(itertools.zip_longest(vllm.steps, ours)):
        if theirs != mine:
            return f"step {number} ({', '.join(STEP_COLUMNS)}): vLLM {theirs}, ours {mine}"
    reads = list(zip(played.read_ns.tolist(), played.read_tokens.tolist(), strict=True))
    for row, (start, stop) in enumerate(itertools.pairwise(played.reads_offset.tolist())):
        if reads[start:stop] != vllm.reads[row]:
            return f"reads of request {row}: vLLM {vllm.reads[row]}, ours {reads[start:stop]}"
    return None


def _rounded(nanoseconds: float) -> int:
    return int(nanoseconds + 0.5)
