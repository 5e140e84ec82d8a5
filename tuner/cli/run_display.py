"""The live picture of one run: a line on a terminal, a line an event everywhere else."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from bench import Progress
from tuner.cli.live_console import LiveConsole

_LINE_EVERY_S = 10.0
"""Between a line and the next line of counts, where nothing can be redrawn."""


class RunDisplay(LiveConsole):
    """Shows phases as they begin, and the counts of the run that is playing.

    On a terminal it is redrawn when bench.play reports, at most four times a second.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next_line_s = _LINE_EVERY_S

    def say(self, text: str) -> None:
        """A line that stays."""
        self._next_line_s = self.elapsed_s + _LINE_EVERY_S
        self.line(text)

    def on_run(self, progress: Progress) -> None:
        """For bench.play."""
        text = describe(progress)
        if self.is_live:
            self.redraw(Text(f"[{self.clock}] {text}"))
        elif self.elapsed_s >= self._next_line_s:
            self.say(text)


@contextmanager
def said_after(seconds: float, say: Callable[[str], None], text: str) -> Iterator[Callable[[], None]]:
    """Say `text` once, if neither the block ends nor the function that it is given is called before."""
    timer = threading.Timer(seconds, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def describe(progress: Progress) -> str:
    """One line: how far the plan is, and how the engine keeps up."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return (f"{progress.sent} of {progress.planned} requests sent, {progress.in_flight} in flight, "
            f"{progress.finished} ended{failed}; {progress.tokens} tokens")
