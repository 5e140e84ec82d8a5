"""The study behind ask and tell: what it proposes and what it teaches the sampler."""

import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from optuna.trial import TrialState

from engine_adapter.knobs import Knobs
from tests.tuner.studies import (
    DEFAULT,
    KEYS,
    SMALL,
    SPACE,
    crashed,
    explore,
    measured,
    opened,
    raw_trials,
    surface,
)
from tuner.sampler import Proposal
from tuner.slo import VIOLATION_CAP
from tuner.trial import WORST_VALUE, Outcome, TrialRecord
from workloads.errors import UsageError


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


def test_every_trial_carries_the_same_sorted_constraints(journal: Path) -> None:
    """Measured, crashed and repeated trials alike: same keys, same order, all finite, never none."""
    with opened(journal, SMALL, startup_trials=3) as proposals:
        explore(proposals, 3, lambda p, n: crashed(p, n) if n == 1 else measured(p, n, 1.0))
    trials = raw_trials(journal)
    assert len(trials) > 3
    assert any("duplicate_of" in trial.user_attrs for trial in trials)
    assert [list(trial.constraints) for trial in trials] == [KEYS] * len(trials)


def test_crashes_are_finished_infeasible_trials(journal: Path) -> None:
    """A crash is told at the cap with the worst value, where samplers see it; nothing fails or is pruned."""
    with opened(journal) as proposals:
        explore(proposals, 12)
    trials = raw_trials(journal)
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    told = [trial for trial in trials if trial.user_attrs.get("record", {}).get("outcome") == "crashed"]
    assert told
    for trial in told:
        assert set(trial.constraints.values()) == {VIOLATION_CAP}
        assert trial.value == WORST_VALUE


def test_an_slo_violation_is_told_not_pruned(journal: Path) -> None:
    """A run that was cut short because it could not hold any more is a finished trial with its violation."""
    with opened(journal, SMALL) as proposals:
        explore(proposals, 1, lambda p, n: measured(p, n, 0.0, tbt=0.7))
        assert proposals.best() is None
    (trial,) = raw_trials(journal)
    assert trial.state is TrialState.COMPLETE
    assert trial.constraints["tbt:p99"] == 0.7


def test_a_measured_trial_without_its_constraints_is_refused(journal: Path) -> None:
    """A trial that lacks a constraint could count as feasible: it is refused, and its proposal stays open."""
    with opened(journal, SMALL) as proposals:
        proposal = proposals.ask()
        assert proposal is not None
        partial = TrialRecord(number=0, knobs=proposal.knobs, source="sampler", outcome=Outcome.OK,
                              capacity_rps=1e9, constraints={"tbt:p99": -1.0}, seconds=1.0)
        with pytest.raises(ValueError, match="needs the constraints"):
            proposals.tell(proposal, partial)
        proposals.tell(proposal, measured(proposal, 0, 1.0))
        assert [record.capacity_rps for record in proposals.finished()] == [1.0]


def test_each_proposal_is_told_once(journal: Path) -> None:
    """A second ask before the tell, a second tell, and a tell for another setting are programming errors."""
    with opened(journal, SMALL) as proposals:
        proposal = proposals.ask()
        assert proposal is not None
        with pytest.raises(RuntimeError, match="a proposal is open"):
            proposals.ask()
        other = Proposal(Knobs(64 if proposal.knobs.token_budget != 64 else 32, 8), "x", proposal.token)
        with pytest.raises(ValueError, match="asked for"):
            proposals.tell(proposal, measured(other, 0, 1.0))
        proposals.tell(proposal, measured(proposal, 0, 1.0))
        with pytest.raises(ValueError, match="not open"):
            proposals.tell(proposal, measured(proposal, 0, 1.0))


def test_the_feasible_optimum_is_found_beside_crashes(tmp_path: Path) -> None:
    """Where half of the space crashes, 30 asks find the optimum for most seeds; a crash is never the best."""
    truth = [surface(Proposal(knobs, "", 0), 0) for knobs in SPACE.settings]
    assert sum(record.outcome.is_bad for record in truth) >= len(truth) / 2
    found = []
    for seed in range(7):
        with opened(tmp_path / str(seed), seed=seed) as proposals:
            proposals.enqueue(DEFAULT, "default")
            assert len({record.knobs for record in explore(proposals, 30)}) == 30
            best = proposals.best()
        assert best is not None
        assert best.outcome is Outcome.OK
        found.append(best.objective_value())
    assert statistics.median(found) == max(record.objective_value() for record in truth)


