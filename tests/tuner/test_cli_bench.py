"""`tune bench`: flags, what is printed and written, exit codes; on the scripted engine and on vLLM."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import load_head
from engine_adapter.clock import VirtualClock
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.scripted import Fault, LinearStep, ScriptedEngine
from tests.engine_adapter.engines import needs_vllm, tiny_launch
from tuner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
LOAD = ("--input-len", "64", "--output-len", "8")
TWENTY = (*LOAD, "--request-rate", "4", "--num-prompts", "20")


@pytest.fixture
def bench(monkeypatch, tmp_path, capsys):
    """Runs `tune bench` on scripted engines in an empty directory; returns code, stdout and stderr."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    def run(*arguments, model="model", **options):
        clock = VirtualClock()
        run.engines = []

        def make(launch, **_):
            run.engines.append(ScriptedEngine(clock, **{
                "knobs": launch.knobs or Knobs(256, 16), "limits": KnobLimits(256, 16, 1024), **options}))
            run.launch = launch
            return run.engines[-1]

        monkeypatch.setattr("engine_adapter.clock.WallClock", lambda: clock)
        monkeypatch.setattr("tuner.engines.EmbeddedVllm", make)
        with pytest.raises(SystemExit) as left:
            main(["bench", *(["--model", model] if model else []), "-e", "one", *arguments])
        assert all(engine._loop is None for engine in run.engines)
        return left.value.code, *capsys.readouterr()

    return run


def test_a_run_ends_with_one_screen_and_a_run_directory(bench, tmp_path):
    """Progress goes to stderr, the screen to stdout; the run lies where it says, with the engine's log."""
    code, out, err = bench(*TWENTY)
    assert code == 0
    assert "20 of 20 requests succeeded" in out
    assert "results/one" in out
    assert "starting the engine" in err
    assert load_head(tmp_path / "results" / "one")["validity"]["valid"]
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["one"]
    assert (tmp_path / "results" / "one" / "engine-logs").is_dir()


def test_json_is_all_that_stdout_carries(bench):
    """With --json stdout is one object with vLLM's keys and ours; the screen goes to stderr."""
    code, out, err = bench(*TWENTY, "--json", "--slo", "tbt:max<=10s", "--goodput", "ttft:5000 tpot:500")
    told = json.loads(out)
    assert code == 0
    assert (told["completed"], told["failed"], told["request_rate"], told["valid"]) == (20, 0, 4, True)
    assert told["mean_ttft_ms"] > 0
    assert told["goodput_attainment"] == 1
    assert told["slo"]["holds"] is True
    assert told["fluidity_index_mean"] is not None
    assert "requests succeeded" in err


def test_the_settings_reach_the_engine(bench):
    """The knobs in force are those of the flags; the seed and the burstiness those of the load."""
    _, out, _ = bench(
        *TWENTY, "--json", "--max-num-batched-tokens", "64", "--max-num-seqs", "8", "--seed", "7",
        "--long-prefill-token-threshold", "32", "--long-prefill-token-threshold-adaptive",
        "--burstiness", "0.5", "--label", "mine", "--metadata", "driver = 600", "--num-warmups", "3")
    told = json.loads(out)
    assert told["knobs"] == {"token_budget": 64, "max_seqs": 8, "long_prefill_token_threshold": 32,
                             "adaptive_long_prefill": True, "policy": "fcfs"}
    assert (told["seed"], told["burstiness"], told["label"], told["driver"]) == (7, 0.5, "mine", "600")
    assert told["warmup_excluded"] == 3


def test_lengths_and_a_number_of_prompts_alone_are_sent_at_once(bench):
    """As in `vllm bench serve` the request rate is then inf, and nothing is warm-up."""
    _, out, _ = bench(*LOAD, "--num-prompts", "10", "--json", "--no-fluidity")
    told = json.loads(out)
    assert (told["request_rate"], told["warmup_excluded"], told["max_concurrent_requests"]) == ("inf", 0, 10)


def test_the_result_file_is_vllms(bench, tmp_path):
    """--save-detailed writes the figures and parallel lists of every request, in seconds."""
    code, _, _ = bench(*TWENTY, "--save-result", "--save-detailed", "--result-dir", "out",
                       "--result-filename", "r.json")
    told = json.loads((tmp_path / "out" / "r.json").read_text())
    assert code == 0
    assert told["completed"] == 20
    for name in ("input_lens", "output_lens", "ttfts", "itls", "start_times", "latencies", "errors",
                 "success"):
        assert len(told[name]) == 20
    assert sum(told["ttfts"]) / 20 * 1000 == pytest.approx(told["mean_ttft_ms"])


def test_an_earlier_runs_curve_can_be_given(bench, tmp_path):
    """The curve of one run judges the next, so that both have the same deadlines."""
    _, out, _ = bench(*TWENTY, "--json")
    (tmp_path / "results" / "one").rename(tmp_path / "first")
    _, again, _ = bench(*TWENTY, "--json", "--prefill-curve", "first", "--max-num-batched-tokens", "32")
    ids = [json.loads(text)["deadlines"]["prefill_curve_id"] for text in (out, again)]
    assert ids[0] == ids[1]


