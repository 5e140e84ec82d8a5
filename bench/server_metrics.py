"""What a server's own counters say against a run: a warm cache, other users, preemptions."""

from dataclasses import dataclass

from engine_adapter.http.server_metrics import ServerDelta, ServerMetrics, delta

UNEXPLAINED_HITS_SHARE = 0.01
"""Share of the prompt tokens that may come from the prefix cache without the plan explaining it."""
_EXACT_GAUGES = frozenset({"vllm"})
"""Engines that set their gauges in every step. Others set them now and then, and an idle server may show
the last figures of its last load."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one run asks of a server between two looks at it, warm-up included."""

    requests: int
    """Requests that were sent, however they ended."""
    prompt_tokens: int
    """Their prompt tokens; where the server counted them, its count."""
    shared_prompt_tokens: int = 0
    """Prompt tokens that stand at the beginning of an earlier prompt of the plan too, and what a chat
    template puts before each of them: the most that a cache which was empty may answer."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Sentences for a run's validity: `reasons` make it invalid, `notes` do not."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def findings(before: ServerMetrics | None, after: ServerMetrics | None, expected: Expected) -> Findings:
    """What the looks at the server before and after a run say about it.

    Reasons: it was busy before, it finished more requests than the run sent, it restarted, its prefix
    cache was warm. Notes: preemptions; a server whose metrics cannot be read.
    """
    if before is None or after is None:
        return Findings(notes=("the server's metrics could not be read: whether its prefix cache was warm "
                               "or others used it was not checked",))
    gained = delta(before, after)
    busy = _busy(before)
    exact = before.engine in _EXACT_GAUGES
    reasons = [*(busy if exact else []), *_restarted(gained), *_others(gained, expected),
               *_warm_cache(gained, expected)]
    return Findings(tuple(reasons), (*([] if exact else busy), *_preempted(gained)))


def _busy(before: ServerMetrics) -> list[str]:
    running, waiting = before.running or 0, before.waiting or 0
    if not running + waiting:
        return []
    return [f"the server was busy before the run: {running} requests running, {waiting} waiting; measure "
            f"when nobody else uses it"]


def _restarted(gained: ServerDelta) -> list[str]:
    return ["the server restarted during the run: its counters began anew"] if gained.restarted else []


def _others(gained: ServerDelta, expected: Expected) -> list[str]:
    finished = gained.finished_requests
    if finished is None or finished <= expected.requests:
        return []
    return [f"somebody else used the server: it finished {finished} requests, {expected.requests} were sent; "
            f"measure when nobody else uses it"]


def _warm_cache(gained: ServerDelta, expected: Expected) -> list[str]:
    hits = gained.prefix_hits
    asked = gained.prefix_queries or expected.prompt_tokens
    if not hits or not asked:
        return []
    # One token a request: the beginning-of-sequence token that a tokenizer puts before every prompt.
    unexplained = hits - expected.shared_prompt_tokens - expected.requests
    if unexplained <= UNEXPLAINED_HITS_SHARE * asked:
        return []
    return [f"the prefix cache was warm: it held {hits} of {asked} prompt tokens ({hits / asked:.1%}), the "
            f"plan explains {expected.shared_prompt_tokens}; use another seed or reset the cache"]


def _preempted(gained: ServerDelta) -> list[str]:
    if not gained.preemptions:
        return []
    return [f"{gained.preemptions} preemptions: the KV cache was full, and the requests were computed again"]
