"""Where the rows of a workload come from, when it replays a trace."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, Field

from workloads.errors import UsageError
from workloads.traces.options import ReadOptions, TimeUnit, window_seconds
from workloads.traces.trace import Trace

Share = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TraceSource(BaseModel, frozen=True, extra="forbid"):
    """A trace file, how to read it, and what to make of it; in this order.

    A relative path starts at the folder of the workload's file.
    """

    path: Path
    format: str | None = None
    """One of the names of `tune workload formats`; left out, it is told from the file."""
    time_unit: TimeUnit | None = None
    """See workloads.traces.options.ReadOptions, here and for the next ones."""
    block_size: Annotated[int, Field(ge=1)] | None = None
    lengths: Literal["full", "new"] | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    tokenizer: str | None = None
    bad_rows: Literal["refuse", "skip"] = "refuse"
    window: str | None = None
    """FROM..TO in seconds, or with s, m, h or d."""
    rows: Annotated[int, Field(ge=1)] | None = None
    spread_ticks: bool = False
    """Spread requests of one timestamp over the time until the next."""
    keep: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Take this share of the requests, as bursty as all of them."""
    scale_lengths: Share | Literal["fit"] = 1.0
    """Multiply every length, blocks included; `fit`: by so much that the longest request fits
    max_model_len."""
    too_long: Literal["reject", "clip"] = "reject"
    """What happens to requests that are, after this, above max_model_len."""
    overlay: Annotated[int, Field(ge=1)] = 1
    """Lay so many successive parts over one another: so many times the rate."""
    time_scale: Share = 1.0
    """Multiply every time: 0.5 is twice the rate."""
    rate_rps: Share | None = None
    """Stretch time to this mean rate; for tenants that are merged. A trace without times gets Poisson
    arrivals of it."""
    tenant: str | None = None
    """Whose requests these all are; left out, whose the trace says."""
    seed: int = 0
    """Of what is drawn here: `keep`, `spread_ticks`, and formats that are distributions."""

    def at(self, folder: Path) -> Self:
        """The same with a path that holds wherever it is read again."""
        return self.model_copy(update={"path": (folder / self.path).absolute()})

    def load(self, max_model_len: int | None) -> Trace:
        """The trace, shaped; UsageError where it cannot be read or has no row left."""
        from workloads.traces.reading import read_trace
        from workloads.traces.shaping import fit_lengths

        options = ReadOptions(
            # Long rows are judged after they are scaled.
            max_model_len=None, bad_rows=self.bad_rows, time_unit=self.time_unit, block_size=self.block_size,
            lengths=self.lengths, columns=self.columns, tokenizer=self.tokenizer, rows=self.rows,
            window_s=None if self.window is None else window_seconds(self.window), seed=self.seed)
        trace = read_trace(self.path, format=self.format, options=options)
        fitting = fit_lengths(self._shaped(trace, max_model_len), max_model_len, self.too_long)
        return fitting.of_used_tenants()

    def _shaped(self, trace: Trace, max_model_len: int | None) -> Trace:
        from dataclasses import replace

        from workloads.traces import shaping
        from workloads.traces.replay import stream

        if self.spread_ticks:
            trace = shaping.spread_ticks(trace, stream(self.seed, "ticks"))
        if self.keep < 1:
            trace = shaping.subsample(trace, self.keep, stream(self.seed, "keep"))
        factor = self.scale_lengths
        if factor == "fit":
            if max_model_len is None:
                raise UsageError("lengths can be scaled to fit only where max_model_len is given")
            factor = shaping.scale_to_fit(trace, max_model_len)
        if factor != 1:
            trace = shaping.scale_lengths(trace, factor)
        if self.overlay > 1:
            trace = shaping.overlay(trace, self.overlay)
        if self.time_scale != 1:
            trace = shaping.scale_time(trace, self.time_scale)
        if self.rate_rps is not None:
            trace = self._at_rate(trace, self.rate_rps)
        if self.tenant is not None:
            trace = replace(trace, tenant=np.zeros(len(trace), np.int16), tenant_names=(self.tenant,))
        return trace


    def _at_rate(self, trace: Trace, rate_rps: float) -> Trace:
        from workloads.arrivals import arrival_offsets_ns
        from workloads.traces import shaping
        from workloads.traces.replay import recorded_rate, stream, with_arrivals

        if not trace.timed:
            return with_arrivals(trace, lambda n, rate: arrival_offsets_ns(
                n, rate, 1.0, stream(self.seed, "arrivals")), rate_rps)
        if (recorded := recorded_rate(trace)) is None:
            raise UsageError(f"the requests of {trace.name} come all at once: no rate_rps can stretch that")
        return shaping.scale_time(trace, recorded / rate_rps)


def load_sources(sources: Sequence[TraceSource], max_model_len: int | None) -> Trace:
    """The traces of all sources as one."""
    from workloads.traces.shaping import merge

    return merge([source.load(max_model_len) for source in sources])


def trace_digest(trace: Trace) -> str:
    """SHA-256 of what a trace asks for, 64 hex digits; its name and what was left out do not count."""
    digest = hashlib.sha256(repr(trace.tenant_names).encode())
    for name in ("arrival_ns", "input_len", "output_len", "tenant", "session", "turn", "think_ns",
                 "prefix_group", "prefix_lens"):
        digest.update(name.encode() + np.ascontiguousarray(getattr(trace, name)).tobytes())
    if trace.blocks is not None:
        digest.update(b"blocks %d" % trace.blocks.size)
        digest.update(trace.blocks.keys.tobytes() + trace.blocks.offset.tobytes())
    return digest.hexdigest()
