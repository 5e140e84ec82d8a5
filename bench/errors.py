"""What bench can fail at by itself. The whole tree is drawn in workloads.errors."""

from workloads.errors import StallfreeError


class OutputError(StallfreeError):
    """A result cannot be written; the message names the path and what to do."""

    exit_code = 64
