"""`tune workload show`: the JSON contract, the screen, the report, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import main

TRACE = """\
timestamp_s,input_len,output_len
0,1000,10
0.5,3000,20
1.25,5000,300
"""


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `tune workload show`; returns code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main.main(["workload", "show", *words])
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(TRACE)
    return file


def test_json_has_what_is_promised(tune: Any, trace: Path) -> None:
    """The names, the nesting and the numbers that other tools read; nothing else on standard output."""
    code, out, told = tune(str(trace), "--format", "csv", "--json")
    assert (code, told) == (0, "")
    found = json.loads(out)
    assert found["rows"] == 3
    assert found["span_s"] == 1.25
    assert found["rate_rps"] == pytest.approx(2.4)
    assert found["arrival_cv"] == pytest.approx(0.2)
    assert found["index_of_dispersion"] == {"1s": pytest.approx(1 / 6), "10s": None, "60s": None}
    assert {name: found["input_len"][name] for name in ("mean", "p50", "p90", "p99", "max")} == {
        "mean": 3000, "p50": 3000, "p90": 4600, "p99": pytest.approx(4960), "max": 5000}
    assert found["output_len"]["max"] == 300
    assert (found["prefix_reuse"], found["rejected"], found["rejected_by_reason"]) == (None, 0, {})
    assert found["format"] == "csv"
    assert found["chunking"]["verdict"] == "good_fit"


def test_rows_that_do_not_fit_are_counted(tune: Any, trace: Path) -> None:
    """Too long ones are left out by reason, or cut when asked."""
    found = json.loads(tune(str(trace), "--max-model-len", "4000", "--json")[1])
    assert (found["rows"], found["rejected"], sum(found["rejected_by_reason"].values())) == (2, 1, 1)
    found = json.loads(tune(str(trace), "--max-model-len", "4000", "--clip-long", "--json")[1])
    assert (found["rows"], found["rejected"], found["clipped"]) == (3, 0, 1)
    assert found["input_len"]["max"] == 3700


def test_the_screen_says_what_the_trace_is_like(tune: Any, trace: Path) -> None:
    """Lengths, arrivals and advice in words."""
    code, out, _ = tune(str(trace))
    assert code == 0
    for word in ("trace.csv", "3 requests", "Prompt tokens", "Chunked prefill", "token budget"):
        assert word in out


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_is_written_beside(tune: Any, trace: Path, tmp_path: Path, ending: str) -> None:
    """The file is named on the screen, and in the JSON."""
    file = tmp_path / f"report.{ending}"
    assert json.loads(tune(str(trace), "--output", str(file), "--json")[1])["report"] == str(file)
    assert "Traffic of trace.csv" in file.read_text(encoding="utf-8")


def test_a_preset_is_shown_as_its_plan(tune: Any) -> None:
    """The requests that a seed and a rate give, without a warm-up; the same each time."""
    first, second = (json.loads(tune("mixed", "--request-rate", "10", "--duration", "30", "--json")[1])
                     for _ in range(2))
    assert first == second
    assert first["format"] == "workload"
    assert first["rate_rps"] == pytest.approx(10, rel=0.3)
    assert sum(part["rows"] for part in first["components"].values()) == first["rows"]
    other = json.loads(tune("mixed", "--request-rate", "10", "--duration", "30", "--seed", "1", "--json")[1])
    assert other["plan_digest"] != first["plan_digest"]


def test_the_pace_of_answers_is_the_workloads_own(tune: Any) -> None:
    """The decode deadline decides how many answers are taken to run, unless a flag says otherwise."""
    load = ("chat", "--request-rate", "5", "--duration", "20", "--json")
    own, asked = (json.loads(tune(*load, *more)[1])["chunking"]
                  for more in ((), ("--decode-deadline-ms", "10")))
    assert asked["token_interval_s"] == 0.01
    assert own["answers_running"] == pytest.approx(
        asked["answers_running"] * own["token_interval_s"] / 0.01)


@pytest.mark.parametrize(("words", "said"), [
    (("chat",), "--request-rate"),
    (("chat", "--request-rate", "4", "--format", "csv"), "YAML"),
    (("chat", "--request-rate", "4", "--rows", "3"), "YAML"),
    (("{trace}", "--request-rate", "4"), "times of its own"),
    (("{trace}", "--output", "report.pdf"), ".html or .md"),
    (("{trace}", "--decode-deadline-ms", "0"), "above 0"),
    (("{trace}", "--format", "nonsense"), "nonsense"),
    (("missing.csv",), "missing.csv"),
    (("missing.yaml", "--request-rate", "4"), "missing.yaml"),
])
def test_what_cannot_be_meant_is_refused_in_one_line(tune: Any, trace: Path, words: tuple[str, ...],
                                                     said: str) -> None:
    """Exit code 64, and a line that says what to do."""
    code, out, told = tune(*(word.format(trace=trace) for word in words))
    assert (code, out) == (64, "")
    assert said in told
    assert told.count("\n") == 1
