"""Does a realised trace reuse as much of its prompts as the trace itself, by vLLM's own count?

    python docs/studies/prefix_reuse.py FOLDER [--rows N] [--scale 16] [--model PATH]

FOLDER holds Mooncake's conversation_trace.jsonl and synthetic_trace.jsonl. Each is made `scale` times
shorter, blocks too, and sent one request after another to vLLM on the CPU, with prefix caching and a KV cache
that holds it all; answers are one token, as nothing repeats them. What a cache finds depends on the tokens
alone, so by default the model has two layers and random weights: then the whole traces take minutes.

Stated are the prompt tokens that are found in the cache by the trace (leading blocks that an earlier row
had), by vLLM's rules (whole KV blocks, and the last token of a prompt is always computed), and by vLLM's
own count.

    make study-prefix-reuse
"""

import argparse
import asyncio
import json
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import play
from bench.server_watch import ServerWatch
from engine_adapter.clock import WallClock
from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.models import resolve_model
from engine_adapter.vllm_launch import VllmLaunch
from workloads import Plan
from workloads.shared_blocks import found_again
from workloads.traces import read_trace
from workloads.traces.prefix_reuse import PrefixReuse
from workloads.traces.replay import trace_plan
from workloads.traces.shaping import fit_lengths, scale_lengths

TRACES = ("conversation", "synthetic")
BLOCK_SIZE, ROOM = 32, 1.02
SMALL_MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "vocab_size": 32_000, "max_position_embeddings": 16_384, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True, "dtype": "bfloat16",
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}


@dataclass(frozen=True, slots=True)
class Reuse:
    """Prompt tokens of one plan, and how many of them were found in the prefix cache."""

    rows: int
    tokens: int
    by_trace: int
    by_rule: int
    by_vllm: int

    def line(self, name: str) -> str:
        """A row of the table."""
        cells = [f"{found:,} ({found / self.tokens:.2%})"
                 for found in (self.by_trace, self.by_rule, self.by_vllm)]
        told = [f"{100 * (self.by_vllm - other) / self.tokens:+.2f} points, {self.by_vllm / other - 1:+.2%}"
                for other in (self.by_trace, self.by_rule)]
        return f"| {name} | {self.rows:,} | {self.tokens:,} | {' | '.join(cells)} | {' | '.join(told)} |"


def launch_of(model: str | None, directory: Path, kv_blocks: int) -> tuple[VllmLaunch, int]:
    """How to start the engine, and the longest request that it takes."""
    path, more = model and resolve_model(model), {}
    if path is None:
        path, more = str(directory), {"load_format": "dummy", "skip_tokenizer_init": True}
        (directory / "config.json").write_text(json.dumps(SMALL_MODEL))
    config: dict[str, Any] = json.loads((Path(path) / "config.json").read_text())
    per_token = (config["num_hidden_layers"] * config["num_key_value_heads"] * 2 * 2
                 * config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]))
    longest = config["max_position_embeddings"]
    kv_bytes = int(ROOM * (kv_blocks * BLOCK_SIZE + longest) * per_token)
    return VllmLaunch(path, {
        "enforce_eager": True, "max_model_len": longest, "block_size": BLOCK_SIZE,
        "enable_prefix_caching": True, "kv_cache_memory_bytes": kv_bytes, **more}), longest


async def hits_of(plan: Plan, launch: VllmLaunch, kv_blocks: int) -> int:
    """The tokens that vLLM found when the requests are sent one after another."""
    engine = EmbeddedVllm(launch)
    try:
        info = await engine.start()
        assert info.kv_block_size == BLOCK_SIZE
        assert info.num_kv_blocks is not None
        assert info.num_kv_blocks > kv_blocks, "the KV cache would forget"
        watch = ServerWatch(engine)
        await watch.begin()
        run = await play(plan, engine, info, clock=WallClock(), salt="prefix-reuse", max_concurrency=1)
        run = await watch.end(run, plan)
    finally:
        await engine.stop()
    assert run.ok.all(), run.outcome_counts()
    assert run.meta["prefix_cache"]["queries"] == plan.input_len.sum()
    return int(run.meta["prefix_cache"]["hits"])


def measure(path: Path, rows: int | None, scale: int, model: str | None) -> Reuse:
    """One trace, or its first rows."""
    with tempfile.TemporaryDirectory() as directory:
        _, longest = launch_of(model, Path(directory), 0)
        trace = fit_lengths(scale_lengths(read_trace(path, format="mooncake"), 1 / scale), longest, "reject")
        trace = trace.take(np.arange(len(trace) if rows is None else min(rows, len(trace))))
        trace = replace(trace, output_len=np.ones(len(trace), np.int32))
        plan = trace_plan(trace, seed=0, rate_rps=math.inf)
        found = int(found_again(plan, BLOCK_SIZE).sum())
        kv_blocks = int((-(-(plan.input_len + 1) // BLOCK_SIZE)).sum()) - found // BLOCK_SIZE
        launch, _ = launch_of(model, Path(directory), kv_blocks)
        hits = asyncio.run(hits_of(plan, launch, kv_blocks))
    return Reuse(rows=len(plan), tokens=int(plan.input_len.sum()), by_rule=found, by_vllm=hits,
                 by_trace=int(PrefixReuse().add(trace).sum()))


def main() -> None:
    """Print one row for each trace."""
    parser = argparse.ArgumentParser(description="Prefix reuse of realised traces, by vLLM's own count.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, help="the first so many; default: all")
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--model", help="such as smollm2-135m; default: two layers of random weights")
    asked = parser.parse_args()
    columns = ("trace", "rows", "prompt tokens", "by the trace", "by vLLM's rules", "counted by vLLM",
               "vLLM against the trace", "vLLM against its rules")
    print(f"| {' | '.join(columns)} |\n|---{'|---:' * 5}|---|---|")
    for name in TRACES:
        found = measure(asked.folder / f"{name}_trace.jsonl", asked.rows, asked.scale, asked.model)
        print(found.line(name), flush=True)


if __name__ == "__main__":
    main()
