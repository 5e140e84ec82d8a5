"""Runs one command so that it can outlive neither its starter nor its own parts.

`main` takes the arguments DIRECTORY FD -- COMMAND ..., and the engine's mark from the environment.
When the command ends, its status is written to FD at once, as one line in subprocess' way (negative
for a signal), and what it left running is killed. Standard input is a lifeline: when it ends, whoever
started us is gone; then everything marked is killed and DIRECTORY removed.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

from engine_adapter.processes import MARK_NAME, end_marked

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Entry of the guard; see the module."""
    directory, told, command = sys.argv[1], int(sys.argv[2]), sys.argv[4:]
    # Signals to the group are for the command. A handler, not SIG_IGN: that would be inherited.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running = _started(command)
    while True:
        if running is None or running.poll() is not None:
            _tell(told, 127 if running is None else running.returncode)
            end_marked(os.environ[MARK_NAME], but_not=[os.getpid()])
            break
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if 0 in ready:
            break
    while os.read(0, 4096):
        pass
    end_marked(os.environ[MARK_NAME], but_not=[os.getpid()])
    shutil.rmtree(directory, ignore_errors=True)


def _started(command: list[str]) -> "subprocess.Popen[bytes] | None":
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_guard())
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        return None


def _tell(descriptor: int, status: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(descriptor, f"{status}\n".encode())


def _die_with_guard() -> Callable[[], None]:
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
