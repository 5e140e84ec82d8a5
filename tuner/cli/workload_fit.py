"""`tune workload fit`."""


def fit() -> None:
    """To be written."""
