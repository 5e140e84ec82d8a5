"""Which setting to try next: an Optuna study behind ask and tell.

What Optuna 5 leaves to its caller is decided here, once:
- every finished trial carries the same constraints, set once, in sorted order, before its value;
- a setting that crashed is a finished, infeasible trial: samplers do not see failed ones;
- nothing is pruned, and the sampler is always TPE, which respects constraints.
"""

import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from engine_adapter.knobs import Knobs
from tuner.slo import VIOLATION_CAP, Slo
from tuner.space import SearchSpace
from tuner.trial import TrialRecord
from workloads.errors import EvidenceError, UsageError


@dataclass(frozen=True, slots=True)
class Proposal:
    """A setting to measure; goes back with the record of its trial."""

    knobs: Knobs
    source: str
    token: int
    """Optuna's number of the trial."""


class Proposals:
    """The trials of one study, kept in a journal file that a killed process leaves readable.

    Asks depend on the seed and the trials finished so far, so a resumed study goes on as an
    uninterrupted one would have. One process at a time: the journal is locked until `close`.
    """

    def __init__(
        self,
        path: Path,
        *,
        study: str,
        space: SearchSpace,
        slo: Slo,
        default: Knobs,
        seed: int,
        extra_constraints: Iterable[str] = (),
        startup_trials: int = 6,
        tie_tolerance: float = 0.01,
    ) -> None:
        """Open the study, or create it with its file.

        `default` is the engine's own setting: among values within `tie_tolerance` (a share) of
        the best, the setting with the fewest changes from it wins. `extra_constraints` names
        constraints beside the SLO's that every measured trial reports; `startup_trials` settings
        are drawn at random before the model is used. Refused with a UsageError: a journal in use
        by another process, and a study made with another space, SLO or default.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._seed = space, seed
        self._default = space.normalise(default)
        self._keys = tuple(sorted({*slo.constraint_keys(), *extra_constraints}))
        self._startup_trials, self._tie_tolerance = startup_trials, tie_tolerance
        self._asked: tuple[Proposal, Trial] | None = None
        self._lock_fd: int | None = _own_journal(path)
        try:
            self._study = _open_study(path, study)
            self._check_identity({"space": space.as_dict(), "slo": [str(o) for o in slo.objectives],
                                  "constraints": list(self._keys), "default": self._default.as_dict()})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the journal. Idempotent."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def enqueue(self, knobs: Knobs, source: str) -> bool:
        """Have `knobs` asked before anything the sampler proposes; False when it is finished or queued.

        Refused with a UsageError: settings outside the space.
        """
        params, simple = self._space.params_of(knobs), self._space.normalise(knobs)
        pending = self._trials(TrialState.WAITING, TrialState.RUNNING)
        if simple in map(_knobs, pending) or simple in self._records():
            return False
        self._study.enqueue_trial(params, user_attrs={"source": source, "knobs": simple.as_dict()})
        return True

    @property
    def has_queued(self) -> bool:
        """Whether a setting waits to be asked."""
        return bool(self._trials(TrialState.WAITING))

    def enqueue_near(self, knobs: Knobs) -> None:
        """Queue the untried setting nearest to `knobs`, chance deciding among equally near ones.

        Nothing is queued when every setting is finished.
        """
        finished = self._records()
        untried = [other for other in self._space.settings if other not in finished]
        if untried:
            draw = np.random.default_rng((self._seed, len(finished)))
            distances = [(self._space.distance(other, knobs), draw.random()) for other in untried]
            self.enqueue(untried[distances.index(min(distances))], "neighbour")

    def ask(self) -> Proposal | None:
        """The next setting to measure, never a finished one; None when every setting is finished.

        The queue comes first, then the sampler. Where the sampler repeats itself, it is answered
        from the record, and the untried setting nearest to the best one is asked instead: a model
        that repeats itself has settled on a region. RuntimeError while an earlier proposal is open.
        """
        if self._trials(TrialState.RUNNING):
            raise RuntimeError("a proposal is open: tell it, or call abandon_running() on a resumed study")
        finished = self._records()
        if len(finished) == len(self._space):
            return None
        trial, proposal = self._draw()
        if proposal.knobs in finished:
            repeated = finished[proposal.knobs]
            self._finish(trial, repeated, "duplicate_of", repeated.number)
            centre = (self.best() or repeated).knobs
            untried = [knobs for knobs in self._space.settings if knobs not in finished]
            nearest = min(untried, key=lambda knobs: self._space.distance(knobs, centre))
            self.enqueue(nearest, "neighbour")
            trial, proposal = self._draw()
        return self._open(trial, proposal)

    def tell(self, proposal: Proposal, record: TrialRecord) -> None:
        """Finish the open proposal with what its trial came to; exactly once.

        ValueError for another proposal or setting, and for a measured trial that lacks a
        constraint; the proposal stays open then.
        """
        if self._asked is None or self._asked[0] != proposal:
            raise ValueError(f"proposal {proposal.token} is not open")
        if record.knobs != proposal.knobs:
            raise ValueError(f"asked for {proposal.knobs}, told {record.knobs}")
        if not record.outcome.is_bad and set(record.constraints) != set(self._keys):
            raise ValueError(f"a measured trial needs the constraints {self._keys}, got {record.constraints}")
        self._finish(self._asked[1], record, "record", record.as_dict())
        self._asked = None

    def finished(self) -> list[TrialRecord]:
        """The records of all finished trials, in the order they were asked."""
        return list(self._records().values())

    def best(self) -> TrialRecord | None:
        """The feasible record to recommend, or None: the highest value, ties to fewer changes.

        Among values within the tolerance of the highest: the fewest knobs changed from the default,
        then the most room below the limits (it is the likelier to hold again), then the shortest
        longest gap (percentiles are blind to rare stalls), then the earlier trial.
        """
        feasible = [record for record in self.finished() if record.feasible]
        if not feasible:
            return None
        enough = max(record.objective_value() for record in feasible) * (1 - self._tie_tolerance)
        tied = [record for record in feasible if record.objective_value() >= enough]
        return min(tied, key=lambda record: (
            self._changes(record.knobs), max(record.constraints.values()), record.longest_gap_ms()))

    def abandon_running(self) -> list[Knobs]:
        """Close what a killed process left running; returns the settings that will be asked again.

        A trial whose record was already written is finished with it. Others are closed, which hides them
        from the sampler, and queued again behind what was queued already.
        """
        self._asked = None
        again = []
        for trial in self._trials(TrialState.RUNNING):
            if "record" in trial.user_attrs:
                record = TrialRecord.from_dict(trial.user_attrs["record"])
                self._study.tell(trial.number, record.objective_value())
                continue
            self._study.tell(trial.number, state=TrialState.FAIL)
            knobs = _knobs(trial)
            if knobs is not None and self.enqueue(knobs, trial.user_attrs["source"]):
                again.append(knobs)
        return again

    def _draw(self) -> tuple[Trial, Proposal]:
        told = len(self._trials(TrialState.COMPLETE))
        seed = int(np.random.SeedSequence((self._seed, told)).generate_state(1)[0])
        self._study.sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, n_startup_trials=self._startup_trials
        )
        trial = self._study.ask()
        knobs = self._space.suggest(trial)
        return trial, Proposal(knobs, trial.user_attrs.get("source", "sampler"), trial.number)

    def _open(self, trial: Trial, proposal: Proposal) -> Proposal:
        trial.set_user_attr("source", proposal.source)
        trial.set_user_attr("knobs", proposal.knobs.as_dict())
        self._asked = (proposal, trial)
        return proposal

    def _finish(self, trial: Trial, record: TrialRecord, name: str, attribute: Any) -> None:
        """Constraints, then what is kept, then the value: a record that was written has its constraints."""
        for key in self._keys:
            trial.set_constraint(key, VIOLATION_CAP if record.outcome.is_bad else record.constraints[key])
        trial.set_user_attr(name, attribute)
        self._study.tell(trial, record.objective_value())

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _records(self) -> dict[Knobs, TrialRecord]:
        records = (TrialRecord.from_dict(trial.user_attrs["record"])
                   for trial in self._trials(TrialState.COMPLETE) if "record" in trial.user_attrs)
        return {record.knobs: record for record in records}

    def _changes(self, knobs: Knobs) -> int:
        return sum(getattr(knobs, f.name) != getattr(self._default, f.name) for f in fields(Knobs))

    def _check_identity(self, identity: dict[str, Any]) -> None:
        """A study's indices and constraints mean something only with the space and SLO it began with."""
        known = self._study.user_attrs.get("identity")
        if known is None:
            self._study.set_user_attr("identity", identity)
        elif differing := [name for name in identity if known.get(name) != identity[name]]:
            raise UsageError(f"this study was begun with another {' and '.join(differing)}: "
                             f"resume it with the same ones or start a new study")


