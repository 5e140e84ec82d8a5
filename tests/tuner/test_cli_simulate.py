"""`tune simulate`: the flags and keys that others rely on, what is printed and kept, exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import load_run
from engine_adapter.simulator.sheets import hardware_names, model_names
from tests.tuner.test_calibration import calibrated
from tuner.calibration import save_calibration
from tuner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ("--hardware", "h100-sxm", "--model", "llama-3.1-8b")
LOAD = ("--input-len", "800", "--output-len", "40", "--request-rate", "10", "--num-prompts", "150")
SIMULATED = ("simulated", "refused", "simulated_s", "wall_s")


@pytest.fixture
def simulate(monkeypatch, tmp_path, capsys):
    """Runs `tune simulate` in an empty directory; returns code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, machine=MACHINE):
        with pytest.raises(SystemExit) as left:
            main(["simulate", *machine, *arguments])
        return left.value.code, *capsys.readouterr()

    return run


def told(simulate, *arguments, **named):
    """The figures of a command that succeeds."""
    code, out, err = simulate(*arguments, "--json", **named)
    assert code == 0, err
    return json.loads(out)


def test_the_contract_of_the_command(simulate, tmp_path):
    """Workload by file or preset, knobs as pairs, a policy, hardware, model, JSON: exactly these flags."""
    preset = (ROOT / "workloads" / "presets" / "cpu.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(preset)
    knobs = ("--knobs", "token_budget=512,max_seqs=64,long_prefill_token_threshold=256,"
                        "adaptive_long_prefill=true,policy=fcfs")
    by_name, by_file = (told(simulate, "--workload", workload, "--request-rate", "5", *knobs, "--policy",
                             "vllm-v1") for workload in ("cpu", "mine.yaml"))
    assert by_name["knobs"] == {"token_budget": 512, "max_seqs": 64, "long_prefill_token_threshold": 256,
                                "adaptive_long_prefill": True, "policy": "fcfs"}
    for key in ("mean_ttft_ms", "p99_tbt_ms", "median_tpot_ms", "request_throughput", "output_throughput",
                "fluidity_index_p10", "median_scheduling_delay_ms", "completed", "steps", *SIMULATED):
        assert by_name[key] is not None, key
    assert by_name["steps"] > 0
    assert by_name["simulated_s"] > 0
    assert by_name["completed"] == by_name["num_prompts"]
    assert by_name["p99_tbt_ms"] == by_file["p99_tbt_ms"]
    assert told(simulate, "--preset", "cpu", "--request-rate", "5", *knobs)["p99_tbt_ms"] == (
        by_name["p99_tbt_ms"])


def test_the_keys_are_those_of_a_measured_run(simulate):
    """What `tune bench --json` prints is there, and four keys more."""
    from bench import summarise
    from tuner.one_run import OneRun

    found = told(simulate, *LOAD, "-e", "kept")
    run = load_run("results/kept")
    spec = type("Spec", (), {"metadata": {}, "directory": Path("x")})
    measured = OneRun(spec, run, summarise(run), None, (), interrupted=False).as_dict()
    assert list(found) == [*measured, *SIMULATED]


def test_the_same_seed_gives_the_same_bytes_in_every_process(tmp_path):
    """Only the wall time differs, whatever the hash seed; another seed gives another run."""
    def figures(hash_seed, seed):
        out = subprocess.run(
            [sys.executable, "-c", "from tuner.cli.main import main; main()", "simulate", *MACHINE, *LOAD,
             "--json", "--seed", str(seed), "--num-speculative-tokens", "2", "--draft-acceptance", "0.6"],
            capture_output=True, text=True, check=True, cwd=tmp_path,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}).stdout
        return "".join(line for line in out.splitlines(keepends=True) if '"wall_s"' not in line)

    first = figures("1", 3)
    assert first == figures("2", 3)
    assert first != figures("1", 4)


def test_the_screen_says_what_it_is_before_any_figure(simulate):
    """SIMULATED is the first word; hardware, model, rule and the origin of the cost follow."""
    code, out, err = simulate(*LOAD)
    assert code == 0, err
    assert out.startswith("SIMULATED. 150 of 150 requests succeeded at 10")
    head = " ".join(out[: out.index("figure")].split())
    for said in ("No engine was measured", "h100-sxm", "llama-3.1-8b", "vllm-v1"):
        assert said in head
    assert not list(Path().iterdir())


def test_several_settings_stand_side_by_side(simulate):
    """One call, one table, one line a setting in the order given; JSON is a list in that order."""
    asked = ("--knobs", "token_budget=256", "--knobs", "token_budget=4096,policy=sarathi-serve", "--knobs",
             "max_seqs=8")
    code, out, err = simulate(*LOAD, *asked)
    assert code == 0, err
    assert out.startswith("SIMULATED. 3 settings at 10")
    assert max(map(len, out.splitlines())) <= 80
    assert out.index("budget 256") < out.index("budget 4096") < out.index("8 seqs")
    settings = told(simulate, *LOAD, *asked)["settings"]
    assert [one["knobs"]["token_budget"] for one in settings] == [256, 4096, 8192]
    assert [one["simulated"]["rule"] for one in settings] == ["vllm-v1", "sarathi-serve", "vllm-v1"]
    assert len({one["plan_digest"] for one in settings}) == 1


