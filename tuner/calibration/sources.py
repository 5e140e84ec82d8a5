"""Which engine the runs are of, and that it is one and the same."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from bench import Run
from workloads.errors import EvidenceError

_NAMES = ("name", "version", "model")
_OF_NO_ACCOUNT = ("prefix_caching",)
"""Facts of an engine that change which steps there are, not what one costs."""
_MACHINE = "machine "


def engine_of(run: Run) -> dict[str, Any]:
    """What the run says of its engine, and of the machine where it does."""
    engine = dict(run.meta.get("engine") or {})
    if run.meta.get("machine"):
        engine["machine"] = run.meta["machine"]
    return engine


def refuse_mixed(engines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """EvidenceError, one line, where two are not the same engine, model, dtype, device or machine: other
    kernels ran there (microsoft/vidur#72)."""
    first = _identity(engines[0])
    for engine, name in zip(engines[1:], names[1:], strict=True):
        other = _identity(engine)
        for fact in sorted(first.keys() | other.keys()):
            # Of an earlier version a run does not say its machine.
            unknown = fact.startswith(_MACHINE) and None in (first.get(fact), other.get(fact))
            if first.get(fact) != other.get(fact) and not unknown:
                raise EvidenceError(
                    f"{names[0]} and {name} cannot go together: {fact} is {_shown(first.get(fact))} in the "
                    f"one and {_shown(other.get(fact))} in the other; calibrate each by itself")


def digest_of(run: Run) -> str:
    """SHA-256 of the steps and the sending times of a run: the same for every copy of it."""
    digest = hashlib.sha256(run.sent_ns.tobytes())
    for column in run.steps.steps.values():
        digest.update(column.tobytes())
    return digest.hexdigest()


def _identity(engine: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: engine.get(name) for name in _NAMES}
    facts |= {name: value for name, value in (engine.get("fingerprint") or {}).items()
              if name not in _OF_NO_ACCOUNT}
    machine = engine.get("machine") or {}
    return facts | {_MACHINE + name: machine.get(name) for name in ("cpu_model", "cores", "gpus")}


def _shown(value: Any) -> str:
    return "not said" if value is None else str(value)
