"""The live picture of one run: a line on a terminal, a line an event everywhere else."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bench import Progress

_LINE_EVERY_S = 10.0
"""Between a line and the next line of counts, where nothing can be redrawn."""


class RunDisplay:
    """Shows phases as they begin, and the counts of the run that is playing.

    On a terminal it is redrawn only when bench.play reports, at most four times a second and by no
    thread of its own, so that it does not disturb the load.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = None
        if console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began = time.monotonic()
        self._next_line_s = _LINE_EVERY_S

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._next_line_s = time.monotonic() - self._began + _LINE_EVERY_S
        self._console.print(f"{self._elapsed()} {text}", markup=False, highlight=False, soft_wrap=True)

    def on_run(self, progress: Progress) -> None:
        """For bench.play."""
        text = describe(progress)
        if self._live is not None:
            self._live.update(Text(f"{self._elapsed()} {text}"), refresh=True)
        elif time.monotonic() - self._began >= self._next_line_s:
            self.say(text)

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"[{seconds // 60}:{seconds % 60:02d}]"


def describe(progress: Progress) -> str:
    """One line: how far the plan is, and how the engine keeps up."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (f"{progress.sent} of {progress.planned} requests sent, {progress.in_flight} in flight, "
            f"{progress.finished} ended{failed}; {progress.tokens} tokens")
