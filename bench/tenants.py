"""Classes of users within one run: which requests are theirs, and what they are promised.

A run carries both in its meta, so that a run read from disk is judged as the one that was measured:
`component_tenants`, the tenant of each component ("" for none), and `tenants`, by name what differs
from the run's own promises: goodput (list of rules), decode_deadline_ms, prefill_slack_ms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.goodput import GoodputRules
from bench.prefill_curve import Deadlines
from bench.run import Bool, Run
from workloads import Workload
from workloads.errors import UsageError


@dataclass(frozen=True, slots=True)
class Promise:
    """What the requests of one tenant, or of none, are measured by."""

    goodput: GoodputRules | None
    deadlines: Deadlines | None


def tenants_meta(workload: Workload) -> dict[str, Any]:
    """What Run.meta must hold of the promises to the tenants of `workload`; empty without tenants."""
    if not workload.tenants:
        return {}
    return {"tenants": {name: tenant.model_dump(mode="json", exclude={"slo"}, exclude_none=True)
                        for name, tenant in workload.tenants.items()}}


def tenant_names(run: Run) -> tuple[str, ...]:
    """The tenants of a run in the order of its components; empty where it has none."""
    return tuple(dict.fromkeys(name for name in run.meta.get("component_tenants") or () if name))


def rows_of(run: Run, tenant: str) -> Bool:
    """Which requests are the tenant's ("": nobody's), shape (requests,). UsageError for an unknown one."""
    of_component = run.meta.get("component_tenants") or ()
    if tenant and tenant not in of_component:
        known = ", ".join(tenant_names(run)) or "it has none"
        raise UsageError(f"this run has no tenant {tenant!r}; its tenants: {known}")
    theirs: Bool = np.isin(run.component, [i for i, name in enumerate(of_component) if name == tenant])
    return theirs if of_component else np.ones(len(run), dtype=np.bool_)


def promise_to(run: Run, tenant: str, deadlines: Deadlines | None, goodput: GoodputRules | None) -> Promise:
    """The run's own deadlines and rules, with what the tenant is promised in their place."""
    own: Mapping[str, Any] = (run.meta.get("tenants") or {}).get(tenant, {})
    if own.get("goodput"):
        goodput = GoodputRules.parse(own["goodput"])
    if deadlines is not None:
        slack_ms, decode_ms = own.get("prefill_slack_ms"), own.get("decode_deadline_ms")
        deadlines = replace(
            deadlines, slack_ns=deadlines.slack_ns if slack_ms is None else round(slack_ms * 1e6),
            decode_ns=deadlines.decode_ns if decode_ms is None else round(decode_ms * 1e6))
    return Promise(goodput, deadlines)


def promises(run: Run, deadlines: Deadlines | None,
             goodput: GoodputRules | None) -> list[tuple[Bool, Promise]]:
    """The requests of every tenant, and of nobody, with what they are promised; together all requests.
    One entry where nothing differs."""
    if not any(run.meta.get("tenants", {}).values()):
        return [(np.ones(len(run), dtype=np.bool_), Promise(goodput, deadlines))]
    found = [(rows_of(run, name), promise_to(run, name, deadlines, goodput))
             for name in (*tenant_names(run), "")]
    # Of a run without requests there is no tenant either.
    return [(rows, promise) for rows, promise in found if rows.any()] or found[-1:]
