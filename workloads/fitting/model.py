"""From a trace to a small workload that stands for it."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml

from workloads.errors import UsageError
from workloads.fitting.arrivals import fitted_arrivals
from workloads.fitting.mixture import fitted_components
from workloads.fitting.prefix_reuse import fitted_reuse
from workloads.tenants import Tenant
from workloads.traces.trace import Trace
from workloads.workload import Workload

SLO = ("tbt:p99<=100ms", "fluidity:p1>=0.9")
"""What a fitted workload promises until its owner says otherwise, as the presets do."""
_DECODE_DEADLINE_MS = 50.0
_RUN_SECONDS = 120.0
_WARMUP_SECONDS = 20.0   # whole slots of the arrivals: the measured part begins with one
_MODEL_LEN_STEP = 256
_WIDTH = 110


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a fitted file says about the trace: nothing that tells whose it is."""

    rows: int
    span_s: float | None
    fitted_on: date | None = None
    names_kept: bool = False
    """Whether tenants are called as the trace calls them."""

    def line(self) -> str:
        """One line for a person."""
        span = "" if self.span_s is None else f" over {self.span_s:.0f} s"
        when = "" if self.fitted_on is None else f" on {self.fitted_on.isoformat()}"
        return f"fitted{when} to a trace of {self.rows} requests{span}"


def fit_workload(trace: Trace, *, name: str, max_model_len: int | None = None, keep_names: bool = False
                 ) -> Workload:
    """A workload that asks as the requests of `trace` did: lengths, arrivals and what prompts share.

    Objectives, deadlines and the length of runs are those of the presets, as a trace does not say them.
    Without `max_model_len` it is what the longest request needs. Tenants become components that are
    called t1, t2 … by size, or by their names with `keep_names`; all come by one process. UsageError
    for a trace without rows.
    """
    if not len(trace):
        raise UsageError(f"{trace.name or 'the trace'} has no requests to fit a workload to")
    names = trace.tenant_names if keep_names else _anonymous(trace)
    components = fitted_components(trace, names, max_model_len=max_model_len)
    longest = max(c.longest() for c in components)
    rate, span_ns = trace.rate_rps, trace.span_ns
    of = TraceFacts(len(trace), None if span_ns is None else span_ns / 1e9)
    return Workload(
        name=name, description=f"traffic {of.line()}", components=tuple(components),
        max_model_len=max_model_len or -(-longest // _MODEL_LEN_STEP) * _MODEL_LEN_STEP, slo=SLO,
        decode_deadline_ms=_DECODE_DEADLINE_MS, run_seconds=_RUN_SECONDS, warmup_seconds=_WARMUP_SECONDS,
        arrivals=fitted_arrivals(trace.arrival_ns), draws="stratified", reuse=fitted_reuse(trace),
        tenants={c.tenant: Tenant() for c in components if c.tenant is not None},
        recorded_rate_rps=None if rate is None else float(f"{rate:.6g}"),
        recorded_span_s=None if not span_ns else round(span_ns / 1e9, 3) or None)


def workload_yaml(workload: Workload, facts: TraceFacts) -> str:
    """The file of a fitted workload: what `load_workload` reads, with comments for people."""
    rate = workload.recorded_rate_rps
    lines = [
        f"A workload {facts.line()}.",
        "It holds tables of quantiles and relative rates: no rows, times or texts of that trace"
        + (", but the names of its tenants." if facts.names_kept else ", and none of its names."),
        f"The trace had {rate:g} requests a second: the rate where none is given." if rate else
        "The trace does not say at which rate its requests came: that is yours to give.",
        "slo, the deadlines, run_seconds and warmup_seconds are defaults: set your own.",
    ]
    if workload.reuse is not None and facts.span_s is not None:
        lines.append("The first prompts of a run find nothing to repeat, as at the beginning of the trace.")
    content: str = yaml.safe_dump(_kind_first(workload.saved()), sort_keys=False, default_flow_style=None,
                                  width=_WIDTH, allow_unicode=True)
    return "".join(f"# {line}\n" for line in lines) + content


def _kind_first(value: Any) -> Any:
    """What a mapping is comes before what it holds."""
    if isinstance(value, dict):
        ordered = {key: value[key] for key in sorted(value, key=lambda key: key != "kind")}
        return {key: _kind_first(item) for key, item in ordered.items()}
    return [_kind_first(item) for item in value] if isinstance(value, list) else value


def _anonymous(trace: Trace) -> tuple[str, ...]:
    """t1, t2 …, as letters of the names and their order would tell whose they are."""
    sizes = [int((trace.tenant == number).sum()) for number in range(len(trace.tenant_names))]
    by_size = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    return tuple(f"t{by_size.index(number) + 1}" for number in range(len(sizes)))
