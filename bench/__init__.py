"""Asks and measures: plays plans against engines, keeps what happened, and makes figures of it."""

from bench.budget import analytic_budget, decode_step_ns
from bench.catalog import CATALOG, Metric, metric_and_stat
from bench.dispatch import play
from bench.errors import OutputError
from bench.fluidity import (
    FluidityOfRequests,
    FluidityResult,
    fluid_token_rate,
    fluidity_index,
    fluidity_of_requests,
)
from bench.goodput import GoodputRules
from bench.merge import merge_runs
from bench.prefill_curve import Deadlines, PrefillCurve, measure_prefill_curve
from bench.recorder import Progress, RunRecorder
from bench.run import NEVER, ClientHealth, Outcome, Run, Validity
from bench.select import select_rows
from bench.shards import ShardRecorder
from bench.simulated import simulate_run, simulated_curve
from bench.stages import stage_figures
from bench.store import load_head, load_run, save_run
from bench.summary import Figure, Summary, summarise
from bench.sustainability import Sustainability, sustainable
from bench.token_times import TokenArrivals
from bench.validity import judge_validity
from bench.workers import play_sharded

__all__ = [
    "CATALOG",
    "NEVER",
    "ClientHealth",
    "Deadlines",
    "Figure",
    "FluidityOfRequests",
    "FluidityResult",
    "GoodputRules",
    "Metric",
    "Outcome",
    "OutputError",
    "PrefillCurve",
    "Progress",
    "Run",
    "RunRecorder",
    "ShardRecorder",
    "Summary",
    "Sustainability",
    "TokenArrivals",
    "Validity",
    "analytic_budget",
    "decode_step_ns",
    "fluid_token_rate",
    "fluidity_index",
    "fluidity_of_requests",
    "judge_validity",
    "load_head",
    "load_run",
    "measure_prefill_curve",
    "merge_runs",
    "metric_and_stat",
    "play",
    "play_sharded",
    "save_run",
    "select_rows",
    "simulate_run",
    "simulated_curve",
    "stage_figures",
    "summarise",
    "sustainable",
]