def test_a_configuration_file_starts_the_engine_alone(bench, tmp_path):
    """--config is the whole launch: its model, no settings applied on top."""
    (tmp_path / "recommended.yaml").write_text("model: model\nmax-num-batched-tokens: 64\n")
    code, out, _ = bench(*TWENTY, "--json", "--config", "recommended.yaml", model=None, knobs=Knobs(64, 8))
    assert code == 0
    assert bench.launch.config_file == tmp_path / "recommended.yaml"
    assert json.loads(out)["knobs"]["token_budget"] == 64


def test_missing_the_slo_is_exit_code_1(bench):
    """The verdict is on the screen and in one line on stderr."""
    code, out, err = bench(*TWENTY, "--slo", "tbt:max<=1ms")
    assert code == 1
    assert "tbt:max<=1ms" in out
    assert err.splitlines()[-1].startswith("tune: the SLO is missed: tbt:max<=1ms")


def test_an_engine_that_dies_is_exit_code_3_and_keeps_the_run(bench, tmp_path):
    """What was measured is kept, one line says why, and no traceback is shown."""
    code, out, err = bench(*TWENTY, "--no-fluidity", faults=(Fault("crash", at_step=60),))
    assert code == 3
    assert err.splitlines()[-1].startswith("tune: the engine failed: the engine died at step")
    assert "Traceback" not in out + err
    assert load_head(tmp_path / "results" / "one")["engine_failure"]["kind"] == "Crashed"


def test_an_engine_that_does_not_start_says_where_its_log_is(bench, tmp_path):
    """No run is kept; the error is one line and the engine's log stays."""
    code, _, err = bench(*TWENTY, faults=(Fault("out_of_memory"),))
    assert code == 3
    assert "no memory for the KV cache" in err.splitlines()[-1]
    assert "results/one.logs" in err
    assert not (tmp_path / "results" / "one").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_mid_run_keeps_what_was_measured(bench, tmp_path, number):
    """Ctrl-C and SIGTERM: exit code 130, the run kept and marked as cut short, the engine stopped."""
    cost, steps = LinearStep(), iter(range(1_000_000))

    def step_cost(*composition):
        if next(steps) == 60:
            os.kill(os.getpid(), number)
        return cost(*composition)

    code, _, err = bench(*TWENTY, "--no-fluidity", step_cost=step_cost)
    assert code == 130
    assert err.splitlines()[-1] == "tune: interrupted; what was measured is in results/one"
    validity = load_head(tmp_path / "results" / "one")["validity"]
    assert validity["reasons"][0] == "the run was cut short: interrupted"


def test_a_signal_before_the_run_leaves_no_run(bench, tmp_path):
    """While lone prefills are measured there is nothing to keep yet; the exit code is 130 all the same."""
    def step_cost(*composition):
        os.kill(os.getpid(), signal.SIGINT)
        return LinearStep()(*composition)

    code, _, err = bench(*TWENTY, step_cost=step_cost)
    assert code == 130
    assert "Traceback" not in err
    assert not (tmp_path / "results" / "one").exists()


@pytest.mark.parametrize(("arguments", "told"), [
    ((), "--preset"),
    (("--preset", "cpu", *TWENTY), "exactly one"),
    (("--preset", "cpu"), "--request-rate"),
    (("--preset", "cpu", "--num-prompts", "5"), "--request-rate"),
    (("--preset", "nope", "--request-rate", "1"), "unknown workload"),
    (LOAD, "--num-prompts"),
    ((*LOAD, "--request-rate", "inf"), "--num-prompts"),
    ((*TWENTY, "--duration", "5"), "either"),
    ((*LOAD, "--request-rate", "0", "--num-prompts", "5"), "above 0"),
    ((*LOAD, "--request-rate", "nan", "--num-prompts", "5"), "above 0"),
    ((*TWENTY, "--seed", "-1"), "seed"),
    ((*TWENTY, "--burstiness", "0"), "burstiness"),
    ((*TWENTY, "--slo", "tbt:p99>=1ms"), "better lower"),
    ((*TWENTY, "--slo", "fluidity:p10>=0.9", "--no-fluidity"), "--no-fluidity"),
    ((*TWENTY, "--slo", "goodput:attainment>=0.9"), "--goodput"),
    ((*TWENTY, "--goodput", "stall:5", "--no-fluidity"), "--no-fluidity"),
    ((*TWENTY, "--goodput", "nope:5"), "unknown goodput rule"),
    ((*TWENTY, "--prefill-curve", "none.json"), "none.json"),
    ((*TWENTY, "--prefill-curve", "none.json", "--no-fluidity"), "leave one out"),
    ((*TWENTY, "--max-num-batched-tokens", "8", "--max-num-seqs", "16"), "--max-num-seqs"),
    ((*TWENTY, "--max-num-seqs", "0"), "at least 1"),
    ((*TWENTY, "--scheduling-policy", "lifo"), "fcfs, priority"),
    ((*TWENTY, "--decode-deadline-ms", "0"), "--decode-deadline-ms"),
    ((*TWENTY, "--request-timeout", "nan"), "--request-timeout"),
    ((*TWENTY, "--metadata", "alone"), "KEY=VALUE"),
    ((*TWENTY, "--config", "c.yaml"), "leave out --model"),
    ((*TWENTY, "-o", "model/config.json"), "--output-dir"),
    ((*TWENTY, "--result-dir", "model/config.json"), "--result-dir"),
    ((*TWENTY, "-o", ".", "-e", "model"), "exists already"),
])
def test_wrong_usage_is_one_line_before_anything_starts(bench, arguments, told):
    """Exit code 64 and one line that says what to change; no engine is started."""
    code, out, err = bench(*arguments)
    assert code == 64
    assert out == ""
    assert err.count("\n") == 1
    assert told in err
    assert bench.engines == []


