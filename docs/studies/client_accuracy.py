"""How far is a client's own figure from the truth of the server that it measures?

A paced server in a process and on a core of its own sends one token every 20 ms to each stream,
the first after 50 ms, and notes when it did. `tune bench` and `vllm bench serve` measure it in
turns, each pinned to one other core, all streams at once and again as many when they end.

    make study-client                about 8 minutes on two cores
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from engine_adapter.models import BUNDLED_MODEL, resolve_model

STREAMS = (400, 1000, 2000)
ROUNDS, INPUT_LEN, OUTPUT_LEN = 2, 64, 200
TURNS = ("tune", "vllm", "vllm", "tune")
SERVER_CORE, CLIENT_CORE = 0, 1

_VLLM_BENCH_SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""What `vllm bench serve` runs: the console script of the CPU build does not start."""


class _Paced:
    """The server of one measurement, from start to end."""

    def __enter__(self) -> "_Paced":
        self._process = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), sys.executable, "-m", "engine_adapter.test_servers.paced",
             "--port", "0", "--ttft-ms", "50", "--interval-ms", "20"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = "http://" + self._process.stdout.readline().split()[-1]
        return self

    def truth(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/truth") as answer:
            truth: dict[str, Any] = json.load(answer)
        return truth

    def __exit__(self, *_: object) -> None:
        self._process.communicate("")


def _tune(url: str, streams: int, folder: Path) -> dict[str, Any]:
    # Exit code 3 is a run that it declares invalid: that is part of the answer.
    _run([str(Path(sys.executable).with_name("tune")), "bench", "--base-url", url, "--model", "paced",
          "--request-rate", "inf", "--max-concurrency", str(streams), "--num-prompts", str(ROUNDS * streams),
          "--input-len", str(INPUT_LEN), "--output-len", str(OUTPUT_LEN), "--save-result",
          "--result-dir", str(folder), "--result-filename", "tune.json", "-o", str(folder)], accepted=(0, 3))
    result = json.loads((folder / "tune.json").read_text())
    return {"p99_gap": result["p99_tbt_ms"], "median_ttft": result["median_ttft_ms"],
            "valid": result["valid"], "why": result["invalid_reasons"], "completed": result["completed"],
            "cpu": result["client_cpu_share"], "read_delay_p99": result["client_read_delay_p99_ms"]}


def _vllm(url: str, streams: int, folder: Path) -> dict[str, Any]:
    _run([sys.executable, "-c", _VLLM_BENCH_SERVE, "--backend", "openai",
          "--base-url", url, "--endpoint", "/v1/completions", "--model", "paced",
          "--tokenizer", resolve_model(BUNDLED_MODEL), "--dataset-name", "random",
          "--random-input-len", str(INPUT_LEN), "--random-output-len", str(OUTPUT_LEN), "--ignore-eos",
          "--request-rate", "inf", "--max-concurrency", str(streams), "--num-prompts", str(ROUNDS * streams),
          "--ready-check-timeout-sec", "0", "--save-result", "--result-dir", str(folder),
          "--result-filename", "vllm.json", "--disable-tqdm"])
    result = json.loads((folder / "vllm.json").read_text())
    return {"p99_gap": result["p99_itl_ms"], "median_ttft": result["median_ttft_ms"], "valid": None,
            "completed": result["completed"]}


def _run(command: list[str], accepted: tuple[int, ...] = (0,)) -> None:
    ended = subprocess.run(["taskset", "-c", str(CLIENT_CORE), *command], capture_output=True, text=True,
                           env=os.environ | {"HF_HUB_OFFLINE": "1"})
    if ended.returncode not in accepted:
        raise SystemExit(f"{command[:6]} failed:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")


def main() -> None:
    clients = {"tune": _tune, "vllm": _vllm}
    for streams in STREAMS:
        for name in TURNS:
            with tempfile.TemporaryDirectory() as folder, _Paced() as server:
                found = clients[name](server.url, streams, Path(folder))
                truth = server.truth()
            gap, ttft = truth["tbt_ms"]["p99"], truth["ttft_ms"]["p50"]
            print(f"{streams:5} streams  {name:5}"
                  f" p99 gap {found['p99_gap']:8.2f} (true {gap:7.2f}, off "
                  f"{found['p99_gap'] - gap:+8.2f}) ms   "
                  f"median TTFT {found['median_ttft']:8.2f} (true {ttft:6.2f}, off "
                  f"{found['median_ttft'] - ttft:+8.2f}) ms   {_remarks(found, truth)}", flush=True)


def _remarks(found: dict[str, Any], truth: dict[str, Any]) -> str:
    saturated = "server saturated; " if truth["saturated"] else ""
    if found["valid"] is None:
        return f"{saturated}no verdict"
    cpu = f"core {found['cpu']:.0%} busy, read delay p99 {found['read_delay_p99']:.2f} ms"
    return f"{saturated}{'valid' if found['valid'] else 'invalid: ' + '; '.join(found['why'])}; {cpu}"


if __name__ == "__main__":
    main()
