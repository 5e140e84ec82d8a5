"""Our scheduler, seen in the same way as vLLM's."""

from collections import deque

from engine_adapter.simulator.differential.case import Case, CaseRequest
from engine_adapter.simulator.differential.observed import Decision, Delivered, State
from engine_adapter.simulator.scheduler import Scheduler, Step
from engine_adapter.simulator.settings import SchedulerSettings


class OurSide:
    """`engine_adapter.simulator.scheduler.Scheduler`."""

    def __init__(self, case: Case) -> None:
        self._scheduler = Scheduler(case.settings, draft_acceptance=case.draft_acceptance, seed=case.seed)
        self._under_way: deque[Step] = deque()

    def add(self, row: int, request: CaseRequest) -> None:
        got = self._scheduler.add(request.input_len, request.output_len, arrival_ns=request.arrival_ns,
                                  priority=request.priority, prefix_keys=request.prefix_keys)
        if got != row:
            raise AssertionError(f"request {row} was given row {got}")

    def abort(self, row: int) -> None:
        self._scheduler.abort(row)

    def apply(self, settings: SchedulerSettings) -> None:
        self._scheduler.apply(settings)

    def reset_prefix_cache(self) -> None:
        self._scheduler.reset_prefix_cache()

    def schedule(self) -> Decision:
        step = self._scheduler.schedule()
        if len(step.rows):
            self._under_way.append(step)
        return Decision(
            rows=tuple(step.rows.tolist()), tokens=tuple(step.tokens.tolist()),
            prefixes=tuple(step.prefixes.tolist()), drafts=tuple(step.drafts.tolist()),
            preempted=tuple(step.preempted.tolist()), state=self._state())

    def update(self) -> Delivered:
        outputs = self._scheduler.update(self._under_way.popleft())
        return Delivered(
            rows=tuple(outputs.rows.tolist()), tokens=tuple(outputs.new_tokens.tolist()),
            finished=tuple(outputs.rows[outputs.finished].tolist()), state=self._state())

    def _state(self) -> State:
        scheduler = self._scheduler
        return State(running=tuple(scheduler.running), waiting=tuple(scheduler.waiting),
                     free_blocks=scheduler.num_free_blocks)
