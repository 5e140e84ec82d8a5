"""Traces: recorded requests, read from the formats in which they are published and logged."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.traces.options import ReadOptions
    from workloads.traces.reading import TraceReader, open_trace, read_trace
    from workloads.traces.trace import Trace

__all__ = ["ReadOptions", "Trace", "TraceReader", "open_trace", "read_trace"]

_HOMES = {"ReadOptions": "options", "Trace": "trace", "TraceReader": "reading", "open_trace": "reading",
          "read_trace": "reading"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