def test_flags_and_pairs_mean_the_same(simulate):
    """vLLM's flags set what --knobs sets, and hold for every setting."""
    by_flags = told(simulate, *LOAD, "--max-num-batched-tokens", "256", "--max-num-seqs", "16")
    by_pairs = told(simulate, *LOAD, "--knobs", "token_budget=256,max_seqs=16")
    mixed = told(simulate, *LOAD, "--max-num-seqs", "16", "--knobs", "token_budget=256")
    assert {json.dumps({**each, "wall_s": 0}) for each in (by_flags, by_pairs)} == {
        json.dumps({**mixed, "wall_s": 0})}


@pytest.mark.parametrize("policy", ["vllm-v1", "sarathi-serve", "vllm-v0", "orca", "request-level", "fcfs",
                                    "priority"])
def test_every_policy_plays_the_whole_load(simulate, policy):
    """Each rule ends every request with all its tokens."""
    found = told(simulate, *LOAD, "--policy", policy)
    assert (found["completed"], found["failed"]) == (150, 0)
    assert found["total_output_tokens"] == 150 * 40


@pytest.mark.parametrize(("hardware", "model", "budget", "seqs"), [
    ("h100-sxm", "llama-3.1-8b", 8192, 1024), ("a100-sxm-80gb", "llama-3.1-8b", 2048, 256),
])
def test_settings_that_nobody_named_are_vllms(simulate, hardware, model, budget, seqs):
    """Budget and sequences are what vLLM 0.32 would serve with on that hardware."""
    found = told(simulate, *LOAD, machine=("--hardware", hardware, "--model", model))
    assert (found["knobs"]["token_budget"], found["knobs"]["max_seqs"]) == (budget, seqs)


def test_requests_that_cannot_fit_are_refused_and_counted(simulate):
    """They have no figures, a line says how many, and the others are played."""
    lengths = ("--input-len", "1000", "--random-range-ratio", "0.5", "--output-len", "20", "--request-rate",
               "10", "--num-prompts", "100", "--num-warmups", "0", "--max-model-len", "1200")
    code, out, err = simulate(*lengths, "--json")
    found = json.loads(out)
    assert code == 0
    assert 0 < found["refused"] < 100
    assert found["completed"] == 100 - found["refused"]
    assert found["error_counts_by_kind"] == {"rejected": found["refused"]}
    assert f"{found['refused']} of 100 requests can never fit" in found["warnings"][0]
    assert f"tune: warning: requests that can never fit were refused: {found['refused']}" in err


@pytest.mark.parametrize("flags", [("--max-model-len", "64"), ("--num-kv-blocks", "4")])
def test_nothing_that_fits_is_exit_code_3(simulate, flags):
    """Refused to the last one there is no figure: no endless loop, one line, code 3."""
    code, out, err = simulate(*LOAD, *flags, "--json")
    assert code == 3
    found = json.loads(out)
    assert (found["refused"], found["completed"], found["p99_tbt_ms"]) == (150, 0, None)
    assert "the run is invalid: not one request succeeded" in err.splitlines()[-1]


def test_an_slo_decides_the_exit_code(simulate):
    """Asked for and missed it is 1 with a line; of several settings one that holds is enough."""
    assert simulate(*LOAD, "--slo", "tbt:p99<=10s")[0] == 0
    code, out, err = simulate(*LOAD, "--slo", "tbt:max<=1us")
    assert code == 1
    assert "tbt:max<=1us" in out
    assert err.splitlines()[-1].startswith("tune: the SLO is missed: tbt:max<=1us")
    asked = ("--slo", "goodput:attainment>=0.9", "--goodput", "ttft:100000")
    assert told(simulate, *LOAD, *asked)["goodput_attainment"] == 1
    pair = ("--knobs", "max_seqs=1", "--knobs", "max_seqs=64")
    some = ("--input-len", "64", "--output-len", "64", "--num-prompts", "100", "--slo", "e2e:p99<=20s")
    assert simulate(*some, "--knobs", "max_seqs=1")[0] == 1
    assert simulate(*some, *pair)[0] == 0
    code, _, err = simulate(*LOAD, *pair, "--slo", "tbt:max<=1us")
    assert code == 1
    assert "none of 2 settings holds the SLO" in err.splitlines()[-1]


