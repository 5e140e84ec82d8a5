"""When requests arrive."""

import math

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_NS_PER_S = 1e9
_LATEST_NS = 2.0**62


def arrival_offsets_ns(n: int, rate_rps: float, burstiness: float, rng: np.random.Generator) -> Int64:
    """Nanoseconds from the start to each of `n` arrivals: shape (n,), never decreasing.

    Gaps are gamma distributed with mean 1 / rate and shape `burstiness` as in vLLM's
    `bench serve`: their coefficient of variation is 1 / sqrt(burstiness), 1 is a Poisson
    process, infinity a constant gap. A rate of infinity puts every arrival at 0; at a finite
    rate the first is after 0. The draws do not depend on the rate, so the same generator at
    another rate gives the same pattern stretched, and fewer arrivals are a prefix of more.
    Unlike vLLM the offsets are not rescaled to end at n / rate, which would undo both.
    A rate or burstiness that is not above 0 and `n` below 1 are refused with UsageError.
    """
    if not rate_rps > 0:
        raise UsageError(f"the request rate must be above 0 per second (inf: all at once); got {rate_rps:g}")
    unit_arrivals = unit_rate_arrivals(n, burstiness, rng)
    if math.isinf(rate_rps):
        return np.zeros(n, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):   # refused just below
        offsets_ns = unit_arrivals * (_NS_PER_S / rate_rps)
    return whole_ns(offsets_ns)


def unit_rate_arrivals(n: int, burstiness: float, rng: np.random.Generator) -> Float64:
    """The arrivals of `arrival_offsets_ns` at one a second, in fractional seconds: shape (n,)."""
    if n < 1:
        raise UsageError(f"a plan needs at least 1 request; got {n}")
    if not burstiness > 0:
        raise UsageError(f"the burstiness must be above 0 (1: Poisson, inf: constant); got {burstiness:g}")
    if math.isinf(burstiness):
        return np.arange(1, n + 1, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):   # of a tiny burstiness; the last offset is checked
        arrivals: Float64 = np.cumsum(rng.standard_gamma(burstiness, n) / burstiness)
    return arrivals


def whole_ns(offsets_ns: Float64) -> Int64:
    """Arrivals in time order, rounded once, at the end, and never to 0, where rounding would put those
    of a very high rate. UsageError for a plan of more than a century."""
    if len(offsets_ns) and not offsets_ns[-1] < _LATEST_NS:
        raise UsageError(f"the last of {len(offsets_ns)} requests would come after a century; raise the "
                         f"request rate")
    return np.maximum(np.rint(offsets_ns).astype(np.int64), 1)
