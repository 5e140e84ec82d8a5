"""Runs whose step logs were drawn from a known cost."""

import numpy as np

from bench import Outcome, Run
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog

ENGINE = {
    "name": "vllm", "version": "0.32.0", "model": "small", "max_model_len": 4096, "num_kv_blocks": 1000,
    "kv_block_size": 16,
    "fingerprint": {"device": "cpu", "dtype": "bfloat16", "prefix_caching": True, "async_scheduling": False},
}
KNOBS = {"token_budget": 512, "max_seqs": 64, "long_prefill_token_threshold": 0,
         "adaptive_long_prefill": False, "policy": "fcfs"}


def logged_run(cost, *, seed, steps=400, budget=512, decodes=40, noise=0.0, outliers=0.0, host_ns=80_000,
               engine=ENGINE, lost=0, overlapping=False):
    """A run of one request, with a log of `steps` steps that `cost` gives their length: a third decode only,
    the others with one to three chunks. `noise` is the relative standard deviation, `outliers` the share of
    steps that take ten times as long. Overlapping steps are planned while the one before runs."""
    rng = np.random.default_rng(seed)
    rows, chunks, now = [], [], 1_000_000
    for step in range(steps):
        took, row, parts = _step(cost, rng, budget, decodes)
        took *= max(1 + noise * rng.standard_normal(), 0.2) * (10 if rng.random() < outliers else 1)
        start = now - (1_000_000 if overlapping and step else 0)
        end = now + round(took)
        rows.append((step, start, end, *row, 10, row[2] + len(parts), 0, 0))
        chunks += [(step, number, *part) for number, part in enumerate(parts)]
        now = end + (0 if overlapping else host_ns)
    log = StepLog(_columns(rows, STEP_COLUMNS), _columns(chunks, CHUNK_COLUMNS), lost)
    return run_with(log, engine, seed)


def run_with(log, engine=ENGINE, seed=0):
    """A run of one request with this log."""
    one = np.ones(1, dtype=np.int32)
    return Run(
        index=0 * one, component=0 * one, input_len=8 * one, output_len=one, warmup=one != 1,
        intended_ns=np.zeros(1, dtype=np.int64), sent_ns=np.full(1, seed, dtype=np.int64),
        end_ns=np.full(1, 10, dtype=np.int64), outcome=np.full(1, Outcome.OK, dtype=np.int8), num_tokens=one,
        reads_offset=np.array([0, 1]), read_ns=np.full(1, 2**40 + 10, dtype=np.int64), read_tokens=one,
        steps=log, meta={"engine": engine, "knobs": KNOBS, "rate_rps": 1.0, "seed": seed,
                         "label": f"run {seed}", "component_names": ["only"]})


def cpu_like(**others):
    """A cost that resembles a small model on two cores."""
    fields = {"fixed_ns": 15e6, "chunk_ns": 5e5, "chunk_pair_ns": 380.0, "decode_ns": 2e5,
              "decode_kv_ns": 2500.0} | others
    return StepCost.linear(token_ns=5e5, most_tokens=2048, **fields)


def _step(cost, rng, budget, decodes):
    running = int(rng.integers(0, decodes + 1))
    contexts = rng.integers(10, 1500, size=running).tolist()
    left, parts = budget - running, []
    for _ in range(int(rng.integers(0, 4))):
        # Budgets are used up, or prompts end before.
        tokens = min(int(rng.choice([rng.integers(1, 64), rng.integers(1, budget + 1), budget])), left)
        if tokens > 0:
            parts.append((tokens, int(rng.choice([0, rng.integers(0, 2048)]))))
            left -= tokens
    if not running and not parts:
        running, contexts = 1, [100]
    prefill = sum(tokens for tokens, _ in parts)
    work = sum(tokens * (2 * prefix + tokens) for tokens, prefix in parts) + sum(2 * c + 1 for c in contexts)
    took = cost.step_ns(prefill + running, parts, contexts)
    return took, (prefill + running, prefill, running, work // 2), parts


def _columns(rows, names):
    table = np.array(rows, dtype=np.int64).reshape(-1, len(names))
    return {name: table[:, number].copy() for number, name in enumerate(names)}
