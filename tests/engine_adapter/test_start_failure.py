"""Why an engine did not start, from the log it left: the cause, not its consequences, on one line."""

import pytest

from engine_adapter.errors import OutOfMemory, StartFailed
from engine_adapter.start_failure import start_failure

_P = "(EngineCore pid=1234) ERROR 11-30 18:13:14 [core.py:1510] "

_KV = f"""{_P}EngineCore failed to start.
{_P}Traceback (most recent call last):
{_P}  File "core.py", line 1, in run
{_P}ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
_WEIGHTS = f"""{_P}RuntimeError: Cannot find any model weights with `/models/x`
RuntimeError: Engine core initialization failed. See root cause above.
"""


@pytest.mark.parametrize(
    ("log", "message", "kind", "part"),
    [
        (_KV, "RuntimeError: Engine core initialization failed. See root cause above.", OutOfMemory,
         "No available memory for the cache blocks"),
        (_WEIGHTS, "RuntimeError: Engine core initialization failed.", StartFailed, "model weights"),
        ("", "ValidationError: 1 validation error: max_model_len too large", StartFailed, "max_model_len"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to", "", OutOfMemory, "CUDA out of memory"),
        ("", "", StartFailed, "without a word"),
        ("Killed", "", StartFailed, "Killed"),
    ],
)
def test_the_cause_is_found(log: str, message: str, kind: type[StartFailed], part: str) -> None:
    """Memory is told apart from everything else; the engine's own words are quoted."""
    error = start_failure(log, message)
    assert type(error) is kind
    assert part in str(error)
    assert "\n" not in str(error)
    assert "See root cause" not in str(error)
