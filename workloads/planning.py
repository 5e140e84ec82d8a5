"""From a workload to a plan: drawn from one seed, before the run."""

import math
import zlib
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from workloads.arrival_processes import (
    AllAtOnce,
    ArrivalProcess,
    gamma_of,
    process_offsets_ns,
    unit_arrivals_for_stages,
)
from workloads.conversation_planning import conversation_plan, has_conversations, prefixes, uniforms_of
from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.reuse import reused_blocks
from workloads.schedule import MAX_REQUESTS, scheduled, staged
from workloads.stages import RateProfile
from workloads.stratified import stratified
from workloads.traces.replay import trace_plan, with_arrivals
from workloads.traces.shaping import all_at_once
from workloads.traces.trace import Trace
from workloads.workload import Workload

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Int16 = npt.NDArray[np.int16]

_LONGEST_RUN_S = 1e9   # a generation



def build_plan(
    workload: Workload,
    *,
    rate_rps: float | None = None,
    profile: RateProfile | None = None,
    seed: int,
    num_prompts: int | None = None,
    duration_s: float | None = None,
    num_warmups: int | None = None,
    warmup_s: float | None = None,
    burstiness: float | None = None,
    begin_anew: bool = False,
) -> Plan:
    """The requests of one run: warm-up first, then the measured part.

    The load is `rate_rps` throughout, or what `profile` says after the warm-up, which then runs at
    the rate that the profile begins with; exactly one is given. The measured part is `num_prompts`
    requests, or all that arrive within `duration_s` after the warm-up; exactly one is given. With
    a profile both may be left out: it has a length of its own. Of a profile `num_prompts` takes the
    first requests, and its final rate goes on while they are too few. The warm-up is the first
    `num_warmups` requests, or all within the first `warmup_s`; at most one is given, none is no
    warm-up. A counted warm-up ends with its last arrival. `burstiness` replaces the workload's, and its
    arrivals.

    Every column has its own random stream, and every row takes one number of each: with the
    same seed a longer plan starts with the shorter one, and another rate only stretches time.
    Of traces the rows come in their order and, without a rate, at their times; without a length of the
    measured part all of them come, and `begin_anew` begins again where a run needs more than there are.

    UsageError for what cannot be planned.
    """
    process = _process(workload, burstiness)
    if isinstance(process, AllAtOnce) and profile is None:
        rate_rps = math.inf
    _check(rate_rps, profile, seed, replay=workload.trace is not None, num_prompts=num_prompts,
           duration_s=duration_s, num_warmups=num_warmups, warmup_s=warmup_s)
    if workload.trace is not None:
        return _replayed(workload, workload.trace, rate_rps=rate_rps, profile=profile, process=process,
                         asks_for_arrivals=burstiness is not None, seed=seed, num_prompts=num_prompts,
                         duration_s=duration_s, num_warmups=num_warmups, warmup_s=warmup_s,
                         begin_anew=begin_anew)
    streams, even = partial(_stream, seed), workload.draws == "stratified"
    if has_conversations(workload):
        return conversation_plan(workload, process, rate_rps, streams, even=even, seed=seed,
                                 num_prompts=num_prompts, duration_s=duration_s, num_warmups=num_warmups,
                                 warmup_s=warmup_s)
    if profile is not None:
        intended_ns, stage, warmups = staged(
            profile, lambda n: unit_arrivals_for_stages(process, n, streams, even=even),
            num_prompts=num_prompts, num_warmups=num_warmups, warmup_s=warmup_s)
        rate_rps = profile.mean_rps
    else:
        assert rate_rps is not None   # by _check
        rate = rate_rps
        intended_ns, warmups = scheduled(
            lambda n: process_offsets_ns(process, n, rate, streams, even=even),
            num_prompts=num_prompts, duration_s=duration_s, num_warmups=num_warmups, warmup_s=warmup_s)
        stage = np.zeros(len(intended_ns), dtype=np.int16)
    n = len(intended_ns)
    if n <= warmups:
        raise UsageError(f"no request falls into the measured part at {rate_rps:g} requests/s; "
                         f"raise the rate or the duration")
    component, input_len, output_len = _requests(workload, n, seed)
    prefix = prefixes(workload, component, uniforms_of(streams, even=even), streams)
    input_len = (input_len + prefix.tokens()).astype(np.int32)
    return Plan(
        intended_ns=intended_ns,
        input_len=input_len,
        output_len=output_len,
        component=component,
        prefix_group=prefix.group,
        prefix_lens=prefix.lengths,
        session=np.full(n, -1, dtype=np.int32),
        turn=np.zeros(n, dtype=np.int32),
        num_warmups=warmups,
        seed=seed,
        rate_rps=rate_rps,
        component_names=tuple(c.name for c in workload.components),
        component_tenants=workload.component_tenants,
        stages=() if profile is None else profile.stages,
        stage=stage,
        blocks=None if workload.reuse is None else reused_blocks(workload.reuse, input_len, streams),
    )


