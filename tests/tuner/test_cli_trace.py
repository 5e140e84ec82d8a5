"""Traces on the command line: replayed row by row, at their times or another rate, searched, and refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bench import load_run
from tuner.cli.main import app, main
from workloads import UsageError, load_workload

_SIM = ["--hardware", "h100-sxm", "--model", "llama-3.1-8b"]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments: str) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, UsageError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Thirty requests, two a second, with tenants, conversations and one row that is too long."""
    rows = ["timestamp_s,input_len,output_len,tenant"]
    rows += [f"{i / 2},{100 + i},{5 + i % 3},{'chat' if i % 3 else 'batch'}" for i in range(30)]
    rows[8] = "3.5,90000,10,chat"
    path = tmp_path / "traffic.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def simulated(trace: Path, *flags: str) -> tuple[Any, dict[str, Any]]:
    home = trace.parent / "out"
    name = f"r{len(list(home.iterdir())) if home.exists() else 0}"
    result = invoke("simulate", "--trace", trace, *_SIM, *flags, "--json", "-o", home, "-e", name)
    assert result.exit_code == 0, result.output
    return load_run(home / name), json.loads(result.stdout)


def test_rows_are_sent_in_order_at_their_own_times(trace: Path) -> None:
    """Without a rate: every row, its lengths, its time; what is too long is left out and said."""
    run, told = simulated(trace, "--max-model-len", "8192")
    assert len(run) == 29
    np.testing.assert_array_equal(np.diff(run.intended_ns)[:6], [500_000_000] * 6)
    assert run.input_len[:3].tolist() == [100, 101, 102]
    assert told["requested_rate"] == pytest.approx(28 / 14.5)
    assert any("1 rows were left out (1 too long)" in warning for warning in told["warnings"])
    assert run.meta["trace"] == {"name": "traffic.csv", "rows": 29, "rejected": {"too long": 1}, "clipped": 0}
    assert run.meta["component_names"] == ["batch", "chat"]
    assert (run.meta["arrivals"], run.meta["burstiness"]) == ("as recorded", None)


def test_a_rate_a_scale_and_a_window_change_times_and_nothing_else(trace: Path) -> None:
    """Ten times the rate is a tenth of the time; a window takes some of the rows."""
    whole, _ = simulated(trace, "--clip-long", "--max-model-len", "8192")
    fast, told = simulated(trace, "--clip-long", "--max-model-len", "8192", "--request-rate", "20")
    np.testing.assert_allclose(np.diff(fast.intended_ns), np.diff(whole.intended_ns) / 10, atol=2)
    np.testing.assert_array_equal(fast.input_len, whole.input_len)
    assert told["requested_rate"] == 20
    half, _ = simulated(trace, "--clip-long", "--max-model-len", "8192", "--trace-time-scale", "0.5")
    np.testing.assert_allclose(np.diff(half.intended_ns), np.diff(whole.intended_ns) / 2, atol=2)
    part, _ = simulated(trace, "--max-model-len", "8192", "--trace-window", "5..10")
    assert part.input_len.tolist() == list(range(110, 120))
    small, _ = simulated(trace, "--scale-lengths", "0.5", "--num-prompts", "5")
    assert small.input_len.sum() == pytest.approx(510 / 2, abs=1)


def test_another_seed_begins_at_another_row_and_copies_none(trace: Path) -> None:
    """Seed 0 begins with the first row; another one somewhere else, and goes around."""
    first, _ = simulated(trace, "--max-model-len", "8192")
    other, _ = simulated(trace, "--max-model-len", "8192", "--seed", "5")
    assert first.input_len[0] == 100
    assert other.input_len[0] != 100
    assert sorted(other.input_len.tolist()) == sorted(first.input_len.tolist())
    assert (np.diff(other.intended_ns) >= 0).all()


