"""From runs to a calibration."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from bench import Run
from tuner.calibration.covered import covered_by
from tuner.calibration.delays import fit_delays
from tuner.calibration.file import Calibration
from tuner.calibration.fit import fit_cost
from tuner.calibration.observed import observe
from tuner.calibration.regimes import regimes_of
from tuner.calibration.sources import digest_of, engine_of, refuse_mixed
from workloads.errors import EvidenceError

_OF_ONE_START = ("start_seconds", "live_knobs")
_FACTS = ("max_model_len", "num_kv_blocks", "kv_block_size")
"""Of an engine; they do not change what a step costs."""


def calibrate(runs: Sequence[Run], names: Sequence[str]) -> Calibration:
    """The cost of the steps of `runs`, whose `names` tell them apart.

    EvidenceError, one line, for runs of different engines, without whole step logs, with too few steps, and
    for the same run twice.
    """
    engines = [engine_of(run) for run in runs]
    observed = observe(runs, names)
    refuse_mixed(engines, names)
    sources = [_source(run, name) for run, name in zip(runs, names, strict=True)]
    _refuse_twice(sources)
    fitted = fit_cost(observed)
    delays = fit_delays(runs, observed, fitted.cost)
    engine = {name: value for name, value in engines[0].items() if name not in _OF_ONE_START}
    provenance = {"hardware": _hardware(engine), "model": engine.get("model"), "kind": "calibration",
                  "engine": engine, "runs": sources}
    return Calibration(
        cost=delays.added_to(replace(fitted.cost, provenance=provenance)), engine=engine,
        errors=tuple(regimes_of(fitted.observed, fitted.held_out_ns, names)), covered=covered_by(observed),
        runs=tuple(sources), new_shape_ns=fitted.new_shape_ns,
        warnings=(*_differences(engines, names), *_invalid(runs, names), *delays.warnings),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        stallfree_version=metadata.version("stallfree"))


def _source(run: Run, name: str) -> dict[str, Any]:
    return {
        "name": name, "digest": digest_of(run), "steps": len(run.steps), "valid": run.validity.valid,
        **{fact: run.meta.get(fact) for fact in ("label", "knobs", "plan_digest", "seed", "rate_rps")},
    }


def _hardware(engine: dict[str, Any]) -> str:
    """What the engine ran on, as far as the run says."""
    machine = engine.get("machine") or {}
    gpus = [gpu.get("name") for gpu in machine.get("gpus") or ()]
    device = (engine.get("fingerprint") or {}).get("device")
    return str(gpus[0] if gpus else machine.get("cpu_model") or device or "unknown")


def _refuse_twice(sources: Sequence[dict[str, Any]]) -> None:
    first: dict[str, str] = {}
    for source in sources:
        if (other := first.get(source["digest"])) is not None:
            raise EvidenceError(f"{other} and {source['name']} are one and the same run: give it once")
        first[source["digest"]] = source["name"]


def _differences(engines: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    first = engines[0]
    return [
        f"{fact} is {first.get(fact)} in {names[0]} and {engine.get(fact)} in {name}: the file has the first"
        for fact in _FACTS
        for engine, name in zip(engines[1:], names[1:], strict=True) if engine.get(fact) != first.get(fact)
    ][:1]


def _invalid(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    return [
        f"{name} is invalid ({run.validity.reasons[0]}): its steps count, its requests' delays do not"
        for run, name in zip(runs, names, strict=True) if not run.validity.valid
    ]
