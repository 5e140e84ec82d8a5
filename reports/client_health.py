"""How the measuring process itself fared, in words: whether its figures can be the server's."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench import NEVER, ClientHealth, Run
from reports.quantities import digits, share, show
from reports.tolerant import flag, mapping, mappings, text

_KERNEL_RULE = (
    "Over plain HTTP the time of a token is when the kernel received it, however late this client read it."
)
_MIN_FOR_P99 = 100


def client_facts(run: Run, delivery_ms: Mapping[str, float | None]) -> dict[str, str]:
    """Names and values in reading order, without what was not measured. `delivery_ms`: p50, p99 and max
    of the way from the engine's step to the client, where there is a step log."""
    client = run.client
    facts = {
        "Requests sent late": _lateness(run),
        "Tokens stamped": _stamped(run),
        "Wait in the socket": _three(client, "read_delay"),
        "Read together": _merged(client.merged_share),
        "Tokens after their step": _spread(*map(delivery_ms.get, ("p50", "p99", "max"))),
        "Event loop late": _three(client, "loop_lag"),
        "Processor time": "" if client.cpu_share is None else f"{_share(client.cpu_share)} of a core",
        "Workers": _workers(run),
    }
    return {name: told for name, told in facts.items() if told}


def stamped_by_kernel(run: Run) -> tuple[str, ...]:
    """The rule that this makes, where it holds for the run."""
    return (_KERNEL_RULE,) if flag(_server(run).get("kernel_stamps")) else ()


def _server(run: Run) -> Mapping[str, Any]:
    return mapping(mapping(run.meta.get("engine")).get("fingerprint"))


def _lateness(run: Run) -> str:
    sent = run.measured & (run.sent_ns != NEVER)
    if run.rate_rps == float("inf") and not run.meta.get("max_concurrency"):
        return "all at once: there was no schedule to keep"
    if not sent.any():
        return ""
    # Not what a concurrency cap held back: that is the load's, not the client's.
    late_ms = (run.sent_ns - run.due_ns)[sent] / 1e6
    p99 = float(np.percentile(late_ms, 99)) if len(late_ms) >= _MIN_FOR_P99 else None
    return _spread(float(np.median(late_ms)), p99, float(late_ms.max()))


def _stamped(run: Run) -> str:
    facts = _server(run)
    if flag(facts.get("kernel_stamps")):
        return "by the kernel, at their arrival"
    if flag(facts.get("tls")):
        return "by the client, once TLS had opened them"
    if text(facts.get("api")):
        return "by the client, at the read"
    return ""


def _three(client: ClientHealth, name: str) -> str:
    values = [getattr(client, f"{name}_{stat}_ns") for stat in ("p50", "p99", "max")]
    return _spread(*(None if value is None else value / 1e6 for value in values))


def _spread(median: float | None, p99: float | None, largest: float | None) -> str:
    named = {"median": median, "p99": p99, "longest": largest}
    return ", ".join(f"{name} {_ms(value)}" for name, value in named.items() if value is not None)


def _ms(value: float) -> str:
    return show(round(value, 3), "ms")


def _share(value: float | None) -> str:
    if value is None:
        return ""
    return share(value) if not value or value >= 0.0001 else f"below {digits(0.01)}\u00a0%"


def _merged(value: float | None) -> str:
    return "" if value is None else f"{_share(value)} of the messages, with a later one"


def _workers(run: Run) -> str:
    workers = mappings(run.meta.get("workers"))
    return f"{len(workers)}; figures are the worst of theirs" if len(workers) > 1 else ""
