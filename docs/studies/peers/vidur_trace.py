"""Runs a trace in Vidur, under a Python that has it: `python vidur_trace.py TRACE.json`.

Its Sarathi scheduler with chunks of 2,048 tokens and 128 requests. Its profiles are downloads that the
package does not hold; tables of the same shape with an A100's roofline for Llama-3-8B stand in for its
predictions, which changes no work of the run. Timed from the ready simulator to its metrics; plots and
traces are off.
"""

import json
import logging
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from vidur import config as c
from vidur.entities import Request
from vidur.execution_time_predictor import sklearn_execution_time_predictor as predictor
from vidur.request_generator import trace_replay_request_generator as generator
from vidur.simulator import Simulator

LONGEST, STEP, BATCH, CHUNK = 8192, 256, 128, 2048
LAYERS, TFLOPS, GB_PER_S = 32, 312 * 0.6, 2039 * 0.8
NO_TIME = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_act", "attn_rope", "attn_kv_cache_save",
           "input_layernorm", "post_attention_layernorm", "add")


def roofline(_self):
    """Milliseconds of a layer by operation: everything but attention under one name."""
    tables = {name: {(n,): 0.0 for n in range(1, LONGEST + 1)} for name in NO_TIME}
    tables["mlp_down_proj"] = {
        (n,): 1e3 * max(16.06e9 / GB_PER_S / 1e9, 16.06e9 * n / TFLOPS / 1e12) / LAYERS
        for n in range(1, LONGEST + 1)}
    contexts = range(0, LONGEST + 1, STEP)
    tables["attn_decode"] = {(b, k): 1e3 * b * k * 4096 / GB_PER_S / 1e9
                             for b in range(1, BATCH + 1) for k in contexts}
    tables["attn_prefill"] = {(k, q): 1e3 * 4 * 4096 * q * (k + q / 2) / TFLOPS / 1e12
                              for k in contexts for q in range(32, CHUNK + 1, 32)}
    return tables


def requests(_self):
    rows = json.loads(Path(sys.argv[1]).read_text())
    return [Request(r["timestamp"], r["prompt_tokens"], r["output_tokens"]) for r in rows]


logging.disable(logging.INFO)
predictor.SklearnExecutionTimePredictor._load_predictions_from_hf = roofline
generator.TraceReplayRequestGenerator.__init__ = lambda _self, _config: None
generator.TraceReplayRequestGenerator.generate_requests = requests
with tempfile.TemporaryDirectory() as folder:
    simulator = Simulator(c.SimulationConfig(
        cluster_config=c.ClusterConfig(
            replica_config=c.ReplicaConfig(num_pipeline_stages=1, tensor_parallel_size=1),
            cache_config=c.CacheConfig(num_blocks=27000),
            replica_scheduler_config=c.SarathiSchedulerConfig(batch_size_cap=BATCH, chunk_size=CHUNK)),
        request_generator_config=c.TraceRequestGeneratorConfig(),
        execution_time_predictor_config=c.RandomForrestExecutionTimePredictorConfig(
            prediction_max_tokens_per_request=LONGEST, prediction_max_prefill_chunk_size=CHUNK,
            cache_dir=f"{folder}/cache"),
        metrics_config=c.MetricsConfig(
            output_dir=f"{folder}/out", enable_chrome_trace=False, store_plots=False,
            store_batch_metrics=False, store_utilization_metrics=False)))
    begin = time.perf_counter()
    simulator.run()
    wall_s = time.perf_counter() - begin
print(json.dumps({"version": version("vidur"), "wall_s": wall_s, "simulated_s": simulator._time}))
