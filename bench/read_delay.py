"""How long messages lay in their sockets: a histogram, so that millions cost no memory."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.run import ClientHealth, Int64

_BUCKETS_PER_E = 100
"""Buckets one percent wide."""
_BUCKETS = 2700
"""Up to the longest delay that a connection reports, a minute."""


class ReadDelays:
    """Collects delays in nanoseconds."""

    def __init__(self) -> None:
        self._counts: Int64 = np.zeros(_BUCKETS, dtype=np.int64)
        self._longest_ns = 0
        self._merged = 0

    def add(self, late_ns: Sequence[int], merged: Sequence[bool]) -> None:
        """Of the messages of one answer. The last one is not counted as merged: servers send usage and
        [DONE] together with it, and a moment later at most."""
        if late_ns:
            delays = np.array(late_ns, dtype=np.int64)
            buckets = (np.log(delays + 1.0) * _BUCKETS_PER_E).astype(np.int64)
            np.add.at(self._counts, np.minimum(buckets, _BUCKETS - 1), 1)
            self._longest_ns = max(self._longest_ns, int(delays.max()))
            self._merged += sum(merged[:-1])

    def health(self, base: ClientHealth) -> ClientHealth:
        """`base` with these delays; unchanged when there are none, or none was ever told."""
        messages = int(self._counts.sum())
        if not messages:
            return base
        known = self._longest_ns > 0
        return replace(
            base, merged_share=self._merged / messages,
            read_delay_p50_ns=self._percentile(0.50) if known else None,
            read_delay_p99_ns=self._percentile(0.99) if known else None,
            read_delay_max_ns=self._longest_ns if known else None)

    def _percentile(self, share: float) -> int:
        bucket = int(np.searchsorted(np.cumsum(self._counts), share * self._counts.sum()))
        return min(round(float(np.exp((bucket + 1) / _BUCKETS_PER_E))), self._longest_ns)
