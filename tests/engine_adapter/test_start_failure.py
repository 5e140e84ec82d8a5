"""Why an engine did not start, from the log it left: the cause, not its consequences, on one line."""

import pytest

from engine_adapter.errors import OutOfMemory, StartFailed
from engine_adapter.start_failure import PortInUse, not_ready, start_failure

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
# The next five are what vLLM 0.32's server, or another program, really printed, shortened.
_A = "(APIServer pid=8724) "
_SERVER_KV = f"""{_A}WARNING 11-30 21:49:34 [system_utils.py:255] Found ulimit of 20000 and failed to \
automatically increase. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`.
(EngineCore pid=3043) ERROR 11-30 21:49:47 [core.py:1510]     raise ValueError(
(EngineCore pid=3043) ERROR 11-30 21:49:47 [core.py:1510] ValueError: No available memory for the cache \
blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
_BAD_FLAG = """Triton is installed, but doesn't include CPU backend. Disabling Triton.
usage: vllm serve [model_tag] [options]
                  [--enable-log-requests | --no-enable-log-requests]
                  [model_tag]
vllm serve: error: unrecognized arguments: --max-num-batched-tokenz 12
"""
_BAD_VALUE = f"""{_A}INFO 11-30 21:18:57 [scheduler.py:307] Chunked prefill is enabled.
Traceback (most recent call last):
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig
  Value error, max_num_batched_tokens (16) must be greater than or equal to max_num_seqs (64). \
[type=value_error, input_value=ArgsKwargs((), {{'runner_t...), input_type=ArgsKwargs]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
_PORT = f"""{_A}INFO 11-30 21:18:57 [api_utils.py:286] non-default args: {{'port': 8000}}
  File "launcher.py", line 348, in create_server_socket
    sock.bind(addr)
OSError: [Errno 98] Address already in use
"""
_LLAMA_MEMORY = """ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: \
cudaMalloc failed: out of memory
srv load_model: failed to load model
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
        (_SERVER_KV, "", OutOfMemory, "No available memory for the cache blocks"),
        (_BAD_FLAG, "", StartFailed,
         "refused its flags: unrecognized arguments: --max-num-batched-tokenz 12"),
        (_BAD_VALUE, "", StartFailed, "max_num_batched_tokens (16) must be greater than or equal to "
                                      "max_num_seqs (64)."),
        (_PORT, "", PortInUse, "Address already in use"),
        ("ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already "
         "in use", "", PortInUse, "port is in use"),
        (_LLAMA_MEMORY, "", OutOfMemory, "cudaMalloc failed: out of memory"),
    ],
)
def test_the_cause_is_found(log: str, message: str, kind: type[StartFailed], part: str) -> None:
    """Memory is told apart from everything else; the engine's own words are quoted."""
    error = start_failure(log, message)
    assert type(error) is kind
    assert part in str(error)
    assert "\n" not in str(error)
    assert "See root cause" not in str(error)
    assert "[type=" not in str(error)


def test_how_a_process_ended_is_said_where_its_log_has_no_reason() -> None:
    """The kernel leaves nothing in a log when it kills for want of memory."""
    error = start_failure("loading weights", "", ended="its process was ended by SIGKILL")
    assert str(error).endswith("its process was ended by SIGKILL; it logged last: loading weights")


@pytest.mark.parametrize(("log", "part"), [("loading\n\n", "; it logged last: loading"), ("", "-timeout")])
def test_an_engine_that_is_not_ready_names_the_flag(log: str, part: str) -> None:
    """The deadline, how to move it, and what the engine was doing."""
    error = not_ready(log, 2.5)
    assert "not ready after 2.5 s" in str(error)
    assert str(error).endswith(part)
