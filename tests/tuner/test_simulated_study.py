"""`tune run --engine sim`: a whole study in which nothing runs, and everything says so."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine_adapter.simulator.step_cost import StepCost
from tests.tuner.simulated import COST, write_calibration
from tuner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SIM = ("run", "--engine", "sim", "--hardware", "c.json")
SHORT = (*SIM, "--preset", "cpu", "-e", "s", "--run-seconds", "20", "--slo", "tbt:p99<=120ms",
         "--slo", "fluidity:p10>=0.9", "--decode-deadline-ms", "60")


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `tune` in a directory with the calibration c.json; returns code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    write_calibration(tmp_path / "c.json")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


def test_a_study_finds_proves_and_says_that_it_is_simulated(tune: Any, tmp_path: Path) -> None:
    """A budget below the default's holds where the default breaks the SLO, on arrivals that the search has
    not seen; verdict, warning, files and screen tell that nobody measured it."""
    code, out, err = tune(*SHORT, "--num-trials", "6", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["verdict"] == "recommended"
    assert result["verdict_text"].endswith("; simulated, to be confirmed on the engine")
    assert result["simulated"] is True
    assert result["simulation"]["hardware"] == "cpu of c.json"
    assert result["simulation"]["cost"] == "fitted to 2 runs of vllm 0.32.0"
    assert result["recommended"]["knobs"]["token_budget"] < 512 < result["default"]["knobs"]["token_budget"]
    assert result["recommended"]["confirmed"]["holds"]
    assert not result["default"]["confirmed"]["holds"]
    assert result["recommended"]["effective_knobs"] == result["recommended"]["knobs"]
    assert any("all were simulated" in warning for warning in result["warnings"])
    assert len(result["trials"]) == 6
    assert "SIMULATED" in err
    study = tmp_path / "results" / "s"
    handed_over = (study / "recommended.yaml").read_text()
    assert handed_over.startswith("# SIMULATED: small-model on cpu of c.json, fitted to 2 runs")
    assert yaml.safe_load(handed_over)["max-num-batched-tokens"] == (
        result["recommended"]["knobs"]["token_budget"])
    assert "Simulated" in (study / "report.html").read_text()
    head = json.loads((study / result["recommended"]["confirmed"]["run"] / "run.json").read_text())
    assert head["meta"]["engine"]["name"] == "simulator"
    assert not (study / "logs").exists()


def test_the_same_study_gives_the_same_answer(tune: Any) -> None:
    """Every figure and every trial of it, whenever and wherever it is played."""
    results = []
    for name in ("one", "other"):
        code, out, err = tune(*SHORT, "-e", name, "--num-trials", "3", "--json")
        assert code == 0, err
        told = json.loads(out)
        results.append([(trial["knobs"], trial["capacity_rps"], [run["figures"] for run in trial["runs"]])
                        for trial in told["trials"]])
    assert results[0] == results[1]


def test_an_interrupted_study_goes_on(tune: Any, tmp_path: Path) -> None:
    """Ctrl-C in the search exits 130 and keeps what was simulated; --resume ends it, with more trials."""
    with subprocess.Popen(
            [sys.executable, "-c", "import sys; from tuner.cli.main import main; main(sys.argv[1:])", *SHORT,
             "--num-trials", "40", "--json"],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
            stdout=subprocess.DEVNULL) as study:
        assert study.stderr is not None
        next(line for line in study.stderr if "trial 3" in line)
        study.send_signal(signal.SIGINT)
        study.stderr.read()
    assert study.returncode == 130
    began = json.loads((tmp_path / "results" / "s" / "recommendation.json").read_text())
    assert began["verdict"] == "unfinished"
    assert began["simulated"] is True
    code, out, err = tune("run", "--resume", "-e", "s", "--num-trials", "5", "--json")
    assert code == 0, err
    finished = json.loads(out)
    assert len(finished["trials"]) == max(5, len(began["trials"]))
    assert [trial["knobs"] for trial in finished["trials"]][:2] == [
        trial["knobs"] for trial in began["trials"]][:2]


def test_a_study_is_not_resumed_on_another_cost(tune: Any, tmp_path: Path) -> None:
    """A calibration that changed since would mix two engines in one study."""
    assert tune(*SHORT, "--num-trials", "1")[0] in (0, 1, 2)
    write_calibration(tmp_path / "c.json", StepCost.linear(token_ns=1.0))
    code, _, err = tune("run", "--resume", "-e", "s", "--num-trials", "3")
    assert code == 64
    assert "has changed since" in err
    write_calibration(tmp_path / "c.json", COST)
    code, _, err = tune("run", "--resume", "-e", "s", "--max-model-len", "64")
    assert code == 64
    assert "another --max-model-len" in err


def test_the_time_budget_is_of_the_wall_clock(tune: Any) -> None:
    """A minute holds more simulated seconds than any search needs; runs of half an hour fit into it."""
    code, out, err = tune(*SIM, "--preset", "cpu", "-e", "s", "--run-seconds", "300", "--rate", "0.8",
                          "--num-trials", "3", "--max-minutes", "0.5", "--json")
    assert code in (0, 1), err
    told = json.loads(out)
    assert len(told["trials"]) == 3
    assert told["wall_seconds"] < 30


def test_a_sheet_is_tuned_for_as_well(tune: Any, tmp_path: Path) -> None:
    """Hardware and model by name; the file that is handed over says that the name is a sheet's."""
    code, _, err = tune("run", "--engine", "sim", "--hardware", "cpu-avx512-2", "--model", "smollm2-135m",
                        "--preset", "cpu", "--rate", "0.3", "--num-trials", "1", "-e", "s")
    assert code in (0, 1, 2), err
    result = json.loads((tmp_path / "results" / "s" / "recommendation.json").read_text())
    assert result["simulation"]["model"] == "smollm2-135m"
    if result["recommended"] is not None:
        assert "named as its sheet is" in (tmp_path / "results" / "s" / "recommended.yaml").read_text()


