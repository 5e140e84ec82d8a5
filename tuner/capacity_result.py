"""capacity.json: what was found out about a server whose settings cannot be changed, finished or not."""

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from tuner.confirm import figures
from tuner.measuring import Measured, rare_stalls, thin_margin
from tuner.slo import Slo
from tuner.study import Study
from tuner.trial import Outcome

SCHEMA_VERSION = 1
EXIT_CODES = {"confirmed": 0, "slo_infeasible": 1, "not_confirmed": 2, "cut_short": 2, "no_evidence": 3,
              "unfinished": 130}
"""What `tune run` exits with, by verdict; see docs/exit-codes.md."""


@dataclass(frozen=True, slots=True)
class Level:
    """One rate of the search and the runs played at it; the last one stands for it."""

    level: int
    runs: tuple[Measured, ...]

    @property
    def last(self) -> Measured:
        return self.runs[-1]

    @property
    def rate_rps(self) -> float:
        return self.last.run.rate_rps


def levels_of(study: Study) -> list[Level]:
    """What the search has played so far, in its order."""
    return [Level(entry["level"], tuple(map(Measured.from_dict, entry["runs"])))
            for entry in study.state.levels]


def proving_runs(study: Study) -> list[Measured]:
    """The confirming runs so far, in their order."""
    return [Measured.from_dict(run) for run in (study.state.confirmation or {}).get("runs", [])]


def capacity_result(study: Study, slo: Slo, verdict: str, verdict_text: str) -> dict[str, Any]:
    """The content of capacity.json."""
    state, config = study.state, study.config
    levels, proofs = levels_of(study), proving_runs(study)
    proof = decisive(proofs)
    held = highest_held(levels)
    doubts = [] if proof is None else [rare_stalls(proof, slo), thin_margin(proof)]
    carried = None
    if held is not None and config.rate_rps is None:
        carried = proof.run.rate_rps if proof is not None and proof.holds else None
        if carried in (None, held.rate_rps):
            doubts.append(_above(held, levels))
    return {
        "schema_version": SCHEMA_VERSION, "stallfree_version": version("stallfree"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": verdict, "verdict_text": verdict_text, "rate_rps": config.rate_rps,
        "capacity_rps": carried, "searched_rps": None if held is None else held.rate_rps,
        "confirmed": figures(proof, None), "attempts": [figures(run, None) for run in proofs],
        "runs": [figures(run, None) for level in levels for run in level.runs],
        "slo": [str(objective) for objective in slo.objectives],
        "deadlines": {"decode_ms": config.decode_deadline_ms, "prefill_slack_ms": config.prefill_slack_ms,
                      "decode_step_ms": state.decode_step_ms},
        "workload": {"name": config.workload.name, "digest": config.workload.digest(),
                     "burstiness": config.burstiness or config.workload.burstiness},
        "server": config.server, "environment": state.environment,
        "engine_starts": state.engine_starts, "wall_seconds": round(state.wall_seconds, 1),
        "warnings": [*state.warnings, *filter(None, doubts)],
    }


def verdict_of(study: Study, *, out_of_time: bool) -> tuple[str, str]:
    """Verdict and sentence of a search that has ended, with its confirmation if anything held."""
    proofs, levels = proving_runs(study), levels_of(study)
    proof, held = decisive(proofs), highest_held(levels)
    if proof is not None and proof.holds:
        return "confirmed", (f"the SLO holds at {proof.run.rate_rps:.3g} requests/s, on arrivals that the "
                             f"search had not seen")
    if proof is not None and held is not None:
        if proof.outcome.is_bad:
            return "not_confirmed", (f"the SLO held at {held.rate_rps:.3g} requests/s while searching, but "
                                     f"could not be proved on fresh arrivals, add --resume to try again: "
                                     f"{proof.note}")
        return "not_confirmed", (f"the SLO held at {held.rate_rps:.3g} requests/s while searching, but on "
                                 f"fresh arrivals not even at {proof.run.rate_rps:.3g}: {proof.note}")
    if out_of_time:
        return "cut_short", "the time ended before a rate was found: give more --max-minutes and add --resume"
    if not levels:
        return "no_evidence", "nothing could be measured"
    lowest = min(levels, key=lambda level: level.level)
    if lowest.last.outcome.is_bad:
        return "no_evidence", (f"no rate was found, and {lowest.rate_rps:.3g} requests/s could not be "
                               f"judged ({_words(lowest)}): {lowest.last.note}")
    where = f"at no rate down to {lowest.rate_rps:.3g}" if study.config.rate_rps is None else (
        f"not at {lowest.rate_rps:.3g}")
    lower = "; for a lower rate make the runs longer (--run-seconds)" if study.config.rate_rps is None else ""
    return "slo_infeasible", f"the SLO holds {where} requests/s: {lowest.last.note}{lower}"


def is_final(study: Study, verdict: str) -> bool:
    """Whether going on cannot change the verdict: nothing is missing for want of time or of a server."""
    proof = decisive(proving_runs(study))
    return verdict in ("confirmed", "not_confirmed", "slo_infeasible") and not (
        proof is not None and proof.outcome.is_bad)


def decisive(runs: list[Measured]) -> Measured | None:
    """The run that held, else the last one."""
    return next((run for run in runs if run.holds), runs[-1] if runs else None)


def highest_held(levels: list[Level]) -> Level | None:
    """The highest rate of the search at which everything held."""
    return max((level for level in levels if level.last.holds), key=lambda level: level.level, default=None)


def _above(held: Level, levels: list[Level]) -> str:
    """Why the capacity may be higher than what was found; "" where the next rate is known to fail."""
    failing = min((level for level in levels if level.level > held.level), key=lambda level: level.level,
                  default=None)
    if failing is None:
        return f"no rate above {held.rate_rps:.3g} requests/s was judged: the capacity may be higher"
    if failing.level > held.level + 1:
        return (f"no rate between {held.rate_rps:.3g} and {failing.rate_rps:.3g} requests/s was judged: the "
                f"capacity may be higher")
    if failing.last.outcome is Outcome.CLIENT_LIMITED:
        return (f"at {failing.rate_rps:.3g} requests/s the measurement was at its end, not the server "
                f"({failing.last.note}): the capacity may be higher")
    return ""


def _words(level: Level) -> str:
    return level.last.outcome.value.replace("_", " ")
