"""The probe: what a lone engine can do, before anything is searched.

It gives the reader's deadlines (frozen for the study), the analytic budget and a first rate.
"""

import math
from dataclasses import dataclass

from bench import Deadlines, PrefillCurve, analytic_budget, decode_step_ns, measure_prefill_curve
from engine_adapter.clock import Clock
from engine_adapter.seam import Engine, EngineInfo
from tuner.slo import Slo
from tuner.study import Study
from workloads import Workload

_SHORTEST = 16
_BATCHES = (1, 4, 8)
_FIRST_RATE_SHARE = 0.6
"""The search starts at this share of the rate that would keep the engine busy all the time."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probe found; times in nanoseconds."""

    deadlines: Deadlines
    decode_step_ns: dict[int, int]
    analytic_budget: int | None
    """None without an upper limit on a TBT figure, or when not even one tile fits it."""
    busy_rate_rps: float
    """Requests per second at which prefills and decodes would fill the engine's time."""

    @property
    def first_rate_rps(self) -> float:
        """Where the search for capacity starts."""
        return self.busy_rate_rps * _FIRST_RATE_SHARE


async def probe(engine: Engine, info: EngineInfo, workload: Workload, slo: Slo, *, decode_deadline_ms: float,
                prefill_slack_ms: float, clock: Clock, salt: str) -> Probed:
    """Measure lone prefills up to the workload's longest prompt, and decode steps by batch.

    The engine should have its default knobs: they are the reference for the deadlines.
    """
    most = max(_BATCHES) if info.knobs is None else info.knobs.max_seqs
    batches = [b for b in _BATCHES if b <= most]
    curve = await measure_prefill_curve(engine, info, probe_lengths(workload.longest_prompt), clock=clock,
                                        salt=salt)
    decode = await decode_step_ns(engine, info, batches, clock=clock, salt=salt)
    deadlines = Deadlines(curve, round(prefill_slack_ms * 1e6), round(decode_deadline_ms * 1e6))
    largest = max(decode)
    typical = decode[largest]
    target = next((o.limit for o in slo.objectives if o.metric == "tbt" and o.stat != "std"), None)
    return Probed(
        deadlines=deadlines,
        decode_step_ns=decode,
        analytic_budget=None if target is None else analytic_budget(curve, typical, round(target)),
        busy_rate_rps=_busy_rate(curve, workload, typical, largest),
    )


def remember(study: Study, found: Probed) -> None:
    """Freeze what the probe found in the state of `study`, and save it."""
    state, deadline_ms = study.state, study.config.decode_deadline_ms
    state.deadlines = found.deadlines.as_dict()
    state.decode_step_ms = {str(batch): ns / 1e6 for batch, ns in found.decode_step_ns.items()}
    state.analytic_budget = found.analytic_budget
    state.base_rate_rps = float(f"{found.first_rate_rps:.3g}")
    slowest = max(found.decode_step_ns.values()) / 1e6
    if slowest > deadline_ms:
        state.warn(f"a decode step of this engine takes {slowest:.0f} ms, longer than the deadline of "
                   f"{deadline_ms:g} ms: no setting can be fluid; raise --decode-deadline-ms")
    study.save()


def probe_lengths(longest_prompt: int) -> list[int]:
    """Prompt lengths to time: a quarter of a power of four apart, the longest included."""
    powers = int(math.log2(max(longest_prompt, 2)))
    lengths = {2**p for p in range(int(math.log2(_SHORTEST)), powers + 1)} | {longest_prompt}
    return sorted(length for length in lengths if length <= longest_prompt)


def _busy_rate(curve: PrefillCurve, workload: Workload, decode_ns: int, batch: int) -> float:
    prefill = 0.0
    for component, share in zip(workload.components, workload.shares, strict=True):
        prefill += share * float(curve.prefill_ns([round(component.input.mean())])[0])
    decode = workload.mean_output_len * decode_ns / batch
    return 1e9 / (prefill + decode)
