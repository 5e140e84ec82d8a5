"""Seeds for everything random in a study, derived from the one that the user gave."""

import hashlib


def run_seed(study_seed: int, purpose: str) -> int:
    """A seed of 31 bits for `purpose`; other purposes of the same study get unrelated ones."""
    digest = hashlib.sha256(f"{study_seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