def test_a_dry_run_starts_nothing(tune: Any, tmp_path: Path) -> None:
    """It names what would be simulated, and takes seconds, not minutes."""
    code, out, _ = tune(*SIM, "--preset", "cpu", "--dry-run")
    assert code == 0
    assert "simulated  c.json" in out
    assert "none is started: every run is simulated" in out
    assert " min" not in out.split("duration")[1].splitlines()[0]
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("flags", "message"), [
    (("--engine", "fast"), "unknown --engine 'fast'; known: sim"),
    (("--engine", "sim"), "say what to simulate with --hardware"),
    (("--hardware", "h100-sxm"), "--hardware is about a simulated engine: add --engine sim"),
    ((*SIM[1:], "--base-url", "http://127.0.0.1:1"), "leave out --base-url"),
    ((*SIM[1:], "--server", "vllm"), "leave out --server"),
    ((*SIM[1:], "--engine-arg", "quantization=fp8"), "leave out --engine-arg"),
    ((*SIM[1:], "--tensor-parallel-size", "2"), "leave out --tensor-parallel"),
    (("--engine", "sim", "--hardware", "h1", "--model", "x"), "unknown hardware sheet 'h1'; known:"),
])
def test_flags_that_contradict_are_refused_before_anything(
    tune: Any, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    """In one line that says which to leave out; nothing is written."""
    code, out, err = tune("run", "--preset", "cpu", *flags)
    assert code == 64
    assert message in err
    assert err.count("\n") == 1
    assert not out
    assert not (tmp_path / "results").exists()


def test_a_workload_longer_than_the_model_is_refused(tune: Any) -> None:
    """As on an engine, before anything is searched."""
    code, _, err = tune(*SIM, "--preset", "chat")
    assert code == 64
    assert "longest request" in err
