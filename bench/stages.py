"""Figures of each stage of a run whose load changed over time."""

from dataclasses import replace
from typing import Any

from bench.goodput import GoodputRules
from bench.prefill_curve import Deadlines
from bench.run import Outcome, Run
from bench.select import select_rows
from bench.summary import Summary, summarise
from bench.sustainability import sustainable

_FIGURES: dict[str, tuple[str, str | None]] = {
    "achieved_rate_fraction": ("achieved_rate", None),
    "error_rate": ("error_rate", None),
    "p50_ttft_ms": ("ttft", "p50"),
    "p99_ttft_ms": ("ttft", "p99"),
    "p50_tbt_ms": ("tbt", "p50"),
    "p99_tbt_ms": ("tbt", "p99"),
    "max_tbt_ms": ("tbt", "max"),
    "fluidity_index_mean": ("fluidity", "mean"),
    "fluidity_index_service": ("fluidity", "pooled"),
    "goodput_attainment": ("goodput", "attainment"),
}


def stage_figures(
    run: Run, deadlines: Deadlines | None = None, goodput: GoodputRules | None = None
) -> list[dict[str, Any]]:
    """One JSON-able dict for each stage of the run's plan, in order; empty for a plan without stages.

    Each holds what the stage is (name, kind, duration_s, start_rps, end_rps, shape), `offered_rps`
    (planned requests over its duration) and `achieved_rps`, counts of its requests, and the figures
    of exactly these requests under the keys of a run's JSON; `missing` says why one is None. Warm-up
    is left out. `sustainable` is judged with the requests of earlier stages in flight, as they were;
    it is None for a ramp, which has no one load to sustain, and for a stage without requests.
    """
    stages = run.meta.get("stages") or []
    return [_one_stage(summarise(of_stage(run, number), deadlines=deadlines, goodput=goodput), number, stage)
            for number, stage in enumerate(stages)]


def of_stage(run: Run, number: int) -> Run:
    """The run up to the end of one stage, with everything before it as warm-up.

    So its figures are this stage's alone, and what earlier stages left in flight is still there.
    """
    ended = select_rows(run, run.stage <= number)
    return replace(ended, warmup=ended.warmup | (ended.stage < number))


def after_ramp_up(run: Run) -> Run:
    """The run with the requests before its first steady stage as warm-up: no figure of it describes
    the ramp-up. A run that begins steadily, or never is steady, is returned as it is.

    A ramp between steady stages stays in: such a run mixes loads anyway, see `stage_figures`.
    """
    kinds = [stage["kind"] for stage in run.meta.get("stages") or []]
    first_steady = kinds.index("steady") if "steady" in kinds else 0
    return replace(run, warmup=run.warmup | (run.stage < first_steady)) if first_steady else run


def _one_stage(summary: Summary, number: int, stage: dict[str, Any]) -> dict[str, Any]:
    run = summary.run
    planned, attempted = int(run.measured.sum()), int(run.attempted.sum())
    figures: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for key, (metric, stat) in _FIGURES.items():
        figure = summary.figure(metric, stat)
        figures[key] = figure.value
        if figure.value is None:
            missing[key] = figure.why_missing
        elif key.endswith("_ms"):
            figures[key] = figure.value / 1e6
    offered = planned / stage["duration_s"]
    achieved = figures.pop("achieved_rate_fraction")
    load = sustainable(run, summary.deadlines) if attempted and stage["kind"] == "steady" else None
    return {
        "stage": number, **stage,
        "offered_rps": offered, "achieved_rps": None if achieved is None else offered * achieved,
        "num_requests": planned, "completed": int(run.ok.sum()), "failed": attempted - int(run.ok.sum()),
        "arrivals_not_sent": int((run.measured & (run.outcome == Outcome.NOT_SENT)).sum()),
        **figures,
        "sustainable": None if load is None else load.sustainable,
        "sustainable_reasons": [] if load is None else list(load.reasons),
        "n": {"ttft": summary.figure("ttft", "p50").n, "tbt": summary.figure("tbt", "p50").n},
        "missing": missing,
    }
