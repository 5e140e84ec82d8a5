"""`tune workload make`: what a run would send, as a file for other tools."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cli import main
from workloads import build_plan, load_workload
from workloads.traces import Trace, read_trace

WORKLOAD = """
name: two tenants
description: what the test sends
slo: []
decode_deadline_ms: 20
run_seconds: 3
warmup_seconds: 1
traces:
  - {path: requests.jsonl, tenant: chat}
  - {path: requests.jsonl, tenant: batch, rate_rps: 5}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a trace of 40 requests in blocks of 16 tokens, of which every second shares one with the first."""
    monkeypatch.chdir(tmp_path)
    rows = [{"timestamp": i / 4, "input_length": 20 + i, "output_length": i + 1,
             "hash_ids": [0 if i % 2 == 0 else 1000 + i, *range(10 * i + 1, 10 * i + 1 + (19 + i) // 16)]}
            for i in range(40)]
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "two.yaml").write_text(WORKLOAD)
    return tmp_path


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line; returns code, stdout, stderr."""
    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main.main(["workload", "make", *words])
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


def read(path: str, form: str = "timed-trace") -> Trace:
    return read_trace(Path(path), format=form)


@pytest.mark.parametrize(("file", "asked", "form"), [
    ("out.jsonl", (), "timed-trace"), ("out.jsonl", ("--output-format", "mooncake"), "mooncake")])
def test_a_trace_is_written_as_it_is(folder: Path, tune: Any, file: str, asked: Any, form: str) -> None:
    """Its requests at their times; read back it is the same, and so are the blocks where their size stays."""
    code, told, _ = tune("requests.jsonl", "-o", file, *asked)
    assert code == 0
    assert told.startswith(f"{file}: 40 requests over 9.75 s, 4.103 requests/s; 1580 prompt and 820 answer ")
    before, after = read("requests.jsonl"), read(file, form)
    for column in ("arrival_ns", "input_len", "output_len"):
        assert getattr(after, column).tolist() == getattr(before, column).tolist()
    assert before.blocks is not None
    assert after.blocks is not None
    if form == "timed-trace":
        assert after.blocks.offset.tolist() == before.blocks.offset.tolist()
        pairs = set(zip(before.blocks.keys.tolist(), after.blocks.keys.tolist(), strict=True))
        assert len(pairs) == len({ours for ours, _ in pairs}) == len({theirs for _, theirs in pairs})


def test_csv_is_chosen_by_name_and_says_what_it_leaves_out(folder: Path, tune: Any) -> None:
    """It has no place for blocks."""
    code, told, _ = tune("requests.jsonl", "--output", "out.CSV", "--rows", "3")
    assert code == 0
    assert "the blocks that prompts share are left out" in told
    assert told.endswith("send it with: tune bench --trace out.CSV\n")
    assert Path("out.CSV").read_text() == "timestamp_s,input_len,output_len\n0,20,1\n0.25,21,2\n0.5,22,3\n"


def test_the_command_that_it_prints_is_for_the_file(folder: Path, tune: Any) -> None:
    """With the flags that vLLM needs for blocks of 512 and milliseconds, and quoted for a shell."""
    assert tune("requests.jsonl", "-o", "a b.jsonl")[1].endswith(
        "--dataset-name timed_trace --dataset-path 'a b.jsonl' --num-prompts 40\n")
    assert tune("requests.jsonl", "-o", "m.jsonl", "--output-format", "mooncake")[1].endswith(
        "--num-prompts 40 --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001\n")


