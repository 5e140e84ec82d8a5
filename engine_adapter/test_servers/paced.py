"""A fast server with an exact pace, in a process of its own.

    python -m engine_adapter.test_servers.paced --port 0 --ttft-ms 50 --interval-ms 20

prints `listening on 127.0.0.1:PORT` and serves until its standard input closes or SIGTERM comes.
It streams /v1/completions and /v1/chat/completions as vLLM does, every answer exactly as long as
asked: the first token `--ttft-ms` after the request has arrived, then a message each
`--interval-ms`. It knows when it wrote each of them: `GET /truth` (figures), `GET /truth.npz`
(every time; see truth.Truth.arrays), `POST /truth/reset`.
"""

import argparse
import contextlib
import ctypes
import gc
import resource
import signal
import socket
import sys
from typing import Any

from engine_adapter.test_servers.paced_server import PacedLoop
from engine_adapter.test_servers.receive_time import ask_for_times

_PR_SET_TIMERSLACK = 29
_BACKLOG = 4096
_LONGEST_MS = 86_400_000


def main(arguments: list[str] | None = None) -> None:
    """Serve until standard input ends or SIGTERM comes."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    _allow_many_connections()
    _wake_up_exactly()
    with socket.create_server((asked.host, asked.port), backlog=_BACKLOG) as listener:
        # The kernel begins to stamp when the first socket asks for it; accepted ones inherit it.
        ask_for_times(listener)
        loop = PacedLoop(
            listener, ttft_ns=round(asked.ttft_ms * 1e6), interval_ns=round(asked.interval_ms * 1e6),
            tokens_per_message=asked.tokens_per_message, model=asked.model, keep_truth=not asked.no_truth,
            lifeline=sys.stdin.fileno())
        print(f"listening on {asked.host}:{listener.getsockname()[1]}", flush=True)
        # Nothing here makes reference cycles that outlive a connection; a collection would be a stall.
        gc.freeze()
        gc.disable()
        loop.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A server that streams tokens at an exact pace.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ttft-ms", type=_milliseconds, default=50.0)
    parser.add_argument("--interval-ms", type=_milliseconds, default=20.0)
    parser.add_argument("--tokens-per-message", type=_at_least_one, default=1)
    parser.add_argument("--model", default="paced")
    parser.add_argument("--no-truth", action="store_true",
                        help="keep no times: for runs too long to keep them (12 bytes a message)")
    return parser


def _milliseconds(text: str) -> float:
    if not 0 <= (value := float(text)) <= _LONGEST_MS:
        raise argparse.ArgumentTypeError(f"must lie between 0 and {_LONGEST_MS} ms")
    return value


def _at_least_one(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _leave(number: int, frame: Any) -> None:
    sys.exit(0)


def _allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _wake_up_exactly() -> None:
    # Linux may wake a sleeper 50 us late, to wake several at once; prctl(2).
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


if __name__ == "__main__":
    main()
