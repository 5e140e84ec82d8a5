"""A bursty trace of our own, whose answers depend on its prompts."""

import numpy as np

from workloads.prompt_parts import PromptBlocks
from workloads.traces.trace import Trace


def bursty_trace(seed: int = 1, *, slots: int = 240, mean: float = 40.0) -> Trace:
    """Requests of slots of 10 s with gamma distributed rates that last about a minute."""
    rng = np.random.default_rng(seed)
    rates = np.repeat(rng.gamma(1.5, 1 / 1.5, -(-slots // 4)), 4)[:slots] * rng.gamma(4, 1 / 4, slots)
    counts = rng.poisson(mean * rates)
    seconds = np.sort(np.repeat(np.arange(slots) * 10.0, counts) + 10 * rng.random(int(counts.sum())))
    rows = len(seconds)
    common = rng.standard_normal(rows)
    prompts = np.exp(6 + common).astype(int) + 1
    answers = np.exp(4 + 0.7 * common + 0.6 * rng.standard_normal(rows)).astype(int) + 1
    prompts[rng.random(rows) < 0.05] = 4096   # where somebody cuts prompts
    return Trace(arrival_ns=np.rint((seconds - seconds[0]) * 1e9), input_len=prompts, output_len=answers)


def sharing_trace(seed: int = 2, rows: int = 4000) -> Trace:
    """All prompts begin with 4 blocks; half of them continue one of the last prompts to its end."""
    rng = np.random.default_rng(seed)
    prompts: list[list[int]] = []
    keys = iter(range(100, 10_000_000))
    for _ in range(rows):
        source = prompts[-int(rng.integers(1, min(len(prompts), 50) + 1))] if prompts else [0, 1, 2, 3]
        start = source if rng.random() < 0.5 and len(source) < 200 else [0, 1, 2, 3]
        prompts.append([*start, *(next(keys) for _ in range(int(rng.integers(2, 40))))])
    lengths = np.array([16 * len(prompt) - int(rng.integers(0, 16)) for prompt in prompts])
    offset = np.concatenate([[0], np.cumsum([len(prompt) for prompt in prompts])])
    return Trace(arrival_ns=np.arange(rows) * 250_000_000, input_len=lengths,
                 output_len=rng.integers(1, 200, rows),
                 blocks=PromptBlocks(16, np.concatenate([np.array(p) for p in prompts]), offset))
