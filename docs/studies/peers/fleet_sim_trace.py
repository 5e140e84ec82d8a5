"""Runs a trace in vllm-sr-sim, under a Python that has it: `python fleet_sim_trace.py TRACE.json`.

One H100 profile of its own. It has no steps: a request's times are a formula of the requests that are
active when it starts.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

from fleet_sim.core.fleet import Fleet, FleetConfig, PoolConfig
from fleet_sim.core.request import Request
from fleet_sim.gpu_profiles import H100_80GB

rows = json.loads(Path(sys.argv[1]).read_text())
requests = [(r["timestamp"], Request(i, r["timestamp"], r["prompt_tokens"], r["output_tokens"]))
            for i, r in enumerate(rows)]
pool = PoolConfig("one", H100_80GB, n_gpus=1, max_ctx=8192)
fleet = Fleet(FleetConfig([pool], router_type="LeastLoadedRouter"))
begin = time.perf_counter()
result = fleet.run(requests)
result.summary()
wall_s = time.perf_counter() - begin
ttft = [r.ttft for _, r in requests if r.ttft is not None]
tpot = [r.tpot for _, r in requests if r.tpot is not None]
print(json.dumps({
    "version": version("vllm-sr-sim"), "wall_s": wall_s, "done": len(result.completed),
    "mean_ttft_ms": 1e3 * sum(ttft) / max(len(ttft), 1),
    "mean_tpot_ms": 1e3 * sum(tpot) / max(len(tpot), 1)}))
