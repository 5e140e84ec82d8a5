"""`tune workload make`."""


def make() -> None:
    """To be written."""
