"""What a study keeps when its process is killed, and when it refuses to go on."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest

from engine_adapter.knobs import Knobs
from tests.tuner.studies import LIMITS, SMALL, explore, measured, opened, surface
from tuner.slo import parse_slo
from tuner.space import SearchSpace
from tuner.trial import TrialRecord
from workloads.errors import EvidenceError, UsageError


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


def test_resuming_goes_on_as_if_never_interrupted(tmp_path: Path) -> None:
    """A study closed after 14 trials and reopened asks for the same settings as one that ran through."""
    with opened(tmp_path / "a") as proposals:
        through = explore(proposals, 20)
    with opened(tmp_path / "b") as proposals:
        first = explore(proposals, 14)
    with opened(tmp_path / "b") as proposals:
        assert proposals.finished() == first
        assert proposals.abandon_running() == []
        assert explore(proposals, 6) == through


KILLED = """
import json, os, signal, sys
from pathlib import Path
from tests.tuner.studies import DEFAULT, explore, opened
proposals = opened(Path(sys.argv[1]))
proposals.enqueue(DEFAULT, "default")
for record in explore(proposals, 3):
    print(json.dumps(record.as_dict()), flush=True)
print(json.dumps(proposals.ask().knobs.as_dict()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_only_the_open_trial(journal: Path) -> None:
    """After a kill the finished list is the same, the lock is free, and the open setting is asked again."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(journal)], check=False,
                          capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL, done.stderr
    *records, open_knobs = (json.loads(line) for line in done.stdout.splitlines())
    with journal.open("ab") as file:
        file.write(b'{"op_code": 6, "worker')  # what a kill in the middle of a write leaves
    with opened(journal) as proposals:
        assert [record.as_dict() for record in proposals.finished()] == [
            TrialRecord.from_dict(values).as_dict() for values in records]
        with pytest.raises(RuntimeError, match="abandon_running"):
            proposals.ask()
        assert proposals.abandon_running() == [Knobs.from_dict(open_knobs)]
        again = proposals.ask()
        assert again is not None
        assert again.knobs == Knobs.from_dict(open_knobs)
        proposals.tell(again, surface(again, 3))
        assert len(explore(proposals, 2)) == 6


def test_a_record_written_before_the_kill_is_kept(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the record and its value, a measured trial is finished on resume, not measured again."""
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with opened(journal, SMALL) as proposals:
        proposal = proposals.ask()
        assert proposal is not None
        with monkeypatch.context() as patch:
            patch.setattr(optuna.Study, "tell", killed)
            with pytest.raises(KeyboardInterrupt):
                proposals.tell(proposal, measured(proposal, 0, 4.0))
    with opened(journal, SMALL) as proposals:
        assert proposals.abandon_running() == []
        assert [record.capacity_rps for record in proposals.finished()] == [4.0]


def test_a_kill_within_ask_leaves_nothing_open(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before a setting was picked, the trial is closed; queueing works before and after."""
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(journal, SMALL) as proposals, monkeypatch.context() as patch:
        patch.setattr(SearchSpace, "suggest", killed)
        with pytest.raises(KeyboardInterrupt):
            proposals.ask()
    with opened(journal, SMALL) as proposals:
        assert proposals.enqueue(Knobs(64, 8), "analytic")
        assert proposals.abandon_running() == []
        assert [record.knobs for record in explore(proposals, 1)] == [Knobs(64, 8)]


def test_one_process_at_a_time(journal: Path) -> None:
    """A journal in use is refused; closing it, also twice, frees it."""
    with opened(journal) as proposals:
        with pytest.raises(UsageError, match="in use by another process"):
            opened(journal)
        proposals.close()
        opened(journal).close()


@pytest.mark.parametrize(("changed", "named"), [
    ({"slo": parse_slo(["ttft:p99<=2s", "tbt:p99<=50ms"])}, "slo"),
    ({"extra_constraints": ["backlog"]}, "constraints"),
    ({"default": Knobs(64, 8)}, "default"),
    ({"space": SearchSpace((32, 64), (8,), (), (False,), LIMITS, longest_prompt=600)}, "space"),
])
def test_another_question_is_another_study(journal: Path, changed: dict[str, object], named: str) -> None:
    """Old trials do not answer a changed SLO, space or default: the study is refused."""
    opened(journal, SMALL).close()
    with pytest.raises(UsageError, match=f"begun with another .*{named}"):
        opened(journal, **({"space": SMALL} | changed))


def test_unusable_journals_are_refused(tmp_path: Path) -> None:
    """A missing folder and a file that is no journal give one line each, and nothing stays locked."""
    with pytest.raises(UsageError, match="cannot open the journal"):
        opened(tmp_path / "nowhere" / "study.journal")
    (tmp_path / "notes.txt").write_text("hello\nworld\n")
    for _ in range(2):
        with pytest.raises(EvidenceError, match="no study journal"):
            opened(tmp_path / "notes.txt")
