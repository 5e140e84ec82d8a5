"""How long a run of a study has to be, so that every objective has a figure."""

import math

from bench import CATALOG
from bench.catalog import percentile_of
from bench.samples import needed_for
from tuner.slo import parse_slo
from tuner.study import StudyConfig
from workloads import Workload

MIN_REQUESTS = 24
"""Measured requests that a run has on average at least, even where no percentile needs them."""
_LONGEST_RUN = 2.0
"""For that, a run lasts at most this many times the configured length."""
_SIMULATED_RUN_S = 0.5
"""Of the wall clock, with its figures and files; most take less."""


def run_seconds(config: StudyConfig, rate_rps: float) -> float:
    """How long a search run measures at this rate: longer at low rates, so that percentiles exist."""
    return max(config.run_seconds, requests_needed(config) / max(rate_rps, lowest_rate_rps(config)))


def wall_seconds(config: StudyConfig, seconds: float) -> float:
    """How long a run of so many seconds takes, seen from the study's time budget."""
    return min(seconds, _SIMULATED_RUN_S) if config.is_simulated else seconds


def lowest_rate_rps(config: StudyConfig) -> float:
    """Below this rate a run would have to be too long to judge anything."""
    return requests_needed(config) / (config.run_seconds * _LONGEST_RUN)


def requests_needed(config: StudyConfig) -> int:
    """Measured requests that a run must have on average, so that every objective has a figure.

    A percentile over requests needs one sample beyond it (bench.samples.needed_for); Poisson
    arrivals bring fewer than their mean half of the time, hence a quarter more.
    """
    needed = MIN_REQUESTS
    for objective in parse_slo(config.slo).objectives:
        quantile = percentile_of(objective.stat) if objective.stat else None
        if quantile is not None and CATALOG[objective.metric].population == "requests":
            share = tenant_share(config.workload, objective.tenant)
            needed = max(needed, math.ceil(1.25 * needed_for(quantile) / share))
    return needed


def tenant_share(workload: Workload, tenant: str) -> float:
    """The fraction of requests that are the tenant's; 1 for "", which stands for everybody."""
    if not tenant:
        return 1.0
    return math.fsum(share for share, component in zip(workload.shares, workload.components, strict=True)
                     if component.tenant == tenant)
