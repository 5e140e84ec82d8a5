"""What a run must know of the load that was asked for, JSON-able; see Run.meta."""

import math
from typing import Any

from bench.files import jsonable
from bench.tenants import tenants_meta
from workloads import Workload


def load_meta(workload: Workload, burstiness: float) -> dict[str, Any]:
    """Name and digest of the workload, its tenants' promises, how requests came (`burstiness`, the shape of
    gamma gaps, is null where a trace or another process says it), and of a trace what was left out."""
    trace, process = workload.trace, workload.arrivals
    replayed = trace is not None and trace.timed
    asked = not math.isclose(burstiness, workload.burstiness)   # which takes the place of the process
    said = "as recorded" if replayed else process.describe() if process is not None and not asked else None
    return {
        "workload": {"name": workload.name, "digest": workload.digest()},
        **tenants_meta(workload),
        **({} if trace is None else {"trace": trace.facts()}),
        **({} if said is None else {"arrivals": said}),
        "burstiness": jsonable(burstiness) if said is None else None,
    }
