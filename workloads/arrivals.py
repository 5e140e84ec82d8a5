"""When requests arrive."""

import math

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError

_NS_PER_S = 1e9
_LATEST_NS = 2.0**62


def arrival_offsets_ns(
    n: int, rate_rps: float, burstiness: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Nanoseconds from the start to each of `n` arrivals: shape (n,), never decreasing.

    Gaps are gamma distributed with mean 1 / rate and shape `burstiness` as in vLLM's
    `bench serve`: their coefficient of variation is 1 / sqrt(burstiness), 1 is a Poisson
    process, infinity a constant gap. A rate of infinity puts every arrival at 0; at a finite
    rate the first is after 0. The draws do not depend on the rate, so the same generator at
    another rate gives the same pattern stretched, and fewer arrivals are a prefix of more.
    Unlike vLLM the offsets are not rescaled to end at n / rate, which would undo both.
    A rate or burstiness that is not above 0 and `n` below 1 are refused with UsageError.
    """
    if n < 1:
        raise UsageError(f"a plan needs at least 1 request; got {n}")
    if not rate_rps > 0:
        raise UsageError(f"the request rate must be above 0 per second (inf: all at once); got {rate_rps:g}")
    if not burstiness > 0:
        raise UsageError(f"the burstiness must be above 0 (1: Poisson, inf: constant); got {burstiness:g}")
    if math.isinf(rate_rps):
        return np.zeros(n, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):   # refused just below
        if math.isinf(burstiness):
            unit_offsets = np.arange(1, n + 1, dtype=np.float64)
        else:
            unit_offsets = np.cumsum(rng.standard_gamma(burstiness, n) / burstiness)
        offsets_ns = unit_offsets * (_NS_PER_S / rate_rps)
    if not offsets_ns[-1] < _LATEST_NS:
        raise UsageError(f"at {rate_rps:g} requests/s the last of {n} requests would come after a century; "
                         f"raise the request rate")
    # Rounding may put an arrival of a very high rate at 0.
    return np.maximum(np.rint(offsets_ns).astype(np.int64), 1)
