"""What a trace or a plan is like in figures, while it streams by."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.plan import Plan
from workloads.traces.arrival_counts import WINDOWS_S, ArrivalCounts
from workloads.traces.length_counts import LengthCounts
from workloads.traces.prefix_reuse import PrefixReuse
from workloads.traces.trace import Trace

Int64 = npt.NDArray[np.int64]

LONG_PROMPTS = (2048, 8192, 32768)
"""Prompts above these are counted: the token budget that vLLM's guide names for steady gaps, the one that it
names for throughput, and 32K, where tables of public traces begin to call prompts long."""
_MS = 1_000_000


class Population:
    """Rows that are described together: all of a trace, or those of one tenant."""

    def __init__(self) -> None:
        self.rows = 0
        self.input_len = LengthCounts()
        self.output_len = LengthCounts()
        self.uncached_len = LengthCounts()
        """Prompt tokens that no earlier row brings into a prefix cache."""
        self.reused_tokens = 0
        self.arrivals = ArrivalCounts()

    def add(self, piece: Trace, reused: Int64) -> None:
        """Count these rows too; `reused` are the tokens of each that PrefixReuse found."""
        self.rows += len(piece)
        self.input_len.add(piece.input_len)
        self.output_len.add(piece.output_len)
        self.uncached_len.add(piece.input_len - reused)
        self.reused_tokens += int(reused.sum())
        if piece.timed:
            self.arrivals.add(piece.arrival_ns)

    @property
    def timed(self) -> bool:
        """Whether all rows said when they came."""
        return self.rows > 0 and self.arrivals.n == self.rows

    def figures(self, span_ns: int | None, *, sharing_known: bool) -> dict[str, Any]:
        """`span_ns` is that of the whole trace, so that the rates of its tenants add up."""
        timed, prompt_tokens = self.timed, self.input_len.total
        answer_tokens = self.output_len.total
        return {
            "rows": self.rows,
            "rate_rps": self.rows / (span_ns / 1e9) if timed and span_ns else None,
            "arrival_cv": self.arrivals.gap_cv if timed else None,
            "same_time_share": self.arrivals.same_time_share if timed else None,
            "index_of_dispersion": {f"{w}s": self.arrivals.dispersion(w) if timed else None
                                    for w in WINDOWS_S},
            "index_of_dispersion_whole_windows": {
                f"{w}s": self.arrivals.dispersion(w, whole=True) if timed else None for w in WINDOWS_S},
            "input_len": self.input_len.figures(),
            "output_len": self.output_len.figures(),
            "uncached_input_len": self.uncached_len.figures() if sharing_known else None,
            "prefix_reuse": self.reused_tokens / prompt_tokens if sharing_known and prompt_tokens else None,
            "input_tokens": prompt_tokens,
            "output_tokens": answer_tokens,
            "input_per_output": prompt_tokens / answer_tokens if answer_tokens else None,
            "share_of_prompts_above": {
                str(limit): self.input_len.above(limit) / self.rows if self.rows else None
                for limit in LONG_PROMPTS},
        }


class TraceStatistics:
    """Figures of a trace whose pieces are added in order, in memory that is bounded by its distinct lengths
    and block keys, not by its rows."""

    def __init__(self, *, sharing_known: bool = False, parts: str = "tenants") -> None:
        """`sharing_known` says that rows without blocks, sessions and groups share nothing, where
        otherwise nobody knows; `parts` is what `Trace.tenant` numbers."""
        self.all = Population()
        self.by_tenant: dict[str, Population] = {}
        """Empty where there is one tenant only."""
        self.parts = parts
        self._sharing_known = sharing_known
        self._reuse = PrefixReuse()
        self._think_ms = LengthCounts()

    @property
    def sharing_known(self) -> bool:
        """Whether it is known what the prompts share."""
        return self._sharing_known or self._reuse.known

    def add(self, piece: Trace, *, uncounted: int = 0) -> None:
        """Count the rows of the next piece; its first `uncounted` rows only fill the prefix cache."""
        if uncounted:
            self._reuse.add(piece.take(np.arange(uncounted)))
            self._reuse.forget_counts()
            piece = piece.take(np.arange(uncounted, len(piece)))
        if not len(piece):
            return
        reused = self._reuse.add(piece)
        if len(piece.tenant_names) > 1:
            self._add_by_tenant(piece, reused)
        self.all.add(piece, reused)
        if piece.think_ns.any():
            self._think_ms.add(piece.think_ns[piece.think_ns > 0] // _MS)

    def _add_by_tenant(self, piece: Trace, reused: Int64) -> None:
        if not self.by_tenant and self.all.rows:   # so far all rows were those of the first tenant
            self.by_tenant[piece.tenant_names[0]] = copy.deepcopy(self.all)
        columns = replace(piece, blocks=None)
        for number in np.unique(piece.tenant).tolist():
            rows = np.flatnonzero(piece.tenant == number)
            population = self.by_tenant.setdefault(piece.tenant_names[number], Population())
            population.add(columns.take(rows), reused[rows])

    @property
    def span_ns(self) -> int | None:
        """From the first to the last arrival; None without times."""
        return self.all.arrivals.span_ns if self.all.timed else None

    @property
    def prompts(self) -> LengthCounts:
        """Prompt tokens that must be computed: without what a prefix cache holds, where that is known."""
        return self.all.uncached_len if self.sharing_known else self.all.input_len

    def as_dict(self, *, rejected: Mapping[str, int] | None = None, clipped: int = 0) -> dict[str, Any]:
        """All figures, for JSON; None where there is nothing to measure. `rejected` are rows that were left
        out, by reason."""
        rejected = rejected or {}
        span_ns, known = self.span_ns, self.sharing_known
        return {
            "rows": self.all.rows,
            "span_s": None if span_ns is None else span_ns / 1e9,
            **self.all.figures(span_ns, sharing_known=known),
            "prefix_reuse_detail": self._reuse_detail() if known else None,
            "sessions": self._sessions(),
            **({self.parts: {name: population.figures(span_ns, sharing_known=known)
                             for name, population in self.by_tenant.items()}}
               if len(self.by_tenant) > 1 else {}),
            "rejected": sum(rejected.values()),
            "rejected_by_reason": dict(rejected),
            "clipped": clipped,
        }

    def _reuse_detail(self) -> dict[str, Any]:
        reuse = self._reuse
        return {
            "reused_tokens": self.all.reused_tokens,
            "block_size": reuse.block_size,
            "blocks": reuse.num_blocks if reuse.block_size else None,
            "share_of_blocks": reuse.hit_blocks / reuse.num_blocks if reuse.num_blocks else None,
        }

    def _sessions(self) -> dict[str, Any] | None:
        count = self._reuse.num_sessions
        think_ms = self._think_ms.figures()
        return None if not count else {
            "count": count,
            "turns_mean": self._reuse.session_rows / count,
            "think_s": None if think_ms is None else {
                name: think_ms[name] / 1e3 for name in ("mean", "p50", "p90", "p99", "max")},
        }


def measured_trace(trace: Trace) -> TraceStatistics:
    """The statistics of a whole trace."""
    statistics = TraceStatistics()
    statistics.add(trace)
    return statistics


def measured_plan(plan: Plan) -> TraceStatistics:
    """The statistics of the rows of a plan after its warm-up, which only fills the prefix cache. Later turns
    count at their intended time, though they are sent when the turn before has ended, if that is later."""
    names = plan.component_tenants or plan.component_names
    of_component = [list(dict.fromkeys(names)).index(name) for name in names]
    statistics = TraceStatistics(sharing_known=True,
                                 parts="tenants" if plan.component_tenants else "components")
    statistics.add(Trace(
        arrival_ns=plan.intended_ns, input_len=plan.input_len, output_len=plan.output_len,
        tenant=np.array(of_component, dtype=np.int16)[plan.component],
        tenant_names=tuple(dict.fromkeys(names)), session=plan.session, turn=plan.turn,
        think_ns=plan.think_ns, prefix_group=plan.prefix_group, prefix_lens=plan.prefix_lens,
        blocks=plan.blocks), uncounted=plan.num_warmups)
    return statistics


def trace_statistics(trace: Trace) -> dict[str, Any]:
    """The figures of `tune workload show --json` of a whole trace."""
    return measured_trace(trace).as_dict(rejected=trace.rejected, clipped=trace.clipped)


def plan_statistics(plan: Plan) -> dict[str, Any]:
    """The same figures of a plan, warm-up left out."""
    return measured_plan(plan).as_dict()