def test_a_run_is_kept_only_where_it_is_asked_for(simulate, tmp_path):
    """A kept run is read by load_run and shown as simulated; several settings are numbered."""
    assert told(simulate, *LOAD)["run_directory"] is None
    assert told(simulate, *LOAD, "-e", "one")["run_directory"] == "results/one"
    run = load_run("results/one")
    assert run.validity.valid
    assert run.meta["engine"]["name"] == "simulator"
    assert (run.read_tokens >= 1).all()
    pair = ("--knobs", "max_seqs=8", "--knobs", "max_seqs=9")
    assert simulate(*LOAD, "-o", "kept", "-e", "two", *pair)[0] == 0
    assert sorted(path.name for path in (tmp_path / "kept" / "two").iterdir()) == ["1", "2"]
    with pytest.raises(SystemExit):
        main(["report", "results/one", "kept/two/1", "--output", "out.md"])
    assert "simulated runs compared" in (tmp_path / "out.md").read_text()
    code, _, err = simulate(*LOAD, "-e", "one")
    assert code == 64
    assert "exists already" in err


def test_kept_runs_of_one_seed_are_equal(simulate, tmp_path):
    """A run directory holds no time of day."""
    for name in ("one", "two"):
        assert simulate(*LOAD, "-o", name, "-e", "run")[0] == 0
    for file in (tmp_path / "one" / "run").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / "run" / file.name).read_bytes(), file.name


def test_the_result_file_is_that_of_a_measured_run(simulate, tmp_path):
    """--save-detailed has a list entry for every request, and says that nothing was measured."""
    assert simulate(*LOAD, "--save-detailed", "--result-dir", "out", "--result-filename", "r.json")[0] == 0
    found = json.loads((tmp_path / "out" / "r.json").read_text())
    assert len(found["ttfts"]) == len(found["itls"]) == 150
    assert found["backend"] == "simulator"
    assert found["simulated"]["hardware"] == "h100-sxm"


def test_a_measured_curve_judges_a_simulated_run(simulate):
    """The deadlines of one run can judge the next."""
    told(simulate, *LOAD, "-e", "one")
    found = [told(simulate, *LOAD, "--prefill-curve", "results/one", *more)["deadlines"]["prefill_curve_id"]
             for more in ((), ("--knobs", "token_budget=128"))]
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    """A file of `tune calibrate`."""
    return str(save_calibration(calibrated(), tmp_path_factory.mktemp("calibration") / "c.json"))


def test_a_calibration_needs_no_model_and_tells_its_error(simulate, calibration):
    """Costs, model and engine come from the file; its error stands on the screen and in the JSON."""
    load = ("--workload", "cpu", "--request-rate", "2")
    code, out, err = simulate(*load, "--json", machine=("--hardware", calibration))
    assert code == 0, err
    found = json.loads(out)
    assert found["completed"] == found["num_prompts"]
    assert "fitted to 3 runs" in found["simulated"]["cost"]
    assert "median" in found["simulated"]["errors"]
    out = simulate(*load, machine=("--hardware", calibration))[1]
    assert found["simulated"]["errors"].split()[-1] in out
    code, out, err = simulate(*load, machine=("--hardware", calibration, "--model", "llama-3.1-8b"))
    assert code == 0
    assert "--model llama-3.1-8b is left aside" in err


def test_what_the_calibration_has_not_seen_is_said(simulate, calibration):
    """A load whose steps lie beyond those that were fitted is warned of: there the cost is a guess."""
    load = ("--input-len", "1800", "--output-len", "20", "--num-prompts", "60")
    found = told(simulate, *load, machine=("--hardware", calibration))
    assert any("their cost is a guess" in warning for warning in found["warnings"])


def test_the_sheets_are_listed_with_their_sources(simulate):
    """Every name that --hardware and --model take, and where its numbers come from."""
    code, out, _ = simulate("--list-sheets", machine=())
    assert code == 0
    for name in (*hardware_names(), *model_names()):
        assert name in out
    found = json.loads(simulate("--list", "--json", machine=())[1])
    assert [sheet["name"] for sheet in found["hardware"]] == list(hardware_names())
    assert all(sheet["source"] for sheet in (*found["hardware"], *found["models"]))


def test_ctrl_c_ends_it_at_once(tmp_path):
    """In the middle of many settings: exit code 130, one line, and no more of them; what was done is kept."""
    settings = [word for budget in range(200, 500) for word in ("--knobs", f"token_budget={budget}")]
    with subprocess.Popen(
        [sys.executable, "-c", "from tuner.cli.main import main; main()", "simulate", *MACHINE, *LOAD[:4],
         "--num-prompts", "2000", "--request-rate", "20", "-e", "one", *settings],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    ) as process:
        assert "of 300 settings simulated" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "tune: interrupted"
    kept = sorted((tmp_path / "results" / "one").iterdir())
    assert 0 < len(kept) < 300
    assert all(load_run(path).validity.valid for path in kept)


def test_help_and_list_load_no_engine_and_no_compiler():
    """`tune simulate --help` works without torch, vLLM, numba or what draws charts."""
    code = ("import sys; from tuner.cli.main import main\n"
            "try: main(['simulate', '--help'])\n"
            "finally: print({'torch', 'vllm', 'numba', 'plotly', 'optuna'} & set(sys.modules))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                         check=True).stdout
    assert out.rstrip().endswith("set()")
