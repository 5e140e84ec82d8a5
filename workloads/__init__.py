"""What is asked of an engine: workloads, arrival processes, and the plans drawn from them."""

from workloads.arrival_processes import ArrivalProcess
from workloads.arrivals import arrival_offsets_ns
from workloads.component import Component
from workloads.errors import EvidenceError, StallfreeError, UsageError
from workloads.lengths import Fixed, FromFile, Lengths, LogNormal, Quantiles, Uniform
from workloads.loading import PRESETS, load_workload
from workloads.plan import Plan
from workloads.planning import build_plan
from workloads.stages import RateProfile, Stage, parse_stages
from workloads.workload import Workload

__all__ = [
    "PRESETS",
    "ArrivalProcess",
    "Component",
    "EvidenceError",
    "Fixed",
    "FromFile",
    "Lengths",
    "LogNormal",
    "Plan",
    "Quantiles",
    "RateProfile",
    "Stage",
    "StallfreeError",
    "Uniform",
    "UsageError",
    "Workload",
    "arrival_offsets_ns",
    "build_plan",
    "load_workload",
    "parse_stages",
]
