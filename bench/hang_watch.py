"""Ends requests that bring nothing, and notices an engine from which nobody gets anything."""

from asyncio import Task
from collections.abc import Awaitable, Callable, Mapping

from bench.recorder import RunRecorder
from engine_adapter.answer import Answer, FailureKind
from engine_adapter.clock import Clock
from engine_adapter.errors import EngineError, Hung

REFUSALS_OF_A_DEAD_SERVER = 3
"""Requests in a row that found no server, after which it is asked whether it is there at all."""
SHORTEST_WATCH_NS = 1_000_000
SILENCES_OF_A_HUNG_SERVER = 2
"""Request timeouts without a token from anybody, after which a server that only times out is left."""


class HangWatch:
    """Watches the requests in flight of one run.

    `requests` are their tasks by row, `answers` what they wait for where the engine answers whole, else
    None; both change as the run goes on. `engine_failed` is told of a hung engine, `ask_whether_dead`
    awaited after several requests found no server.
    """

    def __init__(
        self, clock: Clock, recorder: RunRecorder, timeout_ns: int, answers: Mapping[int, Answer] | None,
        requests: Mapping[int, Task[None]], engine_failed: Callable[[EngineError], None],
        ask_whether_dead: Callable[[], Awaitable[None]],
    ) -> None:
        self.hung: set[int] = set()
        """Rows that were ended for their silence."""
        self._clock, self._recorder, self._timeout_ns = clock, recorder, timeout_ns
        self._answers, self._requests = answers, requests
        self._engine_failed, self._ask_whether_dead = engine_failed, ask_whether_dead

    async def watch_forever(self) -> None:
        """Until cancelled."""
        patience_ns = self._timeout_ns * (1 if self._answers is None else SILENCES_OF_A_HUNG_SERVER)
        while True:
            now_ns = self._clock.now_ns()
            signs = self._signs_of_life()
            silent = [row for row, sign_ns in signs.items() if now_ns - sign_ns >= self._timeout_ns]
            # New arrivals are no sign of life: only tokens are.
            newest_ns = max(self._recorder.last_read_ns, self._recorder.busy_since_ns,
                            0 if self._answers is None else self._recorder.start_ns)
            if silent and now_ns - newest_ns >= patience_ns:
                self._engine_failed(Hung(
                    f"the engine gave no token for {patience_ns / 1e9:g} s to any of the {len(signs)} "
                    f"requests in flight; restart it, or allow more with a longer request timeout"
                ))
            for row in silent:
                self._end(row)
                del signs[row]
            if self._recorder.refused_in_a_row >= REFUSALS_OF_A_DEAD_SERVER:
                await self._ask_whether_dead()
            due_ns = min(signs.values(), default=now_ns) + self._timeout_ns
            # Not at each possible deadline: with many requests that would be a wake-up a token.
            await self._clock.sleep_until(max(due_ns, now_ns + self._timeout_ns // 50 + SHORTEST_WATCH_NS))

    def _end(self, row: int) -> None:
        self.hung.add(row)
        if self._answers is not None and row in self._answers:
            self._answers[row].give_up(FailureKind.TIMEOUT_READ,
                                       f"no token came for {self._timeout_ns / 1e9:g} s")
        else:
            self._requests[row].cancel()

    def _signs_of_life(self) -> dict[int, int]:
        """Of each request in flight that may still go on, the time of its last token, or of its start."""
        if self._answers is None:
            return {row: ns for row, ns in self._recorder.last_sign_ns.items() if row not in self.hung}
        signs = {row: answer.last_sign_ns() for row, answer in self._answers.items()}
        self._recorder.last_read_ns = max(
            [self._recorder.last_read_ns,
             *(ns for row, ns in signs.items() if ns > self._answers[row].sent_ns)])
        return signs