def test_a_preset_is_written_as_a_run_would_send_it(folder: Path, tune: Any) -> None:
    """The same requests as the plan of that seed without a warm-up, and the same bytes each time."""
    asked = ("chat", "--request-rate", "20", "--num-prompts", "200", "--seed", "3")
    assert tune(*asked, "-o", "one.jsonl", "--json")[0] == 0
    code, told, _ = tune(*asked, "-o", "two.jsonl", "--json")
    plan = build_plan(load_workload("chat"), rate_rps=20, num_prompts=200, seed=3)
    facts = json.loads(told)
    assert code == 0
    assert facts["plan_digest"] == plan.digest()
    assert facts["rows"] == 200
    assert facts["bytes"] == Path("two.jsonl").stat().st_size
    assert Path("one.jsonl").read_bytes() == Path("two.jsonl").read_bytes()
    trace = read("one.jsonl")
    assert trace.input_len.tolist() == plan.input_len.tolist()
    assert trace.arrival_ns.tolist() == (plan.intended_ns - plan.intended_ns[0]).tolist()
    assert trace.blocks is not None
    assert len(np.unique(trace.blocks.keys)) == len(trace.blocks.keys)


def test_a_workload_of_merged_tenants_names_them(folder: Path, tune: Any) -> None:
    """Each row says whose it is; the one is stretched to its own rate."""
    assert tune("two.yaml", "-o", "out.csv")[0] == 0
    rows = [line.split(",") for line in Path("out.csv").read_text().splitlines()]
    assert rows[0] == ["timestamp_s", "input_len", "output_len", "tenant"]
    assert sorted(row[3] for row in rows[1:]) == ["batch"] * 40 + ["chat"] * 40
    batch = [float(row[0]) for row in rows[1:] if row[3] == "batch"]
    assert 39 / (batch[-1] - batch[0]) == pytest.approx(5)


def test_shaping_is_applied_and_counted(folder: Path, tune: Any) -> None:
    """Twice the rate of half as long prompts, and those that are too long are left out and named."""
    code, told, _ = tune("requests.jsonl", "-o", "out.csv", "--time-scale", "0.5", "--scale-lengths", "0.5",
                         "--max-model-len", "40", "--json")
    facts = json.loads(told)
    assert code == 0
    assert facts["rejected"] == {"too long": 40 - facts["rows"]}
    assert 0 < facts["rows"] < 40
    assert facts["rate_rps"] == pytest.approx(8, rel=0.1)
    told = tune("requests.jsonl", "-o", "out.csv", "--max-model-len", "40", "--clip-long")[1]
    assert "cut to fit: 30 requests of the trace" in told
    told = tune("requests.jsonl", "-o", "out.csv", "--max-model-len", "40")[1]
    assert "left out of the trace: 30 (too long)" in told


@pytest.mark.parametrize(("words", "why"), [
    (("chat", "-o", "x", "--request-rate", "1", "--format", "csv"), "--format is about a trace file"),
    (("chat", "-o", "x", "--request-rate", "1", "--keep", "0.5"), "--keep is about a trace file"),
    (("chat", "-o", "x"), "--request-rate"),
    (("requests.jsonl", "-o", "requests.jsonl"), "is the source itself"),
    (("two.yaml", "-o", "./two.yaml"), "is the source itself"),
    (("requests.jsonl", "-o", "x", "--output-format", "parquet"), "known: timed-trace, mooncake, csv"),
    (("requests.jsonl", "-o", "x", "--keep", "1.5"), "--keep"),
    (("requests.jsonl", "-o", "x", "--scale-lengths", "half"),
     "--scale-lengths 'half' is neither a number above 0 nor `fit`"),
    (("requests.jsonl", "-o", "x", "--token-ms", "-1"), "--token-ms must be between"),
    (("requests.jsonl", "-o", "x", "--num-prompts", "41"), "has 40 requests, and this run would take 41"),
    (("nowhere.jsonl", "-o", "x"), "nowhere.jsonl"),
])
def test_what_cannot_be_written_is_refused(folder: Path, tune: Any, words: Any, why: str) -> None:
    """In one line that names the flag or the file, and nothing is written."""
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    code, told, complaint = tune(*words)
    assert (code, told) == (64, "")
    assert why in complaint
    assert complaint.count("\n") == 1
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_place_that_cannot_be_written_is_named(folder: Path, tune: Any) -> None:
    """In one line, with what to do."""
    (folder / "file").touch()
    code, _, complaint = tune("requests.jsonl", "-o", "file/out.jsonl")
    assert code == 64
    assert "cannot write file/out.jsonl" in complaint
