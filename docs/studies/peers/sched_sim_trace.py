"""Runs a trace in sched-sim, under a Python that has it: `python sched_sim_trace.py TRACE.json`.

Its chunked scheduler with a budget of 2,048 tokens, its A100 with Llama-3-8B. It has no limit of
running requests: `max_batch_size` is stored and never read in 0.2.1. One run, timed from the loaded
requests to its metrics.
"""

import json
import sys
import time
from importlib.metadata import version

from sched_sim.core.event_engine import Simulator
from sched_sim.hardware.presets import get_hardware_profile
from sched_sim.schedulers.factory import create_scheduler
from sched_sim.workloads.trace_loader import load_trace_file

hardware = get_hardware_profile("a100")
scheduler = create_scheduler("chunked", hardware, token_budget=2048, max_batch_size=128)
simulator = Simulator(hardware, scheduler)
requests = load_trace_file(sys.argv[1])
begin = time.perf_counter()
simulator.submit_workload(requests)
metrics = simulator.run()
print(json.dumps({
    "version": version("sched-sim"), "wall_s": time.perf_counter() - begin, "steps": metrics.total_iterations,
    "done": metrics.completed_requests, "mean_batch": metrics.avg_batch_size,
    "mean_ttft_ms": metrics.ttft_ms.mean, "mean_tpot_ms": metrics.tpot_ms.mean}))
