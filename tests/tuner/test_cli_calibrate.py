"""`tune calibrate`: what it prints, writes and refuses."""

import json

import pytest

from bench import save_run
from tests.tuner.logged_runs import cpu_like, logged_run, run_with
from tests.tuner.test_calibration import simulated
from tuner.calibration import load_calibration
from tuner.cli.calibrate import calibrate
from tuner.cli.main import main
from workloads import EvidenceError, UsageError


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directories of two runs to fit to, and one to judge by."""
    home = tmp_path_factory.mktemp("runs")
    made = {"small": simulated(64, 2.0, seed=1), "large": simulated(512, 3.0, seed=2),
            "judge": simulated(256, 4.0, seed=3, seconds=30)}
    return {name: str(save_run(run, home / name)) for name, run in made.items()}


def test_the_file_is_written_and_the_errors_are_shown(runs, tmp_path, capsys):
    """One table by kind of step, one for each judge, and the file's name last."""
    file = tmp_path / "c.json"
    calibrate([runs["small"], runs["large"]], output=str(file), against=[runs["judge"]], as_json=False)
    out = capsys.readouterr().out
    assert out.rstrip().endswith(str(file))
    for words in ("Runs    2,", "all steps", "decode only", "largest chunk", "run small", "judge",
                  "TBT p99, ms", "TPOT p50, ms", "output throughput, 1/s"):
        assert words in out
    assert [run["name"] for run in load_calibration(file).runs] == ["small", "large"]


def test_json_is_all_that_goes_to_standard_output(runs, tmp_path, capsys):
    """The calibration, and the comparisons beside it."""
    file = tmp_path / "c.json"
    calibrate([runs["small"], runs["large"]], output=str(file), against=[runs["judge"]], as_json=True)
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["file"], told["kind"]) == (str(file), "calibration")
    assert told["against"][0]["run"] == "judge"
    errors = {(figure["metric"], figure["stat"]): figure["error"] for figure in told["against"][0]["figures"]}
    assert max(abs(errors["ttft", "p50"]), abs(errors["tpot", "p50"])) < 0.02
    assert "decode only" in captured.err


def test_a_judge_among_the_sources_writes_nothing(runs, tmp_path):
    """It would praise itself; the file appears only when all went well."""
    file = tmp_path / "c.json"
    with pytest.raises(EvidenceError, match="was used to calibrate"):
        calibrate([runs["small"], runs["large"]], output=str(file), against=[runs["small"]], as_json=False)
    assert not file.exists()


def test_what_is_no_run_is_wrong_usage_or_no_evidence(runs, tmp_path):
    """A missing directory is wrong usage, one without a run is no evidence."""
    with pytest.raises(UsageError, match="is no directory"):
        calibrate([str(tmp_path / "none")], output="c.json", against=None, as_json=False)
    with pytest.raises(EvidenceError, match="no run directory"):
        calibrate([str(tmp_path)], output="c.json", against=None, as_json=False)


def test_the_command_line_says_it_in_one_line(tmp_path, capsys):
    """A run of a remote server has no step log: exit code 3."""
    from engine_adapter.step_log import StepLog

    remote = save_run(run_with(StepLog()), tmp_path / "remote")
    with pytest.raises(SystemExit) as left:
        main(["calibrate", str(remote), "--output", str(tmp_path / "c.json")])
    assert left.value.code == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "remote has no step log" in error


def test_runs_of_one_name_are_told_apart(tmp_path, capsys):
    """By their whole path."""
    paths = [str(save_run(logged_run(cpu_like(), seed=seed), tmp_path / part / "run"))
             for seed, part in ((1, "a"), (2, "b"))]
    calibrate(paths, output=str(tmp_path / "c.json"), against=None, as_json=False)
    assert [run["name"] for run in load_calibration(tmp_path / "c.json").runs] == paths
    assert capsys.readouterr().err == ""
