"""When the bytes of a read arrived, by the kernel. Written apart from the client's own: a mistake that
both shared would not show when one checks the other."""

import socket
import struct
import sys
import time

_SO_TIMESTAMPNS = 35
_SECONDS_AND_NS = struct.Struct("@qq")
_CONTROL_BYTES = socket.CMSG_SPACE(_SECONDS_AND_NS.size)
_CLOSE_NS = 10_000
_TRIES = 5
_LONGEST_WAIT_NS = 60_000_000_000


def ask_for_times(sock: socket.socket) -> None:
    """Have the kernel stamp what `sock` receives, where it can (Linux; socket(7))."""
    if sys.platform == "linux":
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(sock: socket.socket, most: int) -> tuple[bytes, int]:
    """What has come, and when its last byte had arrived, on CLOCK_MONOTONIC; without a stamp of the
    kernel, when it was read. OSError as of `recv`."""
    data, control, _, _ = sock.recvmsg(most, _CONTROL_BYTES)
    mono_ns, wall_ns = _both_clocks()
    for _, kind, value in control:
        if kind == _SO_TIMESTAMPNS and len(value) == _SECONDS_AND_NS.size:
            seconds, nanoseconds = _SECONDS_AND_NS.unpack(value)
            waited_ns = wall_ns - (seconds * 1_000_000_000 + nanoseconds)
            if 0 <= waited_ns < _LONGEST_WAIT_NS:  # else somebody set the clock
                return data, mono_ns - waited_ns
    return data, mono_ns


def _both_clocks() -> tuple[int, int]:
    """The monotonic and the wall clock, read without an interruption in between, as far as can be."""
    best = (1 << 62, 0, 0)
    for _ in range(_TRIES):
        before_ns, wall_ns, after_ns = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        best = min(best, (after_ns - before_ns, (before_ns + after_ns) // 2, wall_ns))
        if best[0] < _CLOSE_NS:
            break
    return best[1], best[2]