class _AlreadyLocked(JournalFileOpenLock):
    """The backend's lock for a journal that `_own_journal` locked: Optuna's own outlives a killed process."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


def _own_journal(path: Path) -> int:
    """A descriptor that holds the lock on the journal until it is closed or the process dies.

    Cuts off a last line that was never finished: Optuna would append the next entry to it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"cannot open the journal {path}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise UsageError(f"{path} is in use by another process: wait for it or end it") from error
    content = path.read_bytes()
    os.ftruncate(fd, content.rfind(b"\n") + 1)
    return fd


def _storage(path: Path) -> optuna.storages.JournalStorage:
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(str(path), _AlreadyLocked(str(path))))
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{path} is damaged or no study journal: {error}") from error


def _open_study(path: Path, name: str) -> optuna.Study:
    try:
        return optuna.create_study(storage=_storage(path), study_name=name, direction="maximize",
                                   pruner=optuna.pruners.NopPruner(), load_if_exists=True)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise EvidenceError(f"{path} is damaged ({error!r}): start a new study") from error


def _knobs(trial: FrozenTrial) -> Knobs | None:
    """The setting of a queued or open trial; None where the process was killed before it had one."""
    values = trial.user_attrs.get("knobs")
    return None if values is None else Knobs.from_dict(values)
