"""How late tokens were read: the way from the engine's step to the client, measured on one clock."""

import numpy as np

from bench.run import Int64, Run

_BLOCK_STEPS = 4096
"""At a time: of millions of reads a second array would be as large as a run."""


def delivery_delays_ns(run: Run) -> Int64 | None:
    """For each read of the run, the time since the newest engine step that had ended by then.

    A token leaves its step at the step's end, so this is what processes, queues and a busy
    client added to it: the measuring error of every token time, itself measured. Shape (reads,),
    in order of time. None without a whole step log (both clocks must be CLOCK_MONOTONIC of one machine).
    """
    ends = run.steps.steps["end_ns"]
    if run.steps.lost or not len(ends) or not len(run.read_ns):
        return None
    # The few steps are sought among the many reads, not the other way round.
    reads = np.sort(run.read_ns)
    begin = np.searchsorted(reads, ends)
    counts = np.diff(begin, append=len(reads))
    for first in range(0, len(ends), _BLOCK_STEPS):
        block = slice(first, first + _BLOCK_STEPS)
        of_block = np.repeat(ends[block], counts[block])
        reads[begin[first]:begin[first] + len(of_block)] -= of_block
    delays: Int64 = reads[begin[0]:]
    return delays if len(delays) else None
