"""From a trace to a plan: its rows as they came, or faster."""

import math
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.prompt_parts import Origin, PromptBlocks, mixed64
from workloads.schedule import MAX_REQUESTS
from workloads.traces.shaping import first_of_session
from workloads.traces.trace import Trace, component_names

Int64 = npt.NDArray[np.int64]


def trace_plan(
    trace: Trace, *, seed: int, rate_rps: float | None = None, num_prompts: int | None = None,
    duration_s: float | None = None, num_warmups: int | None = None, warmup_s: float | None = None,
    tenants: bool = False, begin_anew: bool = False,
) -> Plan:
    """The rows of `trace` in order, at their times: the warm-up first, which is simply the first of them.

    Without a rate they come as recorded; with one, time is stretched so that the measured rows come so
    often on average; infinity sends all at once. `num_prompts` or `duration_s` after
    the warm-up cut the end off. Seed 0 begins with the first row; any other seed begins with another
    one, and the rows before it come after the last. More rows than the trace has are refused, or, with
    `begin_anew`, taken from its beginning again, with prompts that share nothing with those of the first
    time.
    Components are the trace's tenants, and with `tenants` the plan's too.

    UsageError for a trace without times (see `with_arrivals`) and for what it cannot give.
    """
    if not trace.timed:
        raise UsageError(f"{trace.name or 'the trace'} does not say when its requests came: give "
                         f"--request-rate")
    if num_prompts is not None and duration_s is not None:
        raise UsageError("give the measured part as either a number of requests or a duration")
    start = 0 if seed == 0 else int(stream(seed, "start").integers(len(trace)))
    clock = _Clock(trace, start)
    warmups, wanted = _numbers(clock, rate_rps, num_prompts=num_prompts, duration_s=duration_s,
                               num_warmups=num_warmups, warmup_s=warmup_s)
    _check_number(trace, warmups, wanted, begin_anew=begin_anew)
    recorded = clock.rate(warmups, wanted)
    if recorded is None and rate_rps is not None and not math.isinf(rate_rps):
        raise UsageError(f"{wanted - warmups} requests of {trace.name or 'the trace'} come at one moment, "
                         f"which no rate can stretch: take more of them, spread ticks, or give the rate inf")
    scale = 0.0 if recorded is None else 1.0   # as recorded
    if rate_rps is not None:
        scale = 0.0 if math.isinf(rate_rps) or recorded is None else recorded / rate_rps
    elif recorded is None:
        rate_rps = math.inf
    else:
        rate_rps = recorded if duration_s is None else (wanted - warmups) / duration_s
    places = np.arange(start, start + wanted, dtype=np.int64)
    rounds, rows = np.divmod(places, len(trace))
    offset_ns = clock.at_ns(places) - trace.arrival_ns[start]
    again = (places - start) // len(trace)
    sessions = int(trace.session.max(initial=-1)) + 1
    groups = len(trace.prefix_lens)
    return Plan(
        intended_ns=np.rint(offset_ns * scale).astype(np.int64),
        input_len=trace.input_len[rows], output_len=trace.output_len[rows], component=trace.tenant[rows],
        session=np.where(trace.session[rows] >= 0, trace.session[rows] + rounds * sessions, -1),
        turn=trace.turn[rows], think_ns=np.rint(trace.think_ns[rows] * scale).astype(np.int64),
        prefix_group=np.where(trace.prefix_group[rows] >= 0, trace.prefix_group[rows] + again * groups, -1),
        prefix_lens=np.tile(trace.prefix_lens, int(again.max(initial=0)) + 1),
        blocks=None if trace.blocks is None else _anew(trace.blocks.take(rows), again),
        num_warmups=warmups, seed=seed, rate_rps=rate_rps,
        component_names=component_names(trace),
        component_tenants=trace.tenant_names if tenants else ())


def with_arrivals(trace: Trace, arrivals_ns: Callable[[int, float], Int64], rate_rps: float) -> Trace:
    """A trace that has no times, with those that `arrivals_ns` gives for a number and a rate. The turns of a
    conversation come with its first, and then wait for their answers; `rate_rps` counts them all."""
    first = np.unique(first_of_session(trace.session), return_inverse=True)[1]
    units = int(first.max()) + 1
    arrival_ns = arrivals_ns(units, rate_rps * units / len(trace))[first]
    order = np.argsort(arrival_ns, kind="stable")
    return replace(trace.take(order), arrival_ns=arrival_ns[order] - arrival_ns[order[0]])


