"""CALIBRATION.json: the cost of an engine's steps, where it comes from and how far it is off."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.files import write_json
from engine_adapter.simulator.step_cost import StepCost
from tuner.calibration.covered import Covered
from tuner.calibration.regimes import Regime
from workloads.errors import UsageError

SCHEMA = 1
KIND = "calibration"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Calibration:
    """What `tune calibrate` found."""

    cost: StepCost
    engine: dict[str, Any]
    """As its runs say: name, version, model, max_model_len, num_kv_blocks, kv_block_size, fingerprint."""
    errors: tuple[Regime, ...]
    """On held-out steps."""
    covered: Covered
    runs: tuple[dict[str, Any], ...]
    """What it was fitted to: name, digest, knobs, plan_digest, seed, rate_rps, steps of each run."""
    new_shape_ns: float
    """What the first step of a size takes longer; it is not in the cost."""
    warnings: tuple[str, ...]
    created: str
    stallfree_version: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` makes an equal one of it."""
        errors: dict[str, list[dict[str, Any]]] = {}
        for regime in self.errors:
            errors.setdefault(regime.group, []).append(regime.as_dict())
        return {
            "schema": SCHEMA, "kind": KIND, "created": self.created,
            "stallfree_version": self.stallfree_version, "cost": self.cost.as_dict(), "engine": self.engine,
            "errors": errors, "covered": self.covered.as_dict(), "runs": list(self.runs),
            "new_shape_ns": self.new_shape_ns, "warnings": list(self.warnings),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """What `as_dict` described; what it does not know is left aside. KeyError, TypeError, ValueError or
        UsageError for anything else."""
        return cls(
            cost=StepCost.from_dict(content["cost"]), engine=dict(content["engine"]),
            errors=tuple(Regime(group=group, **{name: row[name] for name in _ROW})
                         for group, rows in content["errors"].items() for row in rows),
            covered=Covered.from_dict(content["covered"]), runs=tuple(dict(run) for run in content["runs"]),
            new_shape_ns=float(content["new_shape_ns"]), warnings=tuple(content["warnings"]),
            created=str(content["created"]), stallfree_version=str(content["stallfree_version"]))

    @property
    def overall(self) -> Regime:
        """The errors of all steps together."""
        return self.errors[0]


_ROW = ("name", "n", "median_abs", "p90_abs", "bias")


def save_calibration(calibration: Calibration, path: Path) -> Path:
    """Write it whole or not at all, and return the path; OutputError where it cannot be written."""
    return write_json(path, calibration.as_dict())


def load_calibration(path: str | Path) -> Calibration:
    """The calibration in the file `path`. UsageError, one line, for a file that is missing or no calibration
    of this schema."""
    file = Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}; give a file that `tune calibrate` "
                         f"wrote") from error
    except ValueError as error:
        raise UsageError(f"{file} is no JSON ({error}): give a file that `tune calibrate` wrote") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UsageError(f"{file} is no calibration: give a file that `tune calibrate` wrote")
    if content.get("schema") != SCHEMA:
        raise UsageError(f"{file} has schema {content.get('schema')}, this stallfree reads {SCHEMA}: "
                         f"calibrate again")
    try:
        return Calibration.from_dict(content)
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise UsageError(f"{file} cannot be used ({reason}): calibrate again") from error
