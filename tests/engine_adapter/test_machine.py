"""What the machine says about itself, and what it does not."""

import json

import pytest

from engine_adapter import machine


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_facts_are_plain_json_values():
    """The facts go into a fingerprint: they survive JSON unchanged and name the core packages."""
    facts = machine.machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert {"stallfree", "numpy", "optuna"} <= facts["packages"].keys()


def test_absent_packages_are_left_out():
    """A distribution that is not installed has no version and no entry."""
    assert machine.package_versions(("numpy", "no-such-distribution")).keys() == {"numpy"}


@pytest.mark.parametrize(("files", "cores"), [
    ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
    ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
    ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4),
    ({}, 4),
])
def test_cores_obey_affinity_and_quota(tmp_path, monkeypatch, files, cores):
    """Usable cores are the affinity, cut by the quota of either version of control groups."""
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    for path, text in files.items():
        write(tmp_path, path, text)
    assert machine.usable_cores(tmp_path) == cores


def test_memory_obeys_the_control_group(tmp_path):
    """Memory is the machine's, cut by the group's limit; None where neither is told."""
    assert machine.usable_memory_bytes(tmp_path) is None
    assert machine.free_memory_bytes(tmp_path) is None
    write(tmp_path, "proc/meminfo", "MemTotal:  8 kB\nMemFree: 1 kB\nMemAvailable:  6 kB\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert machine.usable_memory_bytes(tmp_path) == 8192
    assert machine.free_memory_bytes(tmp_path) == 6144
    write(tmp_path, "sys/fs/cgroup/memory.max", "4096\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", "1024\n")
    assert machine.usable_memory_bytes(tmp_path) == 4096
    assert machine.free_memory_bytes(tmp_path) == 3072


@pytest.mark.parametrize(("script", "names"), [
    ("echo 'NVIDIA H200, 143771, 600.1'; echo 'NVIDIA H200, [N/A], 600.1'", ["NVIDIA H200", "NVIDIA H200"]),
    ("echo 'No devices were found'", []),
    ("exit 9", []),
    ("exec sleep 30", []),
])
def test_gpus_are_what_nvidia_smi_lists(tmp_path, monkeypatch, script, names):
    """GPUs are those that nvidia-smi lists in time; one that fails or hangs gives none."""
    write(tmp_path, "nvidia-smi", f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert [gpu["name"] for gpu in machine.gpus(timeout_s=0.5)] == names
