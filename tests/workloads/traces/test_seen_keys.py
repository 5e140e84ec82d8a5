"""Which keys came before, for keys that are numbered closely and for hashes of 64 bits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.traces.seen_keys import SeenKeys

keys = (st.integers(0, 60) | st.integers(0, 3_000_000) | st.integers(-(2**63), 2**63 - 1)
        | st.sampled_from([7, 7 + 2**32]))


@given(st.lists(st.lists(st.lists(keys, max_size=5), max_size=6), max_size=6))
def test_a_key_is_seen_once_an_earlier_row_had_it(calls: list[list[list[int]]]) -> None:
    """As a set of Python's says it: all 64 bits count, and not the same row."""
    seen, known, row = SeenKeys(), set[int](), 0
    for rows in calls:
        flat = np.array([key for each in rows for key in each], dtype=np.int64)
        owner = np.repeat(np.arange(row, row + len(rows)), [len(each) for each in rows])
        expected = []
        for each in rows:
            expected += [key in known for key in each]
            known |= set(each)
        assert seen.add(flat, owner).tolist() == expected
        row += len(rows)


def test_close_numbers_stay_in_one_byte_each() -> None:
    """Millions of ids that are counted up take about as many bytes, in whatever order they come."""
    seen = SeenKeys()
    ids = np.random.default_rng(0).permutation(2_000_000)
    for begin in range(0, len(ids), 500_000):
        part = ids[begin:begin + 500_000]
        assert not seen.add(part, np.full(len(part), begin)).any()
    assert seen.num_bytes <= 2 * len(ids)
    assert seen.add(ids[:1000], np.full(1000, len(ids))).all()


def test_hashes_take_eight_bytes_each() -> None:
    """Numbers of 64 bits lie in sorted lists; their number stays small."""
    seen = SeenKeys()
    hashes = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 300_000)
    for begin in range(0, len(hashes), 10_000):
        seen.add(hashes[begin:begin + 10_000], np.full(10_000, begin))
    assert seen.num_bytes == 8 * len(np.unique(hashes))
    assert seen.add(hashes[::-1].copy(), np.full(len(hashes), len(hashes))).all()
