"""`tune workload formats`."""


def formats() -> None:
    """To be written."""
