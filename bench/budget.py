"""The analytic token budget: what the probe predicts without a search."""

from collections.abc import Sequence

import numpy as np

from bench.lone_requests import LoneRequests
from bench.prefill_curve import PrefillCurve
from engine_adapter.clock import Clock
from engine_adapter.errors import Crashed
from engine_adapter.seam import Engine, EngineInfo


async def decode_step_ns(
    engine: Engine, info: EngineInfo, batch_sizes: Sequence[int], *, clock: Clock, salt: str,
    input_len: int = 32, output_len: int = 24, timeout_s: float = 120.0,
) -> dict[int, int]:
    """Median time of a pure decode step, in nanoseconds, for each number of running requests.

    The gaps counted lie between the last first token and the first end of the batch, so every
    step among them carried the whole batch and no prefill. Raises EngineError when the engine
    fails, or ends answers so soon that no such step is left; of a server whose limits are not known only
    the batches that it ran together come back.
    """
    ask = LoneRequests(engine, info, clock=clock, salt=f"decode steps {salt}", timeout_s=timeout_s)
    median_ns = {}
    for batch in batch_sizes:
        reads = await ask.batch_read_ns(batch, input_len, output_len)
        start_ns, end_ns = max(times[0] for times in reads), min(times[-1] for times in reads)
        steady = [np.diff(times[(times >= start_ns) & (times <= end_ns)]) for times in reads]
        gaps_ns = np.concatenate(steady)
        if len(gaps_ns):
            median_ns[batch] = int(np.median(gaps_ns))
        elif not median_ns or info.limits is not None:
            raise Crashed(f"no decode step of {batch} requests could be timed: they did not run together")
        else:  # a server of which nobody knows how many requests it runs at once, and these are too many
            break
    return median_ns


def analytic_budget(curve: PrefillCurve, decode_ns: int, tbt_target_ns: int, tile: int = 16) -> int | None:
    """The largest multiple of `tile` tokens whose steps meet `tbt_target_ns`, or None if one tile does not.

    A step with budget B is taken to cost a decode step plus the prefill of B more prompt tokens
    behind the prefix where that is dearest: max over p of curve(p + B) - curve(p), from the
    shortest measured prompt on (below it lies the fixed cost, which the decode step holds
    already) to the longest. Attention makes late chunks dearer than early ones, so this uses the
    curve where it is steepest. Decodes fill a part of B in truth, so the estimate is careful. No
    budget beyond the longest measured prompt is given.
    """
    spare_ns = tbt_target_ns - decode_ns
    fits = None
    for budget in range(tile, curve.tokens[-1] + 1, tile):
        if _dearest_chunk_ns(curve, budget) > spare_ns:
            break
        fits = budget
    return fits


def _dearest_chunk_ns(curve: PrefillCurve, chunk: int) -> int:
    # The curve is piecewise linear: the dearest chunk starts or ends at a measured length.
    knots = np.array(curve.tokens)
    first, last = knots[0], max(knots[0], knots[-1] - chunk)
    prefix = np.clip(np.concatenate([knots, knots - chunk]), first, last)
    return int((curve.prefill_ns(prefix + chunk) - curve.prefill_ns(prefix)).max())
