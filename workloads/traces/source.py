"""Where the rows of a workload come from, when it replays a trace."""

from pathlib import Path

from pydantic import BaseModel


class TraceSource(BaseModel, frozen=True, extra="forbid"):
    """A trace file and how to read it."""

    path: Path
    format: str | None = None
    """One of the names of `tune workload formats`; left out, it is told from the file."""
