"""A server that sends every token at its time: one epoll loop, one thread, no task and no timer a stream.

Message k of an answer is due at `arrival + ttft + k * interval`. As the interval is the same for all,
whoever has just sent is due after everybody else: two queues, of answers before their first token and
after it, stay in order by themselves, and the next message is at the head of one of them.
"""

import contextlib
import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from engine_adapter.test_servers.paced_answers import BadRequest, PacedAnswer, paced_answer
from engine_adapter.test_servers.paced_connection import Connection
from engine_adapter.test_servers.truth import AnswerTruth, Truth
from engine_adapter.test_servers.wire import STREAM_HEADERS, head, response

_SENDS_BETWEEN_POLLS = 16
"""So many messages may go before new requests are looked for: about 0.2 ms."""
_EVENTS_BETWEEN_SENDS = 8
"""So many sockets may be read, or clients accepted, before the next message that is due."""
_STREAM_HEAD = head(200, {**STREAM_HEADERS, "transfer-encoding": "chunked"})
_STREAMS = {"/v1/completions": False, "/v1/chat/completions": True}
_now_ns = time.perf_counter_ns


class _Stream:
    """An answer under way."""

    __slots__ = ("answer", "connection", "due_ns", "next", "truth")

    def __init__(self, connection: Connection, answer: PacedAnswer, truth: AnswerTruth, due_ns: int) -> None:
        self.connection = connection
        self.answer = answer
        self.truth = truth
        self.due_ns = due_ns
        self.next = 0
        """Number of the message that is due."""


