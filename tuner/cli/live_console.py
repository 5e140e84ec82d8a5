"""What the live displays share: a region that is redrawn on a terminal, stamped lines everywhere else."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live


class LiveConsole:
    """A context manager. The region is redrawn only when a display asks for it, by no thread of its
    own, so that it does not disturb the load."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = None
        if console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    @property
    def is_live(self) -> bool:
        """Whether there is a region to redraw."""
        return self._live is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the display was made."""
        return time.monotonic() - self._began

    @property
    def clock(self) -> str:
        """The same as minutes and seconds."""
        return f"{int(self.elapsed_s) // 60}:{int(self.elapsed_s) % 60:02d}"

    def redraw(self, content: RenderableType) -> None:
        """Show `content` in the region."""
        if self._live is not None:
            self._live.update(content, refresh=True)

    def line(self, text: str) -> None:
        """A line that stays, with the time before it."""
        self._console.print(f"[{self.clock}] {text}", markup=False, highlight=False, soft_wrap=True)
