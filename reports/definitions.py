"""What the words of a report mean, and how its numbers were made."""

from collections.abc import Iterable

from bench import CATALOG
from reports.comparison import ABOUT_THE_SAME
from reports.document import Bullets, Facts, Section
from reports.quantities import Quantity, capitalised
from reports.run_load import OPEN_LOOP

_OWN = {
    "Capacity": "Largest offered rate, in requests per second, at which every objective of the SLO holds and "
    "the load is sustainable: the median scheduling delay stays within 2 s (the rule of Sarathi-Serve, "
    "arXiv 2403.02310) and the backlog does not grow.",
    "SLO": "Service-level objectives: limits on statistics of metrics. All must hold. An objective on a "
    "metric without samples is not met.",
    "Offered rate": "Requests per second that are sent, whether or not the engine keeps up.",
    "Budget": "The most tokens that one engine step may process: max_num_batched_tokens in vLLM.",
    "Seqs": "The most requests that run at once: max_num_seqs in vLLM.",
    "Cap": "The most tokens of one long prompt that a step may process: long_prefill_token_threshold in "
    "vLLM. An adaptive cap is raised to a fair share of the budget.",
    "Trial": "One setting, judged by runs at one or more rates on a running engine. A trial stands for its "
    "highest rate that held the SLO, else for the lowest that was tried.",
    "Scout": "A run before the first trial that looks for a rate to start from; it counts for its setting.",
    "Confirmation": "A run in an engine started anew from the configuration file, longer than a run of the "
    "search and with fresh prompts and arrivals.",
    "Origin of a trial": "default is the engine's own setting, analytic was computed from the probe (with "
    "cap: as a cap), neighbour lies beside a good one, sampler was proposed by Optuna.",
    "Change": "Relative to the default; for fluidity the difference. Up to "
    f"{ABOUT_THE_SAME * 100:.0f}\u00a0% it is called about the same.",
    "Longest gap": "The longest TBT of the run. One gap decides it, so it varies much between runs.",
}
_SHORT = {"ttft": "TTFT", "tbt": "TBT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E"}
_METHOD = (
    "All times are integer nanoseconds of one monotonic clock, read by the client when the tokens arrive.",
    "Warm-up requests are left out of every figure.",
    "Percentiles are linear-interpolated over successful requests or their tokens; a percentile that too few "
    "samples support is not stated (p99 needs 100).",
    "A figure without samples is shown as —, never as 0.",
    "A run whose client was late is invalid, not slow.",
)


def definitions(
    quantities: Iterable[Quantity], *, tuned: bool, sending: Iterable[str] = (OPEN_LOOP,)
) -> Section:
    """Definitions of every metric among `quantities`, of capacity and SLO where the report is of a
    tuning, when requests were sent, and the rules all figures follow."""
    metrics = dict.fromkeys(named.metric for named in quantities)
    items = list(_OWN.items()) if tuned else []
    items += [
        (_SHORT.get(name, capitalised(name.replace("_", " "))), CATALOG[name].definition)
        for name in metrics
        if name in CATALOG
    ]
    return Section("definitions", "Definitions", (Facts(tuple(items)), Bullets((*sending, *_METHOD))))
