"""From the flags about the load to a plan: how much is sent, and when."""

import math
from dataclasses import dataclass

from workloads import Plan, RateProfile, UsageError, Workload, build_plan, parse_stages
from workloads.arrival_processes import AllAtOnce


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAsked:
    """The flags about how much is sent, and when."""

    rate: float | None
    num_prompts: int | None
    duration: float | None
    num_warmups: int | None
    burstiness: float | None
    seed: int
    max_concurrency: int | None = None
    stages: str | None = None
    ramp_strategy: str | None = None
    ramp_start_rps: float | None = None
    ramp_end_rps: float | None = None

    def profile(self) -> RateProfile | None:
        """The rate over time, where it changes; UsageError for flags that contradict one another."""
        ramp = (self.ramp_strategy, self.ramp_start_rps, self.ramp_end_rps)
        ramps = [value is not None for value in ramp]
        if any(ramps) and not all(ramps):
            raise UsageError("a ramp needs all of --ramp-up-strategy, --ramp-up-start-rps and "
                             "--ramp-up-end-rps")
        flags = {"--request-rate": self.rate is not None, "--stages": self.stages,
                 "--ramp-up-strategy": any(ramps)}
        given = [flag for flag, there in flags.items() if there]
        if len(given) > 1:
            raise UsageError(f"give the rate with one of {' and '.join(given)}")
        if self.stages is not None:
            return parse_stages(self.stages)
        if self.ramp_strategy is None or self.ramp_start_rps is None or self.ramp_end_rps is None:
            return None
        if (self.num_prompts is None) == (self.duration is None):
            raise UsageError("give the length of the ramp as either --num-prompts or --duration")
        return RateProfile.ramp(self.ramp_strategy, self.ramp_start_rps, self.ramp_end_rps,
                                num_prompts=self.num_prompts, duration_s=self.duration)


def plan_of(workload: Workload, asked: LoadAsked, *, by_lengths: bool) -> Plan:
    """The requests of the run. Only lengths with a number of prompts go without a rate: all at once,
    or, under --max-concurrency, one for each that ends; and traces, whole and at their own times, without a
    warm-up where no file asks for one (`by_lengths`: there is none)."""
    rate, num_prompts, duration = asked.rate, asked.num_prompts, asked.duration
    num_warmups, burstiness, seed = asked.num_warmups, asked.burstiness, asked.seed
    if num_prompts is not None and duration is not None:
        raise UsageError("give the length of the run as either --num-prompts or --duration")
    if workload.trace is not None:
        warmed_up = by_lengths or num_warmups is not None or (rate is not None and math.isinf(rate))
        return build_plan(
            workload, rate_rps=rate, profile=asked.profile(), seed=seed, num_prompts=num_prompts,
            duration_s=duration, num_warmups=num_warmups, burstiness=burstiness,
            warmup_s=None if warmed_up else workload.warmup_seconds)
    if (profile := asked.profile()) is not None:
        return build_plan(
            workload, profile=profile, seed=seed, num_prompts=num_prompts, duration_s=duration,
            num_warmups=num_warmups, burstiness=burstiness,
            warmup_s=workload.warmup_seconds if num_warmups is None else None)
    if rate is None and asked.max_concurrency is not None and num_prompts is not None:
        rate = math.inf
    if isinstance(workload.arrivals, AllAtOnce) and burstiness is None:
        if rate is not None or num_prompts is None:
            raise UsageError("the workload's arrivals are all-at-once: give --num-prompts, and no rate or "
                             "duration")
        rate = math.inf
    if rate is None:
        rate = workload.recorded_rate_rps   # of the trace that it was fitted to
    if rate is None and not (by_lengths and num_prompts is not None):
        also = "; or --num-prompts to send so many at once" if by_lengths else ""
        raise UsageError(f"give the load with --request-rate, in requests per second{also}")
    rate_rps = math.inf if rate is None else rate
    if math.isinf(rate_rps) and rate_rps > 0 and num_prompts is None:
        raise UsageError("--request-rate inf sends all requests at once: say how many with --num-prompts")
    timed_warmup = num_warmups is None and not math.isinf(rate_rps)
    return build_plan(
        workload, rate_rps=rate_rps, seed=seed, num_prompts=num_prompts, num_warmups=num_warmups,
        duration_s=(workload.run_seconds if duration is None else duration) if num_prompts is None else None,
        warmup_s=workload.warmup_seconds if timed_warmup else None, burstiness=burstiness)


def last_send_s(plan: Plan, asked: LoadAsked) -> float | None:
    """A run of a given duration sends nothing after it, however long a concurrency cap holds requests
    back; None for a run of a number of requests, which sends them all."""
    if asked.max_concurrency is None or asked.num_prompts is not None or not len(plan):
        return None
    return float(plan.intended_ns[-1]) / 1e9 + 1.0
