"""Small, anonymous workloads that stand for a trace."""

from workloads.fitting.agreement import Agreement, agreements, missed, regenerated
from workloads.fitting.model import TraceFacts, fit_workload, workload_yaml

__all__ = ["Agreement", "TraceFacts", "agreements", "fit_workload", "missed", "regenerated", "workload_yaml"]
