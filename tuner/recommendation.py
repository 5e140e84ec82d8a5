"""recommendation.json: the whole answer of a study, finished or not, in one file."""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from engine_adapter.knobs import Knobs
from tuner.engines import EngineMaker
from tuner.slo import Slo
from tuner.study import Study, StudyState
from tuner.trial import Outcome, TrialRecord, TrialRun

SCHEMA_VERSION = 1
EXIT_CODES = {
    "recommended": 0, "default_is_best": 0, "slo_infeasible": 1, "not_confirmed": 2, "cut_short": 2,
    "no_evidence": 3, "unfinished": 130,
}
"""What `tune run` exits with, by verdict; see docs/exit-codes.md."""


def build(study: Study, records: list[TrialRecord], best: TrialRecord | None, slo: Slo,
          maker: EngineMaker, *, finished: bool) -> dict[str, Any]:
    """The content of recommendation.json; `finished` says whether the study came to its end."""
    state, config = study.state, study.config
    default = next((r for r in records if r.knobs == state.default_knobs), None)
    verdict, sentence = _verdict(study, best, default, records, finished=finished)
    if config.is_simulated:
        sentence += "; simulated, to be confirmed on the engine"
    confirmation = state.confirmation or {}
    return {
        "schema_version": SCHEMA_VERSION,
        "stallfree_version": version("stallfree"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": verdict,
        "verdict_text": sentence,
        "simulated": config.is_simulated,
        "simulation": _simulation(study.state) if config.is_simulated else None,
        "objective": "capacity" if config.rate_rps is None else "fixed_rate",
        "rate_rps": config.rate_rps,
        "recommended": _setting(best.knobs, best, confirmation.get("recommended"), maker, "recommended.yaml")
        if best is not None else None,
        "default": _setting(state.default_knobs, default, confirmation.get("default"), maker, "default.yaml")
        if state.default_knobs is not None else None,
        "slo": [_objective(o) for o in slo.objectives],
        "deadlines": _deadlines(study),
        "workload": _workload(study),
        "trials": [_trial(record) for record in records],
        "engine_starts": state.engine_starts,
        "engine_seconds": round(state.engine_seconds, 1),
        "wall_seconds": round(state.wall_seconds, 1),
        "environment": state.environment,
        "warnings": list(state.warnings),
    }


def simulated_as(state: StudyState) -> str:
    """What was simulated, in a few words."""
    told = _simulation(state)
    return f"{told['model']} on {told['hardware']}, {told['cost']}"


def _simulation(state: StudyState) -> dict[str, str]:
    told: dict[str, str] = state.environment["fingerprint"]["simulated"]
    return told


def _verdict(study: Study, best: TrialRecord | None, default: TrialRecord | None,
             records: list[TrialRecord], *, finished: bool) -> tuple[str, str]:
    if not finished:
        tried = f"{len(records)} of {study.config.max_trials} settings were tried"
        return "unfinished", f"{tried}; add --resume to go on"
    if best is None:
        if len(records) < study.config.max_trials and study.config.time_budget_s is not None:
            return "cut_short", (f"the time ended after {len(records)} of {study.config.max_trials} "
                                 f"settings, and none had held; give more --max-minutes and add --resume")
        judged = [r for r in records if not r.outcome.is_bad and r.constraints]
        return ("slo_infeasible", _closest(judged)) if judged else ("no_evidence", _failures(records))
    confirmed = ((study.state.confirmation or {}).get("recommended") or {}).get("confirmed")
    if confirmed and confirmed["outcome"] == Outcome.CLIENT_LIMITED:
        return "not_confirmed", (f"{best.knobs.label()} met the SLO in the search, but the measurement of "
                                 "confirmation cannot be trusted; tune on an idle machine")
    if not (confirmed and confirmed["holds"]):
        return "not_confirmed", (f"{best.knobs.label()} met the SLO in the search, but not in the "
                                 "confirmation; run longer (--run-seconds) or relax the SLO")
    what = f"{confirmed['capacity_rps'] or confirmed['rate_rps']:.3g} req/s"
    if default is not None and best.knobs == default.knobs:
        return "default_is_best", f"no setting beat the engine's default, which carries {what} within the SLO"
    return "recommended", f"{best.knobs.label()} carries {what} within the SLO{_against(study, default)}"


def _against(study: Study, default: TrialRecord | None) -> str:
    shown = ((study.state.confirmation or {}).get("default") or {}).get("confirmed")
    if shown is not None and not shown["holds"]:
        text = ", where the engine's default breaks it"
        if default is not None and default.capacity_rps:
            text += f" (in the search it held up to {default.capacity_rps:.3g} req/s)"
        return text
    return ""


def _failures(records: list[TrialRecord]) -> str:
    notes = [f"{r.outcome}: {r.note}" for r in records if r.note]
    return "no setting could be measured" + (f"; the first failed as {notes[0]}" if notes else "")


def _closest(judged: list[TrialRecord]) -> str:
    near = min(judged, key=lambda r: max(r.constraints.values()))
    worst = max(near.constraints, key=lambda key: near.constraints[key])
    rate = min(run.rate_rps for run in near.runs)
    return (f"the SLO is infeasible here: the closest is {near.knobs.label()} at {rate:.3g} req/s, which "
            f"misses {worst} by {near.constraints[worst]:.0%} of its limit")


def _setting(knobs: Knobs | None, record: TrialRecord | None, confirmed: dict[str, Any] | None,
             maker: EngineMaker, config_file: str) -> dict[str, Any] | None:
    if knobs is None:
        return None
    return {
        "knobs": knobs.as_dict(),
        "serve_command": maker.serve_command(knobs),
        "config_file": config_file,
        "search": _searched(record),
        "confirmed": (confirmed or {}).get("confirmed"),
        "attempts": (confirmed or {}).get("attempts", []),
        "effective_knobs": (confirmed or {}).get("effective_knobs"),
        "note": (confirmed or {}).get("note", ""),
    }


def _searched(record: TrialRecord | None) -> dict[str, Any] | None:
    if record is None or not record.runs:
        return None
    holding = [run for run in record.runs if run.holds]
    run = max(holding, key=lambda r: r.rate_rps) if holding else min(record.runs, key=lambda r: r.rate_rps)
    return _figures(run) | {"capacity_rps": record.capacity_rps}


def _figures(run: TrialRun) -> dict[str, Any]:
    return {
        "rate_rps": run.rate_rps, "run": run.directory or None, "holds": run.holds, "outcome": run.outcome,
        "judgement": run.judgement, "figures": run.figures, "seconds": round(run.seconds, 2),
    }


def _trial(record: TrialRecord) -> dict[str, Any]:
    return {
        "number": record.number, "knobs": record.knobs.as_dict(), "source": record.source,
        "outcome": record.outcome.value, "capacity_rps": record.capacity_rps,
        "runs": [_figures(run) for run in record.runs], "constraints": record.constraints,
        "seconds": round(record.seconds, 2), "note": record.note,
    }


def _objective(objective: Any) -> dict[str, Any]:
    is_time = objective.unit == "ns"
    return {
        "text": str(objective), "stat": objective.stat, "op": objective.op,
        # A chart of all requests must not show the limit of some.
        "metric": f"{objective.tenant}/{objective.metric}" if objective.tenant else objective.metric,
        "limit": objective.limit / 1e6 if is_time else objective.limit,
        "unit": "ms" if is_time else objective.unit, "implicit": objective.implicit,
    }


def _deadlines(study: Study) -> dict[str, Any]:
    deadlines = study.state.reader_deadlines
    curve = [] if deadlines is None else [
        {"tokens": tokens, "ms": ns / 1e6}
        for tokens, ns in zip(deadlines.curve.tokens, deadlines.curve.times_ns, strict=True)
    ]
    return {"decode_ms": study.config.decode_deadline_ms, "prefill_slack_ms": study.config.prefill_slack_ms,
            "curve": curve, "decode_step_ms": study.state.decode_step_ms,
            "analytic_budget": study.state.analytic_budget}


def _workload(study: Study) -> dict[str, Any]:
    workload = study.config.workload
    return {
        "name": workload.name, "description": workload.description, "digest": workload.digest(),
        "burstiness": study.config.burstiness or workload.burstiness,
        "mean_input": workload.mean_input_len, "mean_output": workload.mean_output_len,
        "components": [
            {"name": c.name, "weight": share, "input": c.input.describe(), "output": c.output.describe()}
            for c, share in zip(workload.components, workload.shares, strict=True)
        ],
    }
