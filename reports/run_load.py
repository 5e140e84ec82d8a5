"""How a run was loaded, in words: its rate, its cap, its stages, and what that means for its latencies."""

import numpy as np

from bench import NEVER, Run
from reports.quantities import digits, quantity, share, show
from reports.tolerant import integer, mappings, number

OPEN_LOOP = ("Requests are sent at times decided before the run (open loop): a slow engine never delays the "
             "next one.")
_CLOSED_LOOP = ("In a closed loop the next request is sent when one ends: a slow server gets less load, so "
                "its latencies are not those that arrivals would meet which do not wait for it.")
_CAPPED = ("Under a cap on the requests in flight whoever comes while all places are taken waits: latencies "
           "from the intended send count that wait, those from the send do not.")
_AT_ONCE = "All requests are sent at once."
_HELD_NS = 1_000_000
"""A request that found a place within a millisecond was not held back."""


def load_words(run: Run) -> str:
    """The load as the end of a sentence, as in `at 1.20 requests/s with at most 20 in flight`; empty for
    a run that does not say."""
    stages, rate, cap = mappings(run.meta.get("stages")), run.rate_rps, _cap(run)
    if stages:
        rates = [value for stage in stages for end in ("start_rps", "end_rps")
                 if (value := number(stage.get(end))) is not None]
        between = f" of {digits(min(rates))} to {show(max(rates), 'requests/s')}" if rates else ""
        said = f"in {len(stages)} stages{between}" if len(stages) > 1 else f"in one stage{between}"
    elif rate == float("inf"):
        return f"in a closed loop of {cap}" if cap else "with all sent at once"
    elif rate is not None:
        said = f"at {quantity('capacity_rps').show(rate)}"
    else:
        return ""
    return f"{said} with at most {cap} in flight" if cap else said


def sending_rule(run: Run) -> str:
    """When requests are sent, in one sentence for the definitions."""
    if run.rate_rps == float("inf"):
        return _CLOSED_LOOP if _cap(run) else _AT_ONCE
    return _CAPPED if _cap(run) else OPEN_LOOP


def held_back(run: Run) -> str:
    """How many requests waited for a place under the cap, and how long; empty where none did."""
    sent = run.measured & (run.sent_ns != NEVER)
    waited = (run.due_ns - run.intended_ns)[sent]
    held = waited[waited > _HELD_NS]
    if not len(held):
        return ""
    cap = _cap(run)
    place = f"one of the {cap} places" if cap else "a place"
    return (f"{len(held)} of {len(waited)} requests ({share(len(held) / len(waited))}) waited for {place}, "
            f"{show(float(np.median(held)) / 1e6, 'ms')} in the median and up to "
            f"{show(float(held.max()) / 1e6, 'ms')}; only figures from the intended send count that wait")


def _cap(run: Run) -> int | None:
    return integer(run.meta.get("max_concurrency"))
