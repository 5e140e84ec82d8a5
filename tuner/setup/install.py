"""Create .venv with the engine that fits this machine, and prepare the bundled model.

The Makefile runs this file with the system's Python before anything is installed, so it uses
the standard library only and imports nothing of the project. A set-up that was cut off is
repaired by the next call: the stamp in .venv is written last, and a .venv without one is made anew.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LEAST_PYTHON = (3, 11)
CPU_TORCH = "torch==2.13.0+cpu"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
# PyPI's builds of these do not match the CPU torch; text models do not need them.
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
STAMP = "stallfree-setup.json"
EXTRAS = {"cpu": "cpu,dev", "cuda": "cuda,dev"}


class SetupError(Exception):
    """What failed and what to do, in one line."""


class Runner:
    """Runs one command per stage: its output goes to the log, one line per stage to the terminal."""

    def __init__(self, log: Path, lock_fd: int) -> None:
        self.log = log
        # Children keep the lock: when this script is killed, pip lives on, and the next call
        # must not touch .venv before it has ended.
        self._lock_fd = lock_fd

    def succeeds(self, title: str, command: Sequence[str | Path], cwd: Path | None = None) -> bool:
        """Run `command` to its end and say on the terminal how long it took."""
        began = time.monotonic()
        erase = "\r\033[K" if sys.stderr.isatty() else ""
        with self.log.open("a", encoding="utf-8") as out:
            out.write(f"\n$ {' '.join(map(str, command))}\n")
            out.flush()
            process = subprocess.Popen([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=subprocess.STDOUT, pass_fds=(self._lock_fd,))
            try:
                _say(f"  {title} ...", end="" if erase else "\n")
                while (code := _wait(process, 1.0)) is None:
                    if erase:
                        _say(f"{erase}  {title} ... {time.monotonic() - began:.0f} s", end="")
            except BaseException:
                process.terminate()
                process.wait()
                raise
        mark = "done" if code == 0 else "failed"
        _say(f"{erase}  {title}: {mark} in {time.monotonic() - began:.0f} s")
        return code == 0

    def must(self, title: str, command: Sequence[str | Path], advice: str, cwd: Path | None = None) -> None:
        """Run `command`; when it fails, show the end of its output and raise SetupError."""
        if not self.succeeds(title, command, cwd):
            _say(_last_lines(self.log, 12))
            raise SetupError(f"{title} failed: {advice} (full output: {self.log})")


def choose_engine(asked: str) -> str:
    """`cpu` or `cuda`: as asked, or for `auto` CUDA when `nvidia-smi -L` answers."""
    if asked != "auto":
        return asked
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "cuda" if answer.returncode == 0 and answer.stdout.strip() else "cpu"


def stamp_key(root: Path) -> str:
    """Changes whenever the environment must be looked at again: the requirements, this script,
    the place of the checkout (it is written into .venv)."""
    digest = hashlib.sha256()
    for part in ((root / "pyproject.toml").read_bytes(), Path(__file__).read_bytes(), str(root).encode()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def read_stamp(venv: Path) -> dict[str, str]:
    """What the last complete set-up wrote: `key`, `python`, `engine`; empty when there was none."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and os.access(venv / "bin" / "python", os.X_OK) else {}


def write_stamp(venv: Path, stamp: dict[str, str]) -> None:
    """Declare `venv` complete; atomic, so a cut leaves either no stamp or a whole one."""
    partial = venv / f"{STAMP}.partial"
    partial.write_text(json.dumps(stamp), encoding="utf-8")
    partial.replace(venv / STAMP)


def ensure_environment(root: Path, asked: str, keep_python: bool, run: Runner) -> None:
    """Make `root`/.venv complete for the engine asked for (`auto`, `cpu` or `cuda`); returns at
    once when the stamp says that it is."""
    venv, key = root / ".venv", stamp_key(root)
    stamp = read_stamp(venv)
    fits_python = keep_python or stamp.get("python") == _python_version()
    if stamp.get("key") == key and fits_python and asked in ("auto", stamp.get("engine")):
        return
    engine = choose_engine(asked)
    run.log.write_text("", encoding="utf-8")
    _say(f"Setting up {venv} with vLLM for {'CUDA' if engine == 'cuda' else 'CPUs'} "
         f"(some minutes, 4 GB or more; details in {run.log})")
    # A complete environment of the same kind is brought up to date in place. Whatever else is
    # there may hold half-installed packages, which pip takes for whole, or the other engine.
    in_place = fits_python and stamp.get("engine") == engine
    python_version = stamp["python"] if in_place else _python_version()
    (venv / STAMP).unlink(missing_ok=True)
    if not in_place:
        run.must("virtual environment", [sys.executable, "-m", "venv", "--clear", venv],
                 "Debian and Ubuntu need the package python3-venv; or choose another with PYTHON=python3.12")
    install(root, venv / "bin" / "python", engine, run)
    write_stamp(venv, {"key": key, "python": python_version, "engine": engine})
    _say("Set up. The commands are .venv/bin/tune and make tune; .venv/bin/tune doctor checks the rest.")


