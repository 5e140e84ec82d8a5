"""`tune workload fit`: what it writes and says, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.fitting.own_trace import bursty_trace
from tuner.cli import main
from workloads import build_plan, load_workload


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs `tune workload fit` in an empty directory; returns code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main.main(["workload", "fit", *words])
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def trace(tmp_path: Path) -> str:
    made = bursty_trace(slots=60)
    rows = zip((made.arrival_ns / 1e9).tolist(), made.input_len.tolist(), made.output_len.tolist(),
               strict=True)
    lines = "".join(f"{when:.6f},{prompt},{answer}\n" for when, prompt, answer in rows)
    file = tmp_path / "secret-customer.csv"
    file.write_text("timestamp_s,input_len,output_len\n" + lines)
    return file.name


def test_a_fitted_file_is_a_workload_that_makes_the_traffic(tune: Any, trace: str) -> None:
    """The file loads, names neither the trace nor its path, and the figures are said to hold."""
    code, out, told = tune(trace, "--output", "w.yaml", "--json")
    assert (code, told) == (0, "")
    said = json.loads(out)
    assert said["holds"]
    assert (said["name"], said["arrivals"], said["workload"]) == ("w", "slots", "w.yaml")
    figures = said["agreement"]
    assert figures["rate (requests/s)"]["within"] == 0.01
    assert figures["prompt tokens p99"]["within"] == 0.05
    assert figures["index of dispersion, 10 s"]["within"] == 0.15
    assert "secret" not in Path("w.yaml").read_text()
    workload = load_workload("w.yaml")
    assert workload.digest() == said["digest"]
    plan = build_plan(workload, rate_rps=workload.recorded_rate_rps, duration_s=60, seed=3)
    assert plan.rate_rps == said["recorded_rate_rps"]


def test_the_screen_shows_both_side_by_side(tune: Any, trace: str) -> None:
    """Trace, model and difference of each figure, the verdict in words, and the files."""
    code, out, _ = tune(trace, "--output", "chat.yaml", "--name", "our-chat", "--report", "fit.md")
    assert code == 0
    assert "our-chat: traffic fitted to a trace of" in out.replace("\n", " ")
    assert "The model regenerates the trace" in out
    report = Path("fit.md").read_text()
    assert "| Prompt tokens p50 |" in report
    assert "Side by side" in report


def test_a_report_in_html_holds_the_agreement(tune: Any, trace: str) -> None:
    """The section about agreement and the charts of both."""
    code, _, _ = tune(trace, "--output", "w.yml", "--report", "fit.html")
    assert code == 0
    assert "Does the model make the same traffic?" in Path("fit.html").read_text()


def test_what_the_model_misses_is_said(tune: Any) -> None:
    """Five requests cannot be regenerated to 5 %: the figures that are off are named, and the code is 0."""
    Path("few.csv").write_text("timestamp_s,input_len,output_len\n" + "".join(
        f"{i * i},{10 ** (i + 1)},{7 * i + 1}\n" for i in range(5)))
    code, out, _ = tune("few.csv", "--output", "few.yaml")
    assert code == 0
    assert "The model misses the trace in" in out


def test_a_trace_without_times_has_lengths_only(tune: Any) -> None:
    """The file says that the rate is yours to give, and no rate is compared."""
    Path("lengths.csv").write_text("input_len,output_len\n" + "".join(
        f"{i},{2 * i}\n" for i in range(1, 200)))
    code, out, told = tune("lengths.csv", "--format", "csv", "--output", "w.yaml", "--json")
    assert code == 0, told
    assert json.loads(out)["recorded_rate_rps"] is None
    assert "rate (requests/s)" not in json.loads(out)["agreement"]
    assert "that is yours to give" in Path("w.yaml").read_text()


@pytest.mark.parametrize(("words", "complaint"), [
    (("--output", "w.json"), "must end in .yaml or .yml"),
    (("--output", "w.yaml", "--report", "w.pdf"), "must end in .html or .md"),
    (("--output", "w.yaml", "--window", "5..2"), "is not FROM..TO")])
def test_what_cannot_be_meant_is_refused(
    tune: Any, trace: str, words: tuple[str, ...], complaint: str
) -> None:
    """One line that says what to change, and nothing written."""
    code, _, told = tune(trace, *words)
    assert code != 0
    assert complaint in told
    assert not Path("w.yaml").exists()
