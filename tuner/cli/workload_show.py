"""`tune workload show`."""


def show() -> None:
    """To be written."""