def test_nothing_is_best_while_everything_crashed(journal: Path) -> None:
    """Without a feasible trial there is no best one, however many have been told."""
    with opened(journal) as proposals:
        explore(proposals, 10, crashed)
        assert proposals.best() is None


def test_the_sampler_learns_from_crashes(journal: Path) -> None:
    """After the random start, crashing settings come less than half as often as the space holds them."""
    with opened(journal) as proposals:
        later = explore(proposals, 40)[10:]
    share = sum(knobs.token_budget > 128 for knobs in SPACE.settings) / len(SPACE)
    assert sum(record.outcome is Outcome.CRASHED for record in later) / len(later) < share / 2


def test_no_setting_is_asked_twice_and_the_end_is_none(journal: Path) -> None:
    """Every setting is measured once, then there is nothing left; also when all of them crash."""
    with opened(journal, SMALL, startup_trials=1) as proposals:
        records = explore(proposals, 10, crashed)
        assert sorted(record.knobs.token_budget for record in records) == [32, 64, 128]
        assert proposals.ask() is None
        assert proposals.best() is None


def test_queued_settings_come_first_in_their_order_and_once(journal: Path) -> None:
    """What is enqueued precedes the sampler; equal settings, queued or finished, are not queued again."""
    with opened(journal) as proposals:
        assert proposals.enqueue(DEFAULT, "default")
        assert proposals.enqueue(Knobs(128, 16), "analytic")
        assert not proposals.enqueue(Knobs(128, 16, 256, True), "neighbour")
        records = explore(proposals, 3)
        assert [record.source for record in records] == ["default", "analytic", "sampler"]
        assert records[0].knobs == DEFAULT
        assert not proposals.enqueue(DEFAULT, "default")


def test_settings_outside_the_space_are_not_queued(journal: Path) -> None:
    """A value off the grid is refused with the choices there are."""
    with opened(journal) as proposals, pytest.raises(UsageError, match="token_budgets has"):
        proposals.enqueue(Knobs(100, 8), "analytic")


def test_ties_go_to_fewer_changes_from_the_default(journal: Path) -> None:
    """Within the tolerance of the best value, the setting nearest to the engine's own is recommended."""
    values = {Knobs(512, 16): 9.95, Knobs(256, 16): 9.99, Knobs(256, 16, 64): 10.0, Knobs(128, 16): 9.0}
    with opened(journal) as proposals:
        for knobs in values:
            proposals.enqueue(knobs, "neighbour")
        explore(proposals, 4, lambda p, n: measured(p, n, values[p.knobs]))
        best = proposals.best()
    assert best is not None
    assert best.knobs == DEFAULT
    with opened(journal, tie_tolerance=0.002) as proposals:
        best = proposals.best()
    assert best is not None
    assert best.knobs == Knobs(256, 16)


def test_constraints_beside_the_slo_are_required_too(journal: Path) -> None:
    """A constraint that the caller adds is part of every trial, bad ones included."""
    with opened(journal, SMALL, extra_constraints=["backlog"]) as proposals:
        explore(proposals, 1, crashed)
        proposal = proposals.ask()
        assert proposal is not None
        with pytest.raises(ValueError, match="backlog"):
            proposals.tell(proposal, measured(proposal, 1, 1.0))
    assert list(raw_trials(journal)[0].constraints) == ["backlog", *KEYS]


def test_nothing_is_printed(journal: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Optuna says nothing on the user's terminal."""
    with opened(journal) as proposals:
        explore(proposals, 14)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_importing_the_sampler_loads_no_engine_and_no_statistics() -> None:
    """Neither torch, vllm, scipy nor pandas comes with the sampler; the other rooms come without Optuna."""
    code = ("import sys, tuner.slo, tuner.space, tuner.trial; assert 'optuna' not in sys.modules; "
            "import tuner.sampler; print({'torch', 'vllm', 'scipy', 'pandas'} & set(sys.modules))")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True,
                          capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "set()"
