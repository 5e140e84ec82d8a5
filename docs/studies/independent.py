"""Does `tune bench` measure what somebody else would measure on the same engine?

The other measurement is written here without anything of ours but the plan: vLLM's AsyncLLM in
this process, its own scheduler, a stamp at each output. Both play the same arrivals and lengths
on fresh engines, in turns.

    make study-independent           about 7 minutes on two cores
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine_adapter.models import BUNDLED_MODEL, resolve_model
from workloads import build_plan, load_workload

RATE_RPS, SECONDS, SEED, TURNS = 2.5, 20.0, 7, 4
FIGURES = ("p50_tbt_ms", "p99_tbt_ms", "max_tbt_ms", "median_ttft_ms", "p90_ttft_ms")


async def _by_hand(salt: str) -> dict[str, float]:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(model=resolve_model(BUNDLED_MODEL), enforce_eager=True, max_model_len=2048,
                        kv_cache_memory_bytes=1 << 30, disable_log_stats=True),
        usage_context=UsageContext.OPENAI_API_SERVER)
    plan = build_plan(load_workload("cpu"), rate_rps=RATE_RPS, seed=SEED, duration_s=SECONDS, warmup_s=2)
    prompts = [plan.prompt_token_ids(i, vocab_size=49152, salt=salt) for i in range(len(plan))]
    ttfts: list[float] = []
    gaps: list[float] = []

    async def ask(i: int) -> None:
        await asyncio.sleep(max(0.0, begin + plan.intended_ns[i] / 1e9 - time.perf_counter()))
        params = SamplingParams(max_tokens=int(plan.output_len[i]), ignore_eos=True, temperature=0.0,
                                detokenize=False, output_kind=RequestOutputKind.DELTA)
        sent = last = time.perf_counter()
        first = True
        async for _ in llm.generate({"prompt_token_ids": prompts[i]}, params, f"{i}"):
            now = time.perf_counter()
            if i >= plan.num_warmups:
                (ttfts if first else gaps).append(now - (sent if first else last))
            first, last = False, now

    begin = time.perf_counter() + 0.1
    await asyncio.gather(*[ask(i) for i in range(len(plan))])
    llm.shutdown()
    return {
        "p50_tbt_ms": float(np.percentile(gaps, 50)) * 1e3,
        "p99_tbt_ms": float(np.percentile(gaps, 99)) * 1e3,
        "max_tbt_ms": max(gaps) * 1e3, "median_ttft_ms": float(np.median(ttfts)) * 1e3,
        "p90_ttft_ms": float(np.percentile(ttfts, 90)) * 1e3,
    }


def by_hand(turn: int) -> dict[str, float]:
    """In a process of its own, so that nothing of one measurement is left for the next."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR",
                                "VLLM_HOST_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run([sys.executable, __file__, f"turn {turn}"], env=environment, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def by_tune_bench(turn: int) -> dict[str, float]:
    """The command, as a user calls it."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("tune")), "bench", "--preset", "cpu", "--request-rate",
             f"{RATE_RPS}", "--duration", f"{SECONDS}", "--seed", f"{SEED}", "--no-fluidity", "--json",
             "-o", directory, "-e", f"turn-{turn}"],
            check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        result: dict[str, Any] = json.loads(done.stdout)
    if not result["valid"]:
        print("  INVALID:", result["invalid_reasons"])
    return {name: result[name] for name in FIGURES}


def main() -> None:
    """Print what both measured, turn by turn."""
    rows: dict[str, dict[str, list[float]]] = {name: {"hand": [], "tune": []} for name in FIGURES}
    for turn in range(TURNS):
        pair = (("hand", by_hand), ("tune", by_tune_bench))
        # ABBA: what drifts on the machine meets both alike.
        for who, measure in pair if turn % 2 else reversed(pair):
            for name, value in measure(turn).items():
                rows[name][who].append(value)
            shown = ", ".join(f"{name} {rows[name][who][-1]:.1f}" for name in FIGURES)
            print(f"  turn {turn} {who}: {shown}", flush=True)
    print("\n| figure | AsyncLLM by hand, each turn | tune bench, each turn |\n|---|---|---|")
    for name, both in rows.items():
        hand, tuned = (", ".join(f"{value:.1f}" for value in both[who]) for who in ("hand", "tune"))
        print(f"| {name} | {hand} | {tuned} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(_by_hand(sys.argv[1]))))
    else:
        main()
