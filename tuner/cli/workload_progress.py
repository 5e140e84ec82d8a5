"""How far the reading of a long trace has come, on standard error while somebody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from workloads.traces.reading import TraceReader


@contextmanager
def reading_shown(reader: TraceReader) -> Iterator[Callable[[], None]]:
    """What to call after each piece of the trace: it shows how many rows were read, where standard error is
    a terminal. The line is gone when the block is left, by Ctrl-C too."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    with console.status("reading") as status:
        yield lambda: status.update(f"{reader.read:,} rows read".replace(",", " "))
