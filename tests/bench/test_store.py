import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.errors import OutputError
from bench.run import ClientHealth, Outcome, Run
from bench.store import load_head, load_run, save_run
from bench.summary import summarise
from engine_adapter.errors import Crashed
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog
from workloads.errors import EvidenceError

RunOf = Callable[..., Run]
COLUMNS = ("index", "component", "input_len", "output_len", "warmup", "intended_ns", "sent_ns", "end_ns",
           "outcome", "num_tokens", "reads_offset", "read_ns", "read_tokens")
PARTS = ("run.json", "requests.parquet", "reads.parquet", "steps.parquet", "chunks.parquet")
reads_of_one = st.lists(st.integers(0, 9000), max_size=5).map(lambda ts: [(t, 1 + t % 3) for t in sorted(ts)])
requests_with_outcomes = st.lists(st.tuples(reads_of_one, st.sampled_from(Outcome)), max_size=6)


def same(a: Run, b: Run) -> bool:
    for name in COLUMNS:
        left, right = getattr(a, name), getattr(b, name)
        if left.dtype != right.dtype or not np.array_equal(left, right):
            return False
    logs = all(np.array_equal(a.steps.steps[n], b.steps.steps[n]) for n in STEP_COLUMNS)
    return logs and (a.start_ns, a.meta, a.client, a.validity, a.steps.lost) == (
        b.start_ns, b.meta, b.client, b.validity, b.steps.lost)


@given(requests_with_outcomes)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
def test_a_run_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, run_of: RunOf, rows: list[tuple[list[tuple[int, int]], Outcome]]
) -> None:
    """Every column, type and note of a run survives the disk, requests never sent included."""
    requests, outcomes = [reads for reads, _ in rows], [outcome for _, outcome in rows]
    run = run_of(requests, outcomes=outcomes, client=ClientHealth(1, 2, 3), meta={"label": "x"})
    path = save_run(run, tmp_path_factory.mktemp("runs") / "a")
    assert same(load_run(path), run)


def test_steps_failure_and_summary_are_kept(tmp_path: Path, run_of: RunOf) -> None:
    """The step log, why the engine stopped, and the summary are in the directory."""
    steps = StepLog({n: np.arange(3) for n in STEP_COLUMNS}, {n: np.arange(2) for n in CHUNK_COLUMNS}, 4, 5)
    run = run_of([[(5, 1)], []], outcomes=[Outcome.OK, Outcome.CRASHED], steps=steps,
                 failure=Crashed("it died"))
    path = save_run(run, tmp_path / "deep" / "run", summary=summarise(run).as_dict())
    loaded = load_run(path)
    assert same(loaded, run)
    assert isinstance(loaded.engine_failure, Crashed)
    assert str(loaded.engine_failure) == "it died"
    assert loaded.steps.chunks["tokens"].tolist() == [0, 1]
    assert load_head(path)["summary"]["completed"] == 1
    assert {p.name for p in path.iterdir()} == set(PARTS)


def test_a_finished_run_is_never_replaced(tmp_path: Path, run_of: RunOf) -> None:
    """An existing directory is refused by name and stays as it is."""
    path = save_run(run_of([[(5, 1)]]), tmp_path / "run")
    before = (path / "run.json").read_bytes()
    with pytest.raises(OutputError, match="exists already"):
        save_run(run_of([]), path)
    assert (path / "run.json").read_bytes() == before


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, run_of: RunOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is one line that names the path; neither the run nor a fragment of it is left."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"run: No space left on device; free space") as refusal:
        save_run(run_of([[(5, 1)]]), tmp_path / "run")
    assert refusal.value.exit_code == 64
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_is_refused(tmp_path: Path, run_of: RunOf) -> None:
    """Where no directory can be made, the error names the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file/run"):
        save_run(run_of([]), tmp_path / "file" / "run")


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("damage", ["missing", "empty", "rubbish"])
def test_a_broken_directory_is_refused_in_one_line(
    tmp_path: Path, run_of: RunOf, name: str, damage: str
) -> None:
    """A missing or damaged part is an EvidenceError that names the directory."""
    path = save_run(run_of([[(5, 1)]] * 3), tmp_path / "run")
    if damage == "missing":
        (path / name).unlink()
    else:
        (path / name).write_bytes(b"" if damage == "empty" else b"\x00rubbish" * 9)
    with pytest.raises(EvidenceError) as refusal:
        load_run(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_newer_schema_is_refused(tmp_path: Path, run_of: RunOf) -> None:
    """A directory of another schema version says which one can be read."""
    path = save_run(run_of([]), tmp_path / "run")
    head = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**head, "schema_version": 99}))
    with pytest.raises(EvidenceError, match="schema version 99, this stallfree reads 1"):
        load_run(path)
    with pytest.raises(EvidenceError, match="no run directory"):
        load_run(tmp_path)


def test_importing_bench_is_light() -> None:
    """`import bench` loads no table, statistics or engine library."""
    heavy = ["pyarrow", "scipy", "pandas", "torch", "vllm", "optuna", "plotly"]
    code = f"import bench, sys; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