def install(root: Path, python: Path, engine: str, run: Runner) -> None:
    """Install the engine and the project, editable, with pip's own configuration in force."""
    pip = [str(python), "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    advice = "check the network, the free disk space and pip's configuration, then repeat"
    if engine == "cpu" and not run.succeeds("torch for CPUs", [*pip, CPU_TORCH]):
        run.must("torch for CPUs, from PyTorch's wheel index",
                 [*pip, CPU_TORCH, "--extra-index-url", CPU_WHEELS], advice)
    run.must("engine and project", [*pip, "--editable", f"{root}[{EXTRAS[engine]}]"], advice)
    if not run.succeeds("check of torchvision", [python, "-c", "import torchvision"]):
        # Expected with the CPU build of torch: PyPI's torchvision is built for another one.
        run.must("removal of torchvision, which this torch cannot use (text models do not need it)",
                 [python, "-m", "pip", "uninstall", "--yes", *TORCH_COMPANIONS], "remove .venv and repeat")
    run.must("check of vLLM", [python, "-c", "from vllm.engine.arg_utils import EngineArgs"],
             "vLLM cannot be imported; remove .venv and repeat")
    # Not needed: what is not compiled now is compiled when it is first used.
    run.succeeds("simulator, compiled for this machine",
                 [python, "-m", "engine_adapter.simulator.precompile"], cwd=root)


def prepare_model(root: Path, run: Runner) -> None:
    """Have the project itself prepare its bundled model, unless it lies ready in the cache."""
    prepare = [str(root / ".venv" / "bin" / "python"), "-m", "tuner.setup.bundled_model"]
    if subprocess.run([*prepare, "--check"], cwd=root, capture_output=True, check=False).returncode:
        run.must("bundled model (downloads 93 MB)", prepare,
                 "check the network and the free disk space, then repeat", cwd=root)


@contextmanager
def only_one(lock: Path) -> Iterator[int]:
    """Hold the set-up's lock, after waiting for another set-up; yields its file descriptor."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Waiting for another set-up of this checkout to end")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def set_up(root: Path, asked: str, keep_python: bool) -> None:
    """The whole set-up of the checkout `root`; raises SetupError. Quick when nothing is to do."""
    build = root / "build"
    with only_one(build / "setup.lock") as lock_fd:
        run = Runner(build / "setup.log", lock_fd)
        ensure_environment(root, asked, keep_python, run)
        prepare_model(root, run)


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 ready, 64 the set-up failed, 130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("auto", "cpu", "cuda"), default="auto",
                        help="auto: CUDA when `nvidia-smi -L` answers, unless .venv is already complete")
    parser.add_argument("--keep-python", action="store_true",
                        help="accept a complete .venv that was built with another Python than this one")
    options = parser.parse_args(arguments)
    try:
        if sys.version_info[:2] < LEAST_PYTHON:
            raise SetupError(f"Python {_python_version()} is too old: give 3.11 or newer, as in "
                              "`make setup PYTHON=python3.12`")
        set_up(Path(__file__).resolve().parents[2], options.engine, options.keep_python)
    except SetupError as error:
        _say(f"error: {error}")
        return 64
    except OSError as error:
        _say(f"error: the set-up cannot write its files ({error}): make room, or make the checkout writable")
        return 64
    except KeyboardInterrupt:
        _say("\nInterrupted; the next call repairs and continues the set-up.")
        return 130
    return 0


def _python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _last_lines(log: Path, count: int) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    # pip repeats this one for every mirror it may not use; it hides the reason.
    told = [line for line in lines if "is ignored" not in line]
    return "\n".join(f"    {line}" for line in told[-count:])


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