def test_a_workload_file_replays_traces_and_promises_tenants(trace: Path, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """`traces` stands in place of components; the path is relative to the file, from wherever it is read."""
    (tmp_path / "traffic.yaml").write_text(
        "name: mine\ndescription: ours\ntraces: [{path: traffic.csv, too_long: clip}]\nmax_model_len: 4096\n"
        "tenants: {chat: {slo: ['ttft:p50<=10s']}, batch: {}}\n"
        "slo: ['tbt:p99<=1s']\ndecode_deadline_ms: 50\nrun_seconds: 5\nwarmup_seconds: 1\n")
    monkeypatch.chdir("/")
    workload = load_workload(tmp_path / "traffic.yaml")
    assert [c.name for c in workload.components] == ["batch", "chat"]
    assert workload.shares == pytest.approx((1 / 3, 2 / 3))
    assert workload.longest_request == 4096
    assert workload.objectives == ("tbt:p99<=1s", "chat/ttft:p50<=10s")
    again = type(workload).model_validate(workload.saved())
    assert again.digest() == workload.digest()
    (tmp_path / "moved").mkdir()
    trace.rename(tmp_path / "moved" / "other-name.csv")
    (tmp_path / "moved.yaml").write_text((tmp_path / "traffic.yaml").read_text().replace(
        "traffic.csv", "moved/other-name.csv"))
    assert load_workload(tmp_path / "moved.yaml").digest() == workload.digest()


def test_a_study_searches_a_trace_over_rates_and_resumes_from_anywhere(
        trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tune run --trace` on the simulator: a recommendation, and --resume reads the trace again."""
    home = trace.parent
    result = invoke("run", "--trace", trace, "--clip-long", "--max-model-len", "4096", *_SIM, "--engine",
                    "sim", "--slo", "tbt:p99<=100ms", "--num-trials", "2", "--run-seconds", "5", "-o", home,
                    "-e", "s")
    assert result.exit_code in (0, 2), result.output
    told = json.loads((home / "s" / "recommendation.json").read_text())
    assert any("has 30 requests, fewer than a run needs" in warning for warning in told["warnings"])
    monkeypatch.chdir("/")
    again = invoke("run", "--resume", "-o", home, "-e", "s", "--trace", trace, "--clip-long")
    assert "began" not in again.output
    assert again.exit_code in (0, 2), (again.output, again.exception)
    assert "another --trace" in refused("run", "--resume", "-o", home, "-e", "s", "--trace", trace,
                                        "--trace-window", "0..5")


def test_a_study_whose_trace_has_changed_is_not_gone_on_with(trace: Path) -> None:
    """Its runs would be of two loads: that is said, with what to do."""
    home = trace.parent
    invoke("run", "--trace", trace, "--clip-long", "--max-model-len", "4096", *_SIM, "--engine", "sim",
           "--slo", "tbt:p99<=100ms", "--num-trials", "1", "--run-seconds", "5", "-o", home, "-e", "s")
    trace.write_text(trace.read_text().replace("0.5,101,", "0.5,100,"))
    assert "has changed since this study began" in refused("run", "--resume", "-o", home, "-e", "s")
    trace.unlink()
    assert "traffic.csv" in refused("run", "--resume", "-o", home, "-e", "s")


@pytest.mark.parametrize(("flags", "complaint"), [
    (["--preset", "chat"], "exactly one of"),
    (["--trace-window", "9..1"], "9..1"),
    (["--trace-time-unit", "weeks"], "time_unit"),
    (["--scale-lengths", "twice"], "neither a number nor"),
    (["--scale-lengths", "fit"], "max_model_len"),
    (["--trace-format", "azur"], "unknown trace format"),
    (["--num-prompts", "31"], "has 30 requests"),
    (["--max-model-len", "20"], "every request"),
    (["--stages", "5s@2"], "arrivals of its own"),
])
def test_what_cannot_be_replayed_is_refused_in_one_line(
        trace: Path, flags: list[str], complaint: str) -> None:
    """Before anything is simulated."""
    assert complaint in refused("simulate", "--trace", trace, *_SIM, *flags)


def test_flags_about_a_trace_need_one(tmp_path: Path) -> None:
    """And a file that is not there is said by name."""
    assert "needs a --trace" in refused("simulate", "--preset", "chat", "--spread-ticks", *_SIM)
    assert "needs a --trace" in refused("run", "--preset", "chat", "--scale-lengths", "2", "--dry-run")
    assert "nowhere.csv" in refused("simulate", "--trace", tmp_path / "nowhere.csv", *_SIM)
    assert "both say what to send" in refused("run", "--preset", "chat", "--trace", "x.csv", "--dry-run")


@pytest.mark.parametrize("command", [
    ["workload", "show"], ["workload", "fit", "--output", "x.yaml"],
    ["workload", "make", "--output", "x.jsonl"], ["simulate", *_SIM, "--trace"]])
@pytest.mark.parametrize("path", ["", "a" * 300])
def test_what_cannot_be_a_path_is_wrong_usage(
        command: list[str], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable and a word that is too long for a name are said in one line, exit code 64."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main([*command, path])
    assert left.value.code == 64
    assert capsys.readouterr().err.count("\n") == 1
