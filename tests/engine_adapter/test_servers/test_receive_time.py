"""The receive times of the paced server."""

import socket
import sys
import time

import pytest

from engine_adapter.test_servers.receive_time import ask_for_times, receive


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what it receives")
def test_the_time_is_that_of_the_last_byte_however_late_it_is_read() -> None:
    """Two writes read at once, 50 ms later, by a socket that inherited the wish: the second one's time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ask_for_times(listener)
        with socket.create_connection(listener.getsockname()) as sender, listener.accept()[0] as receiver:
            sender.sendall(b"a")
            receive(receiver, 10)  # the kernel may have begun to stamp after it
            sender.sendall(b"b")
            time.sleep(0.005)
            before_ns = time.perf_counter_ns()
            sender.sendall(b"c")
            after_ns = time.perf_counter_ns()
            time.sleep(0.05)
            data, arrived_ns = receive(receiver, 10)
    assert data == b"bc"
    # Neither clock is read at the very moment of the other.
    assert before_ns - 1_000_000 < arrived_ns < after_ns + 1_000_000


def test_without_a_stamp_it_is_the_time_of_the_read() -> None:
    """A socket that asked for nothing."""
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.send(b"a")
        before_ns = time.perf_counter_ns()
        data, arrived_ns = receive(receiver, 10)
    assert data == b"a"
    assert before_ns <= arrived_ns <= time.perf_counter_ns()
