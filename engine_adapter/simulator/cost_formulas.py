"""The arithmetic of a step's cost, as plain functions of numbers that numba can also compile."""

import numpy as np
import numpy.typing as npt

FIXED, CHUNK, CHUNK_PAIR, CHUNK_KV, QUERY_TILE, DECODE, DECODE_KV = range(7)
TERMS = {"fixed_ns": FIXED, "chunk_ns": CHUNK, "chunk_pair_ns": CHUNK_PAIR, "chunk_kv_ns": CHUNK_KV,
         "query_tile": QUERY_TILE, "decode_ns": DECODE, "decode_kv_ns": DECODE_KV}
"""Place of each number in the array of terms, by its name in StepCost."""
NUM_TERMS = len(TERMS)

Float64 = npt.NDArray[np.float64]


def extended(linear_ns: Float64, most_tokens: int) -> Float64:
    """The table up to `most_tokens` at least, shape (max(len(linear_ns), most_tokens + 1),).

    What is missing follows the average slope of the table's last quarter: the slope between its last
    two entries alone would say whether they lie on a step of the staircase.
    """
    missing = most_tokens + 1 - len(linear_ns)
    if missing <= 0:
        return linear_ns
    last = len(linear_ns) - 1
    back = max(last // 4, 1)
    slope = max(float(linear_ns[last] - linear_ns[last - back]) / back, 0.0)
    return np.concatenate([linear_ns, linear_ns[last] + slope * np.arange(1, missing + 1)])


def chunk_attention_ns(terms: Float64, tokens: int, prefix: int) -> float:
    """Nanoseconds of the attention of a chunk of `tokens` after `prefix` tokens.

    A query sees the prefix and, on average, half of the chunk. Computing and reading overlap, so the
    longer one counts.
    """
    tile = terms[QUERY_TILE]
    queries = np.ceil(tokens / tile) * tile
    computing = terms[CHUNK_PAIR] * (queries * (prefix + 0.5 * (tokens + 1)))
    reading = terms[CHUNK_KV] * float(prefix + tokens)
    return float(max(computing, reading))


def step_ns(linear_ns: Float64, terms: Float64, num_tokens: int, num_chunks: int, chunk_attention: float,
            num_decodes: int, decode_context: int) -> float:
    """Nanoseconds of the device for a step: `chunk_attention` is the sum over its chunks, and
    `decode_context` the sum over its decoding requests. The table must reach `num_tokens`."""
    return float(terms[FIXED] + linear_ns[num_tokens] + terms[CHUNK] * num_chunks + chunk_attention
                 + terms[DECODE] * num_decodes + terms[DECODE_KV] * decode_context)
