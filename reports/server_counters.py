"""What a server's own counters gained during a run, in words."""

from collections.abc import Mapping
from typing import Any

from bench import NEVER, Run
from reports.quantities import show
from reports.token_counts import found_words
from reports.tolerant import flag, integer, mapping, text


def server_delta(run: Run) -> Mapping[str, Any]:
    """The counters as they are in the run; empty where there are none."""
    return mapping(mapping(run.meta.get("server_metrics")).get("delta"))


def server_facts(run: Run) -> dict[str, str]:
    """Names and values in reading order; what the server does not show is left out."""
    delta = server_delta(run)
    if flag(delta.get("restarted")):
        return {"Restarted": "yes: its counters began anew during the run, and say nothing about it"}
    facts = {
        "Finished requests": _finished(delta, sent=int((run.sent_ns != NEVER).sum())),
        "Preemptions": _whole(delta.get("preemptions")),
        "Found in the prefix cache": _prefix_hits(delta),
        "Prompt tokens": _whole(delta.get("prompt_tokens")),
        "Generated tokens": _whole(delta.get("generation_tokens")),
    }
    return {name: told for name, told in facts.items() if told}


def _finished(delta: Mapping[str, Any], sent: int) -> str:
    total = integer(delta.get("finished_requests"))
    if total is None:
        return ""
    reasons = [f"{text(name)} {show(float(count))}" for name, value in mapping(delta.get("finished")).items()
               if (count := integer(value))]
    told = f" ({', '.join(reasons)})" if reasons and reasons != [f"all {show(float(total))}"] else ""
    return f"{show(float(total))}{told}; this run sent {show(float(sent))}"


def _prefix_hits(delta: Mapping[str, Any]) -> str:
    hits = integer(delta.get("prefix_hits"))
    return "" if hits is None else found_words(hits, integer(delta.get("prefix_queries")))


def _whole(value: object) -> str:
    found = integer(value)
    return "" if found is None else show(float(found))