def _process(workload: Workload, burstiness: float | None) -> ArrivalProcess:
    if workload.arrivals is not None and burstiness is None:
        return workload.arrivals
    return gamma_of(workload.burstiness if burstiness is None else burstiness)


def _check(
    rate_rps: float | None,
    profile: RateProfile | None,
    seed: int,
    *,
    replay: bool,
    num_prompts: int | None,
    duration_s: float | None,
    num_warmups: int | None,
    warmup_s: float | None,
) -> None:
    if seed < 0:
        raise UsageError(f"the seed must be 0 or more; got {seed}")
    if not replay and (rate_rps is None) == (profile is None):
        raise UsageError("give the load as either one request rate or stages")
    if rate_rps is not None and not rate_rps > 0:
        raise UsageError(f"the request rate must be above 0 per second (inf: all at once); got {rate_rps:g}")
    if profile is not None and duration_s is not None:
        raise UsageError("stages have durations of their own: leave out the duration")
    if profile is None and not replay and (num_prompts is None) == (duration_s is None):
        raise UsageError("give either a number of requests or a duration for the measured part")
    if num_warmups is not None and warmup_s is not None:
        raise UsageError("give the warm-up either as a number of requests or as seconds")
    if num_prompts is not None and num_prompts < 1:
        raise UsageError(f"the number of requests must be at least 1; got {num_prompts}")
    if num_warmups is not None and num_warmups < 0:
        raise UsageError(f"the number of warm-up requests must be 0 or more; got {num_warmups}")
    if duration_s is not None and not 0 < duration_s <= _LONGEST_RUN_S:
        raise UsageError(f"the duration must be above 0 and finite, at most {_LONGEST_RUN_S:g} seconds; "
                         f"got {duration_s:g}")
    if warmup_s is not None and not 0 <= warmup_s <= _LONGEST_RUN_S:
        raise UsageError(f"the warm-up must be 0 or more and finite, at most {_LONGEST_RUN_S:g} seconds; "
                         f"got {warmup_s:g}")
    if (num_prompts or 0) + (num_warmups or 0) > MAX_REQUESTS:
        raise UsageError(f"a plan may hold at most {MAX_REQUESTS} requests; lower the number of requests")
    if rate_rps == math.inf and (duration_s is not None or warmup_s):
        raise UsageError("at an infinite request rate every request is sent at the start: give the "
                         "measured part and the warm-up as numbers of requests, not as seconds")


def _replayed(
    workload: Workload, trace: Trace, *, rate_rps: float | None, profile: RateProfile | None,
    process: ArrivalProcess, asks_for_arrivals: bool, seed: int, num_prompts: int | None,
    duration_s: float | None, num_warmups: int | None, warmup_s: float | None, begin_anew: bool,
) -> Plan:
    if profile is not None:
        raise UsageError("a trace has arrivals of its own: leave out the stages, or give one request rate")
    if trace.timed and asks_for_arrivals:
        raise UsageError("a trace with times has arrivals of its own: leave out the burstiness")
    drawn_rps = None
    if not trace.timed and rate_rps is not None and not math.isinf(rate_rps):
        even, streams = workload.draws == "stratified", partial(_stream, seed)
        trace = with_arrivals(trace, lambda n, rate: process_offsets_ns(process, n, rate, streams, even=even),
                              rate_rps)
        drawn_rps, rate_rps = rate_rps, None
    elif not trace.timed and rate_rps is not None:
        trace = all_at_once(trace)
    plan = trace_plan(
        trace, seed=seed, rate_rps=rate_rps, num_prompts=num_prompts, duration_s=duration_s,
        num_warmups=num_warmups, warmup_s=warmup_s, tenants=bool(workload.tenants), begin_anew=begin_anew)
    # What was asked for, not what the draw of these few came to.
    return plan if drawn_rps is None else replace(plan, rate_rps=drawn_rps)


def _requests(workload: Workload, n: int, seed: int) -> tuple[Int16, Int32, Int32]:
    """Component, prompt length and answer length of rows 0 .. n-1."""
    even = workload.draws == "stratified"
    edges = np.cumsum(workload.shares)[:-1]   # the last edge is 1, give or take rounding
    component_at = _uniforms(_stream(seed, "component"), n, even=even)
    component = np.searchsorted(edges, component_at, side="right").astype(np.int16)
    input_at = _stream(seed, "input").random(n)
    output_at = _stream(seed, "output").random(n)
    input_len, output_len = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    for index, kind in enumerate(workload.components):
        rows = component == index
        if even:   # each component's lengths fill its own distribution evenly
            input_at[rows] = stratified(int(rows.sum()), _stream(seed, f"input-{index}"))
            output_at[rows] = stratified(int(rows.sum()), _stream(seed, f"output-{index}"))
        input_len[rows] = kind.input.quantile(input_at[rows])
        output_len[rows] = kind.output.quantile(output_at[rows])
    return component, input_len, output_len


def _uniforms(rng: np.random.Generator, n: int, *, even: bool) -> Float64:
    return stratified(n, rng) if even else rng.random(n)


def _stream(seed: int, name: str) -> np.random.Generator:
    """An independent generator for each name, the same for the same seed and name."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()),)))
