"""Whole answers wait here until the event loop has time to look into them."""

import asyncio
from collections import deque
from collections.abc import Callable

from bench.recorder import RunRecorder
from engine_adapter.answer import Answer, DecodedAnswer


class DecodeQueue:
    """Decodes answers one by one, between the loop's other work, and hands them to the recorder."""

    def __init__(self, recorder: RunRecorder,
                 on_decoded: Callable[[int, Answer, DecodedAnswer], None]) -> None:
        self._recorder, self._on_decoded = recorder, on_decoded
        self._waiting: deque[tuple[int, Answer, bool]] = deque()
        self._any = asyncio.Event()

    def put(self, row: int, answer: Answer, *, cut_short: bool, first: bool = False) -> None:
        """The answer to request `row` is over; `cut_short` when this client ended it. `first` goes before
        all others: somebody waits for what it holds."""
        add = self._waiting.appendleft if first else self._waiting.append
        add((row, answer, cut_short))
        self._any.set()

    async def work_forever(self) -> None:
        """Until cancelled."""
        while True:
            await self._any.wait()
            self._any.clear()
            while self._waiting:
                self._on_decoded(*self._decode_one())
                # One answer at a time: sockets and timers come first.
                await asyncio.sleep(0)

    def finish(self) -> None:
        """All that is left, at once."""
        while self._waiting:
            self._decode_one()

    def _decode_one(self) -> tuple[int, Answer, DecodedAnswer]:
        row, answer, cut_short = self._waiting.popleft()
        decoded = answer.decode()
        self._recorder.answered(row, answer.end_ns, decoded, cut_short=cut_short)
        return row, answer, decoded
