"""From an engine's log to one line that says why it did not start."""

import re

from engine_adapter.errors import OutOfMemory, StartFailed

_MEMORY = re.compile(
    r"out of memory|no available memory for the cache|larger than the available KV|"
    r"kv cache\s+allocation is less than requested|Free memory on device|cannot allocate memory|MemoryError|"
    r"KV cache is needed|less than requested memory for kv",
    re.IGNORECASE,
)
_ERROR = re.compile(r"(?:^|\s|\])((?:[A-Za-z_][\w.]*)?(?:Error|Exception)): (.+)$")
_CONSEQUENCE = re.compile(r"See root cause above|Engine core initialization failed|died unexpectedly|"
                          r"EngineDeadError|WorkerProc initialization failed|cancelled", re.IGNORECASE)
_NOISE = re.compile(r"^\(\w[\w ]*pid=\d+\)\s*|^(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]*\]\s*")


def start_failure(log: str, message: str) -> StartFailed:
    """The typed error for an engine that did not start.

    `log` is the engine's log, `message` what its host process said (may be empty). The first
    error that is a cause, not a consequence of another, is quoted.
    """
    causes = [_first_sentences(f"{name.rsplit('.', 1)[-1]}: {text}") for name, text in _errors(log)]
    if message and not _CONSEQUENCE.search(message):
        causes.insert(0, _first_sentences(message))
    memory = next((c for c in causes if _MEMORY.search(c)), None)
    if memory is not None:
        return OutOfMemory(
            f"the engine found no memory for its KV cache: {memory} "
            "Set --kv-cache-memory-bytes to what is free, lower --max-model-len, or free memory"
        )
    cause = causes[0] if causes else (log.strip().splitlines() or ["its process ended without a word"])[-1]
    return StartFailed(f"the engine did not start: {cause}")


def _errors(log: str) -> list[tuple[str, str]]:
    found = []
    for line in log.splitlines():
        while (shorter := _NOISE.sub("", line)) != line:
            line = shorter
        if (hit := _ERROR.search(line)) is not None and not _CONSEQUENCE.search(line):
            found.append((hit.group(1), hit.group(2)))
    return found


def _first_sentences(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: text.rfind(" ", 0, limit)] + " …"
