"""A study on disk: what was asked for, how far it came, and where its evidence lies."""

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from bench import Deadlines, OutputError
from bench.files import jsonable, write_json, write_text
from engine_adapter.clock import Clock
from engine_adapter.knobs import Knobs
from engine_adapter.vllm_launch import VllmLaunch
from workloads import EvidenceError, UsageError, Workload

SCHEMA_VERSION = 1
T = TypeVar("T")
_EMBEDDED = {"kind": "embedded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """Everything that decides what a study measures."""

    workload: Workload
    slo: tuple[str, ...]
    launch: VllmLaunch | None
    """None for engines that are not started by a launch: a server that runs already, a command."""
    decode_deadline_ms: float
    prefill_slack_ms: float
    run_seconds: float
    """Length of the measured part of a search run; a confirming run takes twice as long."""
    warmup_seconds: float
    seed: int = 0
    rate_rps: float | None = None
    """Tune at this offered rate; None: find the setting with the highest capacity."""
    rate_step: float = 1.1
    """Neighbouring rates of the capacity search differ by this factor: its resolution."""
    token_budgets: tuple[int, ...] | None = None
    max_seqs: tuple[int, ...] | None = None
    thresholds: tuple[int, ...] | None = None
    burstiness: float | None = None
    max_trials: int = 12
    time_budget_s: float | None = None
    request_timeout_s: float = 120.0
    server: dict[str, Any] = field(default_factory=lambda: dict(_EMBEDDED))
    """Where its engines come from: EngineSource.as_dict()."""

    @property
    def is_simulated(self) -> bool:
        """Whether no engine runs: then a run takes no time to speak of."""
        return bool(self.server["kind"] == "sim")

    _FREE = ("max_trials", "time_budget_s", "request_timeout_s")
    """What a resumed study may change."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"workload": self.workload.saved(), "workload_digest": self.workload.digest(),
                         "slo": list(self.slo),
                         "launch": None if self.launch is None else self.launch.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`, from JSON. UsageError where a file that the workload reads, a trace or a
        list of lengths, is not what it was."""
        values = dict(values)
        workload, digest = Workload.model_validate(values["workload"]), values.pop("workload_digest", None)
        if digest is not None and digest != workload.digest():
            raise UsageError(f"a file that the workload {workload.name} reads has changed since this study "
                             f"began: put it back as it was, or start a new study")
        lists = {name: tuple(values[name]) for name in ("token_budgets", "max_seqs", "thresholds")
                 if values[name] is not None}
        burstiness = None if values["burstiness"] is None else float(values["burstiness"])
        return cls(**{**values, **lists, "slo": tuple(values["slo"]), "burstiness": burstiness,
                      "workload": workload,
                      "launch": VllmLaunch.from_dict(values["launch"]) if values["launch"] else None})

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """Names of the settings in which a saved study (`as_dict`, from JSON) asked for something else."""
        mine = jsonable(self.as_dict())
        # Studies knew no other server before, and no digest.
        other = {"server": _EMBEDDED, "workload_digest": mine["workload_digest"], **other}
        return [name for name in mine if name not in self._FREE and mine[name] != other.get(name)]


@dataclass(slots=True)
class StudyState:
    """How far a study came; saved after every change that cost engine time."""

    engine_starts: int = 0
    engine_seconds: float = 0.0
    wall_seconds: float = 0.0
    runs_made: int = 0
    base_rate_rps: float | None = None
    analytic_budget: int | None = None
    first_level: int | None = None
    """Of the ladder of rates, where the search starts; None before the scouts found it."""
    scouts: list[dict[str, Any]] = field(default_factory=list)
    """Runs of the scouts, `Measured.as_dict()` with their knobs and level."""
    levels: list[dict[str, Any]] = field(default_factory=list)
    """Of a capacity search: the levels played, with their runs."""
    default: dict[str, Any] | None = None
    deadlines: dict[str, Any] | None = None
    decode_step_ms: dict[str, float] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    confirmation: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Note something the reader of the result must know; once."""
        if text not in self.warnings:
            self.warnings.append(text)

    @property
    def default_knobs(self) -> Knobs | None:
        """What the engine chooses by itself; None before the first start."""
        return Knobs.from_dict(self.default) if self.default else None

    @property
    def reader_deadlines(self) -> Deadlines | None:
        """The frozen deadlines of the fluidity-index; None before the probe."""
        return Deadlines.from_dict(self.deadlines) if self.deadlines else None


class Study:
    """The directory of one study: `create` refuses an existing one, `resume` one that differs."""

    def __init__(self, directory: Path, config: StudyConfig, state: StudyState, clock: Clock) -> None:
        self.directory, self.config, self.state = directory, config, state
        self._clock, self._saved_at_ns = clock, clock.now_ns()
        self._lock: int | None = None

    @classmethod
    def create(cls, directory: Path, config: StudyConfig, clock: Clock) -> Self:
        lock = _own(directory)
        if (directory / "study.json").exists():
            os.close(lock)
            raise UsageError(f"{directory} holds a study already: add --resume to continue it, "
                             f"or give another --experiment-name")
        study = cls(directory, config, StudyState(), clock)
        study._lock = lock
        study.save()
        return study

    @classmethod
    def resume(cls, directory: Path, config: StudyConfig, clock: Clock) -> Self:
        _read_json(directory / "study.json")
        lock = _own(directory)
        try:
            # Read under the lock: another process may have changed it until now.
            saved = _read_json(directory / "study.json")
            if differences := config.differences(saved["config"]):
                raise UsageError(f"{directory} was begun with another {', '.join(differences)}: "
                                 f"resume it with the same, or start a new study")
            study = cls(directory, config, _readable(directory, lambda: StudyState(**saved["state"])), clock)
        except BaseException:
            os.close(lock)
            raise
        study._lock = lock
        return study

    @classmethod
    def saved_config(cls, directory: Path) -> StudyConfig:
        """What the study in `directory` was asked for."""
        saved = _read_json(directory / "study.json")
        return _readable(directory, lambda: StudyConfig.from_dict(saved["config"]))

    @property
    def journal(self) -> Path:
        """The file of finished trials."""
        return self.directory / "trials.journal"

    @property
    def recommended_config(self) -> Path:
        """The `vllm serve --config` file that is handed over."""
        return self.directory / "recommended.yaml"

    def next_run(self, purpose: str) -> str:
        """Name of a new run's directory below `directory`, relative; never handed out twice."""
        self.state.runs_made += 1
        return f"runs/{self.state.runs_made:03d}-{purpose}"

    def result(self) -> dict[str, Any]:
        """recommendation.json as it was written; EvidenceError when it is gone or damaged."""
        path = self.directory / "recommendation.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            content["verdict"]
        except (OSError, ValueError, TypeError, KeyError):
            raise EvidenceError(f"this study is finished, but its result {path} is gone or damaged: "
                                f"start a new study") from None
        return content

    def close(self) -> None:
        """Let another process have the study. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save(self) -> None:
        """Write the state, with the wall time since the last save added."""
        now_ns = self._clock.now_ns()
        self.state.wall_seconds += (now_ns - self._saved_at_ns) / 1e9
        self._saved_at_ns = now_ns
        self.write_json("study.json", {"schema_version": SCHEMA_VERSION, "config": self.config.as_dict(),
                                       "state": asdict(self.state)})

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file of the study whole or not at all."""
        write_json(self.directory / name, content)

    def write_text(self, name: str, text: str) -> None:
        """Write a file of the study whole or not at all."""
        write_text(self.directory / name, text)


def _own(directory: Path) -> int:
    """Hold the study for this process; its end gives it back, whatever ends it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(f"cannot write to {directory}: {error.strerror or error}; choose another "
                          f"--output-dir or --experiment-name") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UsageError(f"{directory} is in use by another process: wait for it, or give another "
                         f"--experiment-name") from None
    return lock


def _readable(directory: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EvidenceError(f"{directory / 'study.json'} is damaged ({error!r}): start a new study"
                            ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no study in {path.parent} to resume: leave --resume out") from None
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path} cannot be read ({error}): start a new study") from error
    if not isinstance(content, dict) or not {"config", "state"} <= set(content):
        raise EvidenceError(f"{path} is damaged: start a new study")
    if content.get("schema_version") != SCHEMA_VERSION:
        raise EvidenceError(f"{path} was written by another version of stallfree; start a new study")
    return content