class PacedLoop:
    """Serves `listener` until `run` is left by an exception. `lifeline`: a file that, once it can be
    read to its end, ends the loop."""

    def __init__(
        self, listener: socket.socket, *, ttft_ns: int, interval_ns: int, tokens_per_message: int = 1,
        model: str = "paced", keep_truth: bool = True, lifeline: int | None = None,
    ) -> None:
        self._listener = listener
        self._ttft_ns = ttft_ns
        self._interval_ns = interval_ns
        self._tokens_per_message = tokens_per_message
        self._model = model
        self._keep_truth = keep_truth
        self._lifeline = lifeline
        self.truth = Truth(ttft_ns=ttft_ns, interval_ns=interval_ns, tokens_per_message=tokens_per_message)
        self._answered = self._tokens_asked = self._prompt_tokens = self._running = 0
        self._beginning: deque[_Stream] = deque()
        self._going_on: deque[_Stream] = deque()
        self._connections: dict[int, Connection] = {}
        self._epoll = select.epoll()
        self._other: dict[tuple[str, str], Callable[[], bytes]] = {
            ("GET", "/health"): lambda: response(b""),
            ("GET", "/v1/models"): self._models,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/truth"): lambda: response(self.truth.summary()),
            ("GET", "/truth.npz"): lambda: response(self.truth.npz()),
            ("POST", "/truth/reset"): self._reset,
        }

    def run(self) -> None:
        """Serve until the lifeline ends."""
        self._listener.setblocking(False)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        if self._lifeline is not None:
            with contextlib.suppress(PermissionError):  # a regular file or /dev/null never ends
                self._epoll.register(self._lifeline, select.EPOLLIN)
        try:
            while self._serve_sockets(self._send_due()):
                pass
        finally:
            for connection in list(self._connections.values()):
                self._drop(connection)
            self._listener.close()
            self._epoll.close()

    def _send_due(self) -> float:
        """Send what is due, up to a limit; the seconds until the next message is due, at most 1."""
        beginning, going_on = self._beginning, self._going_on
        for _ in range(_SENDS_BETWEEN_POLLS):
            if beginning and not (going_on and going_on[0].due_ns <= beginning[0].due_ns):
                queue = beginning
            elif going_on:
                queue = going_on
            else:
                return 1.0
            wait_ns = queue[0].due_ns - _now_ns()
            if wait_ns > 0:
                return min(wait_ns / 1e9, 1.0)
            stream = queue.popleft()
            if not stream.connection.closed and self._send_message(stream):
                stream.due_ns += self._interval_ns
                going_on.append(stream)
        return 0.0

    def _send_message(self, stream: _Stream) -> bool:
        """Send the message that is due; whether another one follows."""
        answer, number = stream.answer, stream.next
        stream.next = number + 1
        is_last = stream.next == answer.messages
        if number == 0:
            data = answer.first
        elif is_last:
            data = answer.last
        else:
            data = answer.middle_with(stream.next * self._tokens_per_message)
        before_ns = _now_ns()
        whole = stream.connection.send(data)
        after_ns = _now_ns()
        if self._keep_truth:
            stream.truth.sent(before_ns, after_ns)
        if not whole:
            self.truth.short_writes += 1
            self._await_room(stream.connection)
        if is_last:
            self._running -= 1
            stream.connection.stream = None
            self._answer_waiting(stream.connection)
        return not is_last

    def _serve_sockets(self, wait_s: float) -> bool:
        """Read what has come, after waiting for it; False when the lifeline has ended."""
        if wait_s > 0:
            # Unlike epoll itself, select on it waits for less than a millisecond.
            select.select([self._epoll], [], [], wait_s)
        for number, events in self._epoll.poll(0, _EVENTS_BETWEEN_SENDS):
            if number == self._listener.fileno():
                self._accept()
            elif number == self._lifeline:
                if not os.read(number, 4096):
                    return False
            elif (connection := self._connections.get(number)) is not None:
                self._serve_connection(connection, events)
        return True

    def _serve_connection(self, connection: Connection, events: int) -> None:
        if events & select.EPOLLOUT and connection.send(b""):
            self._epoll.modify(connection.number, select.EPOLLIN)
        if events & ~select.EPOLLOUT:
            connection.receive()
            self._answer_waiting(connection)
        if connection.closed:
            self._drop(connection)

    def _answer_waiting(self, connection: Connection) -> None:
        """Answer the requests that have come, one after the other."""
        while connection.requests and connection.stream is None and not connection.closed:
            request = connection.requests.popleft()
            is_chat = _STREAMS.get(request.path)
            if request.method != "POST" or is_chat is None:
                other = self._other.get((request.method, request.path))
                known = any(request.path == path for _, path in self._other) or is_chat is not None
                self._write(connection, other() if other is not None else
                            _error(405 if known else 404, f"no {request.method} {request.path} here"))
                continue
            self._answered += 1
            name = request.x_request_id or str(self._answered)
            try:
                answer = paced_answer(request.body, chat=is_chat, name=name,
                                      tokens_per_message=self._tokens_per_message)
            except BadRequest as error:
                self._write(connection, _error(400, str(error)))
                continue
            self._begin(connection, answer, AnswerTruth(
                request.x_request_id.encode(), request.arrived_ns, answer.tokens))

    def _begin(self, connection: Connection, answer: PacedAnswer, truth: AnswerTruth) -> None:
        if self._keep_truth:
            self.truth.answers.append(truth)
        self._tokens_asked += answer.tokens
        self._prompt_tokens += answer.prompt_tokens
        self._running += 1
        self._write(connection, _STREAM_HEAD)
        stream = _Stream(connection, answer, truth, truth.arrived_ns + self._ttft_ns)
        connection.stream = stream
        self._beginning.append(stream)

    def _write(self, connection: Connection, data: bytes) -> None:
        if not connection.send(data):
            self._await_room(connection)

    def _await_room(self, connection: Connection) -> None:
        if not connection.closed:
            self._epoll.modify(connection.number, select.EPOLLIN | select.EPOLLOUT)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return  # the client has left already
        connection = Connection(accepted)
        self._connections[connection.number] = connection
        self._epoll.register(connection.number, select.EPOLLIN)

    def _drop(self, connection: Connection) -> None:
        if connection.stream is not None:
            self._running -= 1
            connection.stream = None
        self._connections.pop(connection.number, None)
        connection.close()

    def _models(self) -> bytes:
        return response({"object": "list", "data": [{
            "id": self._model, "object": "model", "owned_by": "stallfree", "max_model_len": 1 << 20}]})

    def _metrics(self) -> bytes:
        figures = {"num_requests_running": ("gauge", self._running), "num_requests_waiting": ("gauge", 0),
                   "prompt_tokens": ("counter", self._prompt_tokens),
                   "generation_tokens": ("counter", self._tokens_asked)}
        lines = []
        for name, (kind, value) in figures.items():
            shown = f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}"
            lines += [f"# TYPE vllm:{name} {kind}", f'{shown}{{model_name="{self._model}"}} {value:.1f}']
        text = "\n".join([*lines, ""]).encode()
        return response(text, headers={"content-type": "text/plain; version=0.0.4"})

    def _reset(self) -> bytes:
        self.truth.reset()
        return response(b"")


def _error(status: int, why: str) -> bytes:
    error = {"message": why, "type": "invalid_request_error", "code": status}
    return response({"error": error}, status=status)

