"""Runs a trace in NVIDIA Dynamo's offline replay (Rust), under a Python that has `ai-dynamo-runtime`:
`python dynamo_trace.py TRACE.json`.

Its vLLM mocker with 128 requests, 2,048 tokens, blocks of 16, no prefix caching, and its built-in
polynomial step times at 0.6 of their speed, at which as many requests run at once as in ours.
`dynamo.replay` itself needs `aisimulate`, which PyPI has only as a stub; what is called here is the
function that it calls. Each run is timed with its reading of the trace and its summary; the first of
two is not counted.
"""

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from dynamo._core import run_mocker_trace_replay

with tempfile.TemporaryDirectory() as folder:
    trace = Path(folder) / "trace.jsonl"
    first_block, lines = 0, []
    for request in json.loads(Path(sys.argv[1]).read_text()):
        blocks = -(-request["prompt_tokens"] // 512)
        lines.append(json.dumps({
            "timestamp": 1e3 * request["timestamp"], "input_length": request["prompt_tokens"],
            "output_length": request["output_tokens"],
            "hash_ids": list(range(first_block, first_block + blocks))}))
        first_block += blocks
    trace.write_text("\n".join(lines) + "\n")
    engine = {"max_num_seqs": 128, "max_num_batched_tokens": 2048, "block_size": 16, "num_gpu_blocks": 27000,
              "enable_prefix_caching": False, "speedup_ratio": 0.6}
    for _ in range(2):
        begin = time.perf_counter()
        report = run_mocker_trace_replay([str(trace)], extra_engine_args={"engine": engine},
                                         capture_planner_details=False)
        wall_s = time.perf_counter() - begin
summary = report.summary
print(json.dumps({
    "version": version("ai-dynamo-runtime"), "wall_s": wall_s, "done": summary["completed_requests"],
    "mean_batch": summary["mean_e2e_latency_ms"] * summary["request_throughput_rps"] / 1e3,
    "mean_ttft_ms": summary["mean_ttft_ms"], "mean_tpot_ms": summary["mean_tpot_ms"]}))
