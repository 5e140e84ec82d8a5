"""How late tokens were read: the way from the engine's step to the client, measured on one clock."""

import numpy as np

from bench.run import Int64, Run


def delivery_delays_ns(run: Run) -> Int64 | None:
    """For each read of the run, the time since the newest engine step that had ended by then.

    A token leaves its step at the step's end, so this is what processes, queues and a busy
    client added to it: the measuring error of every token time, itself measured. Shape (reads,).
    None without a whole step log (both clocks must be CLOCK_MONOTONIC of one machine).
    """
    ends = run.steps.steps["end_ns"]
    if run.steps.lost or not len(ends) or not len(run.read_ns):
        return None
    newest = np.searchsorted(ends, run.read_ns, side="right") - 1
    delays: Int64 = (run.read_ns - ends[np.maximum(newest, 0)])[newest >= 0]
    return delays if len(delays) else None
