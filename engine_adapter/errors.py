"""What can go wrong with an engine. The whole tree is drawn in workloads.errors."""

from workloads.errors import StallfreeError


class EngineError(StallfreeError):
    """Base of everything the engine can do wrong."""

    exit_code = 3
    outcome = "crashed"
    """The trial outcome that this error becomes; see tuner.trial."""


class StartFailed(EngineError):
    """The engine did not become ready; the message holds the engine's own reason."""

    outcome = "start_failed"


class OutOfMemory(StartFailed):
    """The engine found no memory for the weights or the KV cache."""

    outcome = "out_of_memory"


class Crashed(EngineError):
    """The engine died while it served."""


class Hung(EngineError):
    """The engine produced nothing before its deadline."""

    outcome = "hung"


class Rejected(EngineError):
    """The engine refused one request, for example a prompt longer than the model."""


class NeedsRestart(EngineError):
    """These knobs cannot be applied to the running engine; start one with them."""
