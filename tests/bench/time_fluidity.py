"""Prints how long ten million token times take, as few long, many short and one single request.

Run it by hand: python tests/bench/time_fluidity.py
"""

import time

import numpy as np

from bench import TokenArrivals, fluid_token_rate, fluidity_of_requests

TOKENS = 10_000_000


def main() -> None:
    rng = np.random.default_rng(0)
    gaps_ns = rng.exponential(25e6, TOKENS).astype(np.int64)
    for requests in (1, 1_000, 100_000, 1_000_000):
        arrivals = TokenArrivals.from_gaps(gaps_ns, np.arange(requests + 1) * (TOKENS // requests))
        began = time.perf_counter()
        fluidity_of_requests(arrivals, 300_000_000, 30_000_000)
        judged = time.perf_counter()
        fluid_token_rate(arrivals)
        rated = time.perf_counter()
        print(f"{requests:>9} requests: fluidity {judged - began:.2f} s, "
              f"fluid token rate {rated - judged:.2f} s")


if __name__ == "__main__":
    main()
