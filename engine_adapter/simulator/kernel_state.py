"""The state of a simulated scheduler as arrays, and the meaning of each place in them.

The compiled functions of the `kernel_*` modules read and change these arrays in place. Names in
brackets are vLLM 0.32's attributes.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")
"""For functions that only compiled functions call; compiling them takes half of the time."""


class State(NamedTuple):
    """One scheduler."""

    scalars: Int64
    """Settings and counters, see below."""
    rows: Int64
    """Shape (capacity, NUM_ROW_FIELDS): one row per request."""
    running: Int64
    """Rows in order of admission (RUNNING)."""
    waiting: Int64
    """A binary heap of rows, see kernel_queue."""
    spare: Int64
    """Room for as many rows again: preempted in the latest step, or set aside while admitting."""
    entries: Int64
    """Shape (steps in flight, requests, NUM_ENTRY_FIELDS): what each step carries."""
    entry_counts: Int64
    """Requests of each step in flight."""
    tables: Int32
    """KV blocks of the requests, each at its TABLE; only with prefix caching."""
    contents: Int32
    """Content numbers of the full blocks of the requests, each at its CONTENT."""
    cached: Int32
    """Shape (contents, 2): first and last block that hold a content, -1 for none."""
    blocks: Int32
    """Shape (num_kv_blocks + 1, NUM_BLOCK_FIELDS); the last one is the end of the free list."""


# Scalars: settings.
(BUDGET, INPUT_BUDGET, MAX_ACTIVE, MAX_MODEL_LEN, NUM_BLOCKS, BLOCK_SIZE, LONG_PREFILL, ADAPTIVE, PRIORITY,
 CACHING, CHUNKED, RESERVE_FULL, WATERMARK, NUM_SPEC, LOOKAHEAD, DRAFT_SLOTS, DROP_LAST_HIT, ASYNC,
 STAGES, MOST_IN_FLIGHT, SEED, ACCEPT_BELOW) = range(22)
# Scalars: counters.
(STEP,              # calls of schedule (current_step)
 NUM_RUNNING, NUM_WAITING, FREE_BLOCKS,
 OLDEST, IN_FLIGHT,  # place and number of the steps whose outputs are not processed
 QUEUE_FRONT, QUEUE_BACK,  # next numbers at the ends of the first-come queue
 PREEMPTED,         # requests preempted by the latest call of schedule
 PROGRESS,          # the step that last got further than ever with a request
 SCHEDULED, HIT, LOST, REJECTED,  # tokens: scheduled, found cached, lost to preemption, rejected drafts
 ) = range(22, 36)
NUM_SCALARS = 36

# Fields of a row; those that a decode touches in each step come first.
(COMPUTED,          # tokens in the KV cache, those in flight included (num_computed_tokens)
 KNOWN,             # prompt and processed output tokens (num_tokens)
 INPUT, OUTPUT,     # prompt tokens; output tokens asked for (max_tokens)
 DRAFTS,            # draft tokens to verify next (len(spec_token_ids))
 PLACEHOLDERS,      # output tokens in flight (num_output_placeholders)
 ROOM,              # tokens that its blocks can hold
 CACHE_NEXT,        # known tokens at which its next block becomes full and is cached
 TOKENS_IN_FLIGHT, STALE,  # num_in_flight_tokens, num_stale_output_tokens
 STATUS,
 ELIGIBLE,          # next_decode_eligible_step
 PREFILLING,        # its latest chunk was not its last (is_prefill_chunk)
 FARTHEST,          # the most that COMPUTED ever was
 READS, READ_AT,    # kernel_loop: reads so far, and where its first one is noted
 CONTENT, TABLE,    # its places in State.contents and State.tables
 QUEUE_FIRST, QUEUE_SECOND,  # its order in the waiting queue
 URGENCY, ARRIVAL,  # priority and arrival_time
 PREEMPTIONS, CACHED_TOKENS, FIRST_NS) = range(25)
NUM_ROW_FIELDS = 25

NEVER = 2**62
"""CACHE_NEXT without prefix caching."""

NEW, WAITING, RUNNING, PREEMPTED_WAITING, FINISHED, REFUSED = range(6)

# Fields of an entry: one request in one step.
(ROW, TOKENS, PREFIX,
 DRAFTED,           # draft tokens among its tokens
 PADDED,            # they are stand-ins of an admission and never accepted
 SAMPLES,           # a token comes out of it
 NEW_TOKENS, ENDED,  # after its outputs were processed
 ) = range(8)
NUM_ENTRY_FIELDS = 8

# Fields of a block: neighbours in the free list, requests that hold it, the content it is cached
# under or -1, and its neighbours among the blocks of that content.
NEXT, PREVIOUS, HOLDERS, HOLDS, NEXT_SAME, PREVIOUS_SAME = range(6)
NUM_BLOCK_FIELDS = 6