def recorded_rate(trace: Trace) -> float | None:
    """Requests per second over the gaps between them; None where all come at once, or where there is one."""
    return (len(trace) - 1) * 1e9 / trace.span_ns if trace.span_ns else None


def stream(seed: int, name: str) -> np.random.Generator:
    """An independent generator for each name, the same for the same seed and name."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()),)))


class _Clock:
    """The times of a trace that is played round after round, from row `start` on."""

    def __init__(self, trace: Trace, start: int) -> None:
        self.trace, self.start = trace, start
        recorded = recorded_rate(trace)
        self.period_ns = round(1e9 * len(trace) / recorded) if recorded else 0

    def at_ns(self, places: Int64) -> Int64:
        """When the rows at these places come; places go on counting from round to round."""
        rounds, rows = np.divmod(places, len(self.trace))
        times: Int64 = self.trace.arrival_ns[rows] + rounds * self.period_ns
        return times

    def rate(self, begin: int, end: int) -> float | None:
        """Requests per second of the rows number `begin` to `end - 1` from `start` on, over the gaps between
        them; of a single moment up to the row after it; None where that comes then too."""
        places = self.start + np.array([begin, end - 1, end])
        first, last, after = map(int, self.at_ns(places))
        if last > first:
            return (end - begin - 1) * 1e9 / (last - first)
        return (end - begin) * 1e9 / (after - first) if after > first else None

    def before(self, seconds: float, *, after_rows: int = 0) -> int:
        """How many rows from `start` on come within so many seconds, or within so many after the last of
        `after_rows`."""
        if not self.period_ns:
            return 0
        begin_ns = int(self.at_ns(np.array([self.start + max(0, after_rows - 1)]))[0])
        end_ns = seconds * 1e9 + begin_ns
        if end_ns > 2.0**62:
            raise UsageError(f"{seconds:g} s of {self.trace.name or 'the trace'} are more than a plan holds")
        rounds, rest = divmod(end_ns, self.period_ns)
        rows = int(np.searchsorted(self.trace.arrival_ns, rest))
        return int(rounds) * len(self.trace) + rows - self.start


def _numbers(clock: _Clock, rate_rps: float | None, *, num_prompts: int | None, duration_s: float | None,
             num_warmups: int | None, warmup_s: float | None) -> tuple[int, int]:
    """How many rows are warm-up, and how many are sent in all. At a rate of one's own that is what it makes
    of the seconds; else what the trace has in them."""
    if rate_rps is None:
        warmups = clock.before(warmup_s) if warmup_s else num_warmups or 0
    else:
        warmups = round(rate_rps * warmup_s) if warmup_s else num_warmups or 0
    if num_prompts is not None:
        return warmups, warmups + num_prompts
    if duration_s is None:
        return warmups, len(clock.trace)
    if rate_rps is not None:
        return warmups, warmups + round(rate_rps * duration_s)
    if warmup_s:
        return warmups, clock.before(warmup_s + duration_s)
    return warmups, clock.before(duration_s, after_rows=warmups)


def _check_number(trace: Trace, warmups: int, wanted: int, *, begin_anew: bool) -> None:
    if wanted > len(trace) and not begin_anew:
        raise UsageError(
            f"{trace.name or 'the trace'} has {len(trace)} requests, and this run would take {wanted}: ask "
            f"for fewer, for less time, or for a lower rate")
    if wanted > MAX_REQUESTS:
        raise UsageError(f"a plan may hold at most {MAX_REQUESTS} requests; lower the rate or the duration")
    if wanted <= warmups:
        raise UsageError(f"no request falls into the measured part after {warmups} of warm-up: ask for more "
                         f"requests or time, or for less warm-up")


def _anew(blocks: PromptBlocks, again: Int64) -> PromptBlocks:
    """The blocks of rows that come for the first, second, ... time, with keys of their own each time."""
    if not again.any():
        return blocks
    time = np.repeat(again, np.diff(blocks.offset))
    keys = blocks.keys.copy()
    for number in range(1, int(again.max()) + 1):
        keys[time == number] = mixed64(blocks.keys[time == number], Origin.ROUND, number)
    return PromptBlocks(blocks.size, keys, blocks.offset)