@pytest.mark.parametrize("content", [None, "a: [", "- model", "model: 5"])
def test_a_configuration_without_a_model_is_refused(bench, tmp_path, content):
    """A file that is missing, no YAML, or names no model is wrong usage that names the file."""
    if content is not None:
        (tmp_path / "c.yaml").write_text(content)
    code, _, err = bench(*TWENTY, "--config", "c.yaml", model=None)
    assert code == 64
    assert "c.yaml" in err


@pytest.mark.parametrize(("command", "flags"), [
    ("bench", ["--model", "--preset", "--workload", "--input-len", "--random-input-len", "--output-len",
               "--random-output-len", "--random-range-ratio", "--request-rate", "--num-prompts", "--duration",
               "--burstiness", "--seed", "--num-warmups", "--max-num-batched-tokens", "--max-num-seqs",
               "--long-prefill-token-threshold", "--long-prefill-token-threshold-adaptive",
               "--scheduling-policy", "--config", "--slo", "--goodput", "--decode-deadline-ms",
               "--prefill-slack-ms", "--prefill-curve", "--no-fluidity", "--save-result", "--save-detailed",
               "--result-dir", "--result-filename", "--label", "--metadata", "--request-timeout",
               "--output-dir", "--experiment-name", "--json"]),
    ("report", ["PATH", "--format", "--output", "--open"]),
    ("run", ["--preset", "--model", "--slo", "--resume", "--dry-run", "--json"]),
    ("doctor", ["--model", "--json"]),
])
def test_help_names_every_flag_and_loads_no_engine(command, flags):
    """`tune COMMAND --help` works in a process of its own, without torch, vLLM or what draws charts."""
    code = (f"import sys; from tuner.cli.main import main\n"
            f"try: main([{command!r}, '--help'])\n"
            f"finally: print({{'torch', 'vllm', 'plotly', 'optuna'}} & set(sys.modules))")
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True,
                          env=os.environ | {"COLUMNS": "200", "TERM": "dumb"}).stdout
    assert told.rstrip().endswith("set()")
    assert [flag for flag in flags if flag not in told] == []


@pytest.mark.engine
@needs_vllm
def test_the_real_engine_is_measured_from_the_command_line(tmp_path):
    """End to end on a tiny model: one JSON object, the run directory, exit code 0, nothing left behind."""
    launch = tiny_launch(tmp_path / "model")
    engine_args = [f"--engine-arg={name}={json.dumps(value)}" for name, value in launch.engine_args.items()]
    answer = subprocess.run(
        [sys.executable, "-c", "from tuner.cli.main import main; main()", "bench", "--model", launch.model,
         *LOAD, "--request-rate", "20", "--num-prompts", "60", "--num-warmups", "5",
         "--max-num-batched-tokens", "64", "--max-num-seqs", "16", "--json", "-e", "one", *engine_args],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert answer.stdout, answer.stderr
    told = json.loads(answer.stdout)
    # A machine that is busy with other things may make the client late, which is said and is exit code 3.
    assert answer.returncode == (0 if told["valid"] else 3), answer.stderr
    assert "Traceback" not in answer.stderr
    assert (told["completed"], told["failed"], told["backend"]) == (60, 0, "vllm")
    assert told["knobs"]["token_budget"] == 64
    assert told["total_output_tokens"] == 60 * 8
    assert 0 < told["p50_tbt_ms"] <= told["max_tbt_ms"]
    assert told["fluidity_index_mean"] is not None
    assert told["steps"] > 0
    assert load_head(tmp_path / "results" / "one")["meta"]["engine"]["name"] == "vllm"
    assert list((tmp_path / "results" / "one" / "engine-logs").iterdir())
    assert _processes_that_name(str(tmp_path)) == []


def _processes_that_name(text):
    """Processes whose command line, working directory or environment holds `text`."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            told = (directory / "cmdline").read_bytes() + (directory / "environ").read_bytes()
            told += os.readlink(directory / "cwd").encode()
        except OSError:
            continue
        if text.encode() in told and int(directory.name) != os.getpid():
            found.append(told)
    return found
