"""Reads the runs of a real vLLM that LLMServingSim publishes (bench/examples/HARDWARE/MODEL/vllm)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded:
    """A run of a real engine: nanoseconds from its first arrival on, shape (n,) each, in order of arrival."""

    name: str
    hardware: str
    model: str
    engine: dict[str, Any]
    """The arguments of vLLM's engine."""
    arrival_ns: Int64
    """When the client sent it."""
    input_len: Int64
    output_len: Int64
    scheduled_ns: Int64
    first_token_ns: Int64
    last_token_ns: Int64

    def ttft_ns(self) -> Int64:
        """From sending to the first token."""
        return self.first_token_ns - self.arrival_ns

    def tpot_ns(self) -> npt.NDArray[np.float64]:
        """Mean gap between tokens; of requests with one token only it means nothing."""
        return (self.last_token_ns - self.first_token_ns) / np.maximum(self.output_len - 1, 1)


def recorded_runs(folder: Path) -> Iterator[Recorded]:
    """Every run under a folder: pairs of NAME_meta.json and NAME_requests.jsonl, or meta.json and
    requests.jsonl. The hardware is the first part of NAME, or else the folder above the model's."""
    for meta in sorted(folder.rglob("*meta.json")):
        requests = meta.with_name(meta.name.removesuffix("meta.json") + "requests.jsonl")
        if requests.exists():
            yield _read(meta, requests, _hardware(meta))


def _hardware(meta: Path) -> str:
    prefix = meta.name.removesuffix("meta.json").rstrip("_")
    if prefix:
        return prefix.split("_")[0]
    above = meta.resolve().parents
    return above[1].parent.name if above[0].name == "vllm" else above[0].parent.name


def _read(meta: Path, requests: Path, hardware: str) -> Recorded:
    about = json.loads(meta.read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in requests.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows.sort(key=lambda row: row["arrival_time"])
    arrival = np.array([row["arrival_time"] for row in rows])
    engine_clock = {name: np.array([row[name] for row in rows])
                    for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")}
    # Two clocks: the request that reached the engine fastest is taken to have needed no time.
    offset = np.min(engine_clock["queued_ts"] - arrival)
    begin = arrival[0]

    def since_begin(name: str) -> Int64:
        return np.rint((engine_clock[name] - offset - begin) * 1e9).astype(np.int64)

    kwargs = about["engine_kwargs"]
    return Recorded(
        name=f"{hardware} {about['model'].rsplit('/', 1)[-1]}", hardware=hardware, model=about["model"],
        engine=kwargs | {k: about[k] for k in ("num_gpu_blocks", "block_size") if k in about},
        arrival_ns=np.rint((arrival - begin) * 1e9).astype(np.int64),
        input_len=np.array([row["input_toks"] for row in rows], dtype=np.int64),
        output_len=np.array([row["output_toks"] for row in rows], dtype=np.int64),
        scheduled_ns=since_begin("scheduled_ts"), first_token_ns=since_begin("first_token_ts"),
        last_token_ns=since_begin("last_token_ts"))
