"""The figures of a run: every metric of the catalog, computed when asked for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bench.catalog import metric_and_stat
from bench.fluidity import (
    RATE_SHARE,
    FluidityOfRequests,
    fluid_token_rate,
    fluidity_of_requests,
    scattered,
)
from bench.goodput import GoodputRules, GoodRequests, judge_by_rules
from bench.prefill_curve import Deadlines
from bench.run import NEVER, Bool, Float64, Int64, Run
from bench.samples import Samples, needed_for
from bench.select import select_rows
from bench.summary_json import summary_dict
from bench.sustainability import scheduling_delays_ns
from bench.tenants import Promise, promise_to, promises, rows_of
from bench.token_times import TokenArrivals
from bench.validity import achieved_rate


@dataclass(frozen=True, slots=True)
class Figure:
    """One value with the number of samples behind it.

    `value` is in the metric's unit (times in ns), or None; then `why_missing` says why.
    """

    value: float | None
    n: int
    why_missing: str = ""


class Summary:
    """Figures of one run; made by `summarise`. Warm-up is left out everywhere.

    Latencies, gaps and fluidity are of successful requests; error_rate and goodput count failed ones.
    """

    def __init__(self, run: Run, deadlines: Deadlines | None, goodput: GoodputRules | None) -> None:
        self.run = run
        self.deadlines = deadlines
        self.goodput = goodput
        self._samples: dict[str, Samples] = {}
        self._tenants: dict[str, Summary] = {}
        self._told: dict[str, Any] | None = None

    def figure(self, metric: str, stat: str | None = None) -> Figure:
        """The figure that the catalog knows under these names; UsageError for names it does not know.

        A percentile without a sample beyond it is refused: its value is None (see samples.needed_for).
        """
        known, stat = metric_and_stat(metric, stat)
        if why := self._not_measurable(known.name):
            return Figure(None, 0, why)
        special = self._specials.get((known.name, stat))
        if special is not None:
            return special()
        assert stat is not None, f"{known.name} has no statistic and no rule of its own"
        samples = self._samples_of(known.name)
        value, why = samples.statistic(stat)
        return Figure(value, len(samples), why)

    def tenant(self, name: str) -> "Summary":
        """The figures of one tenant's requests alone, by its own promises; UsageError for an unknown one."""
        if name not in self._tenants:
            promise = promise_to(self.run, name, self.deadlines, self.goodput)
            theirs = select_rows(self.run, rows_of(self.run, name))
            # Within itself it is one class of users, whose promises are all there are.
            alone = replace(theirs, meta={key: value for key, value in theirs.meta.items()
                                          if key not in ("tenants", "component_tenants")})
            self._tenants[name] = Summary(alone, promise.deadlines, promise.goodput)
        return self._tenants[name]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the keys of `vllm bench serve` unchanged, then ours; None where there is nothing."""
        if self._told is None:
            self._told = summary_dict(self)
        return dict(self._told)

    def let_go(self) -> None:
        """Keep the figures, drop what they were made of, which is as large as the run; asked for again it is
        made again."""
        self._samples.clear()
        self._tenants.clear()
        for cached in ("arrivals", "fluidity", "_tpot", "_kept", "_per_request", "_specials", "_promises"):
            self.__dict__.pop(cached, None)

    @property
    def duration_s(self) -> float | None:
        """Seconds from the last warm-up arrival (without one, the start of the schedule) to the end of
        the last measured request, the drain after the last arrival included; None if none ended."""
        run = self.run
        ends = run.end_ns[run.measured & (run.end_ns != NEVER)]
        if not len(ends):
            return None
        begin = run.intended_ns[run.warmup].max(initial=run.start_ns)
        # A late turn of the warm-up may be due after the first measured request.
        begin = max(run.start_ns, min(begin, run.intended_ns[run.measured].min(initial=begin)))
        seconds = float(ends.max() - begin) / 1e9
        return seconds if seconds > 0 else None

    @cached_property
    def arrivals(self) -> TokenArrivals:
        """Reads of the successful requests."""
        return TokenArrivals.from_run(self.run, self.run.ok)

    @cached_property
    def fluidity(self) -> FluidityOfRequests | None:
        """Deadlines kept and missed by each successful request, its tenant's; None without deadlines."""
        if self.deadlines is None:
            return None
        found = []
        for rows, deadlines in self._deadlines_of_rows():
            arrivals = self.arrivals if rows.all() else TokenArrivals.from_run(self.run, self.run.ok & rows)
            due_ns = deadlines.prefill_deadline_ns(self.run.input_len[self.run.ok & rows])
            found.append((rows[self.run.ok], fluidity_of_requests(arrivals, due_ns, deadlines.decode_ns)))
        return found[0][1] if len(found) == 1 else scattered(found)

    def _deadlines_of_rows(self) -> list[tuple[Bool, Deadlines]]:
        return [(rows, promise.deadlines) for rows, promise in self._promises
                if promise.deadlines is not None]

    @cached_property
    def _promises(self) -> list[tuple[Bool, Promise]]:
        return promises(self.run, self.deadlines, self.goodput)

    @property
    def undetermined(self) -> int | None:
        """Requests that goodput counts neither as good nor as bad; None without rules."""
        return None if self._kept is None else int(self._kept.undetermined.sum())

    def _not_measurable(self, metric: str) -> str:
        if metric in ("fluidity", "stall", "stalled_requests") and self.deadlines is None:
            return "no prefill-deadline curve was given"
        if metric == "goodput" and not any(promise.goodput for _, promise in self._promises):
            return "no goodput rules were given"
        if metric == "goodput" and self._kept is None:
            return "its rules need a prefill-deadline curve, and none was given"
        if metric == "scheduling_delay" and (lost := self.run.steps.lost):
            return f"{lost} engine steps were overwritten before they were read"
        return ""

    @cached_property
    def _specials(self) -> dict[tuple[str, str | None], Callable[[], Figure]]:
        # Everything that is not a statistic of a set of samples.
        return {
            ("fluidity", "pooled"): lambda: self._over_requests(lambda f: f.pooled()),
            ("stall", "count"): lambda: self._over_requests(lambda f: int(f.late_tokens.sum())),
            ("stall", "total"): lambda: self._over_requests(lambda f: int(f.late_ns.sum())),
            ("stalled_requests", None): lambda: self._over_requests(
                lambda f: float((f.late_tokens > 0).mean())),
            ("fluid_token_rate", None): self._fluid_token_rate,
            ("goodput", "attainment"): self._attainment,
            ("goodput", "rate"): lambda: self._per_second(self._good.sum(), len(self._good)),
            ("goodput", "token_rate"): lambda: self._per_second(
                self._tokens_of_ok[self._good].sum(), len(self._good)),
            ("error_rate", None): self._error_rate,
            ("request_throughput", None): lambda: self._per_second(self.run.ok.sum(), int(self.run.ok.sum())),
            ("output_throughput", None): lambda: self._per_second(
                self._tokens_of_ok.sum(), len(self._tokens_of_ok)),
            ("total_token_throughput", None): lambda: self._per_second(
                self._tokens_of_ok.sum() + self.run.input_len[self.run.ok].sum(), len(self._tokens_of_ok)),
            ("achieved_rate", None): self._achieved_rate,
        }

    @cached_property
    def _per_request(self) -> dict[str, Callable[[], Int64 | Float64]]:
        run, ok = self.run, self.run.ok
        return {
            "ttft": lambda: (run.first_token_ns() - run.sent_ns)[ok],
            "ttft_from_intended": lambda: (run.first_token_ns() - run.intended_ns)[ok],
            "e2e": lambda: (run.last_token_ns() - run.sent_ns)[ok],
            "e2e_from_intended": lambda: (run.last_token_ns() - run.intended_ns)[ok],
            "tbt": lambda: self.arrivals.token_gaps_ns(),
            "itl": lambda: self.arrivals.message_gaps_ns(),
            "tpot": lambda: _without_nan(self._tpot),
            "scheduling_delay": lambda: scheduling_delays_ns(run, ok),
            "schedule_lag": lambda: (run.sent_ns - run.intended_ns)[run.measured & (run.sent_ns != NEVER)],
            "fluidity": lambda: self._found.index(),
            "stall": lambda: self._found.longest_ns,
        }

    def _samples_of(self, metric: str) -> Samples:
        if metric == "tbt" and not self.arrivals.tokens_with_others():
            return self._samples_of("itl")  # the same gaps, sorted already
        if metric not in self._samples:
            self._samples[metric] = Samples(self._per_request[metric](), own=metric != "stall")
        return self._samples[metric]

    @property
    def _found(self) -> FluidityOfRequests:
        assert self.fluidity is not None, "asked for only with deadlines"
        return self.fluidity

    @property
    def _tokens_of_ok(self) -> Int64:
        return self.run.num_tokens[self.run.ok].astype(np.int64)

    @cached_property
    def _tpot(self) -> Float64:
        """Of each successful request, NaN below two tokens."""
        run, ok = self.run, self.run.ok
        steps = self._tokens_of_ok - 1
        spread = (run.last_token_ns() - run.first_token_ns())[ok]
        tpot: Float64 = np.divide(spread, steps, out=np.full(len(steps), np.nan), where=steps > 0)
        return tpot

    @cached_property
    def _kept(self) -> GoodRequests | None:
        given = [(rows[self.run.ok], promise.goodput) for rows, promise in self._promises]
        used = [rules for _, rules in given if rules is not None]
        if not used or (self.deadlines is None and any(rules.needs_deadlines for rules in used)):
            return None
        longest = self.arrivals.longest_message_gap_ns()
        columns = {
            "ttft": self._per_request["ttft"], "e2e": self._per_request["e2e"], "tpot": lambda: self._tpot,
            # Tokens of one read have gaps of 0 between them; messages have none.
            "tbt": lambda: np.where(self._tokens_of_ok > 1, np.nan_to_num(longest), np.nan),
            "itl": lambda: longest,
            "stall": self._per_request["stall"], "fluidity": self._per_request["fluidity"],
        }
        names = {name for rules in used for name in rules.names}
        values = {name: columns[name]().astype(np.float64) for name in names}
        return judge_by_rules(given, values)

    @property
    def _good(self) -> Bool:
        assert self._kept is not None, "asked for only with rules"
        return self._kept.good

    def _over_requests(self, value: Callable[[FluidityOfRequests], float | None]) -> Figure:
        n = len(self.arrivals)
        return Figure(value(self._found), n) if n else Figure(None, 0, "no samples")

    def _fluid_token_rate(self) -> Figure:
        n, needed = int((self._tokens_of_ok >= 2).sum()), needed_for(RATE_SHARE)
        if n < needed:
            return Figure(None, n, f"it needs at least {needed} answers of two tokens or more, there are {n}")
        rate = fluid_token_rate(self.arrivals)
        return Figure(rate, n, "" if rate else "the answers came in one piece: their speed is undefined")

    def _attainment(self) -> Figure:
        n = int(self.run.attempted.sum()) - (self.undetermined or 0)
        return Figure(int(self._good.sum()) / n, n) if n else Figure(None, 0, "no samples")

    def _error_rate(self) -> Figure:
        n = int(self.run.attempted.sum())
        return Figure(1 - int(self.run.ok.sum()) / n, n) if n else Figure(None, 0, "no samples")

    def _achieved_rate(self) -> Figure:
        n = int((self.run.measured & (self.run.sent_ns != NEVER)).sum())
        rate = achieved_rate(self.run)
        return Figure(rate, n, "" if rate is not None else "fewer than two sends at different planned times")

    def _per_second(self, amount: Any, n: int) -> Figure:
        if self.duration_s is None:
            return Figure(None, n, "no measured request ended")
        return Figure(float(amount) / self.duration_s, n)


def summarise(
    run: Run, *, deadlines: Deadlines | None = None, goodput: GoodputRules | None = None
) -> Summary:
    """The figures of `run`, computed when asked for: fluidity and stalls against `deadlines`, goodput by
    its rules."""
    return Summary(run, deadlines, goodput)


def _without_nan(values: Float64) -> Float64:
    present: Float64 = values[~np.isnan(values)]
    return present
