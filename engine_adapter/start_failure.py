"""From an engine's log to one line that says why it did not start."""

import re

from engine_adapter.errors import OutOfMemory, StartFailed

_MEMORY = re.compile(
    r"out of memory|no available memory for the cache|larger than the available KV|"
    r"kv cache\s+allocation is less than requested|Free memory on device|cannot allocate memory|MemoryError|"
    r"KV cache is needed|less than requested memory for kv",
    re.IGNORECASE,
)
# The words of Python (and so uvicorn), Go and Rust for EADDRINUSE, then llama.cpp's own.
_PORT = re.compile(r"address already in use|EADDRINUSE|couldn't bind HTTP server socket", re.IGNORECASE)
_FLAG = re.compile(r"^[\w./-]+(?: [\w./-]+)?: error: (.+)$")
"""argparse's last word: the program's name, perhaps a subcommand's, then what it does not accept."""
_ERROR = re.compile(r"(?:^|\s|\])((?:[A-Za-z_][\w.]*)?(?:Error|Exception)): (.+)$")
_COUNT_OF_ERRORS = re.compile(r"^\d+ validation errors? for \w+$")
"""pydantic's headline: the reason itself is on the next line."""
_DETAILS = re.compile(r" \[type=.*$")
_CONSEQUENCE = re.compile(r"See root cause above|Engine core initialization failed|died unexpectedly|"
                          r"EngineDeadError|WorkerProc initialization failed|cancelled", re.IGNORECASE)
_NOISE = re.compile(r"^\(\w[\w ]*pid=\d+\)\s*|^(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]*\]\s*")


class PortInUse(StartFailed):
    """Another process listens where the server was to listen."""


def start_failure(log: str, message: str, *, ended: str = "its process ended") -> StartFailed:
    """The typed error for an engine that did not start: OutOfMemory, PortInUse or StartFailed.

    `log` is the engine's log, `message` what its host process said (may be empty), `ended` how its
    process ended. The first error that is a cause, not a consequence of another, is quoted.
    """
    lines = [_plain(line) for line in log.splitlines()]
    causes = [_first_sentences(f"{name.rsplit('.', 1)[-1]}: {text}") for name, text in _errors(lines)]
    if message and not _CONSEQUENCE.search(message):
        causes.insert(0, _first_sentences(message))
    memory = next((line for line in causes or lines if _MEMORY.search(line)), None)
    if memory is not None:
        return OutOfMemory(
            f"the engine found no memory for its KV cache: {_first_sentences(memory)} "
            "Set --kv-cache-memory-bytes to what is free, lower --max-model-len, or free memory"
        )
    port = next((line for line in lines if _PORT.search(line)), None)
    if port is not None:
        return PortInUse(f"the engine did not start: its port is in use ({_first_sentences(port)}): "
                         "stop what listens there, or give another port")
    flag = next((hit[1] for line in reversed(lines) if (hit := _FLAG.search(line))), None)
    if flag is not None:
        return StartFailed(f"the engine refused its flags: {_first_sentences(flag)}")
    last = _last_line(lines)
    silent = f"{ended}; it logged last: {last}" if last else f"{ended} without a word"
    return StartFailed(f"the engine did not start: {causes[0] if causes else silent}")


def not_ready(log: str, deadline_s: float) -> StartFailed:
    """The error for an engine that is still not ready at its deadline, with what it logged last."""
    last = _last_line([_plain(line) for line in log.splitlines()])
    said = f"; it logged last: {last}" if last else ""
    return StartFailed(f"the engine was not ready after {deadline_s:g} s; "
                       f"a large model may need a longer --server-ready-timeout{said}")


def _errors(lines: list[str]) -> list[tuple[str, str]]:
    found = []
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        if (hit := _ERROR.search(line)) is not None and not _CONSEQUENCE.search(line):
            headline = _COUNT_OF_ERRORS.match(hit[2]) is not None
            found.append((hit[1], _DETAILS.sub("", following.strip()) if headline and following else hit[2]))
    return found


def _plain(line: str) -> str:
    """Without the names, times and places that vLLM puts before a line."""
    while (shorter := _NOISE.sub("", line)) != line:
        line = shorter
    return line


def _last_line(lines: list[str]) -> str:
    return next((_first_sentences(line) for line in reversed(lines) if line.strip()), "")


def _first_sentences(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: text.rfind(" ", 0, limit)] + " …"
