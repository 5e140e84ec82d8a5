"""What a paced server did, to the nanosecond: when each request had arrived and each message was sent."""

import io
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

_MOST_TOOK_NS = 2**32 - 1
_SATURATED_SHARE = 0.1
_SATURATED_FLOOR_NS = 2_000_000
"""A server is saturated when 1 % of its messages left later than the larger of this and that share of the
interval after their time: then the load was more than it can pace, though its truth still holds."""


class AnswerTruth:
    """One answer. Times are CLOCK_MONOTONIC; a message's time is just before its `send`."""

    __slots__ = ("arrived_ns", "send_ns", "tokens", "took_ns", "x_request_id")

    def __init__(self, x_request_id: bytes, arrived_ns: int, tokens: int) -> None:
        self.x_request_id = x_request_id
        self.arrived_ns = arrived_ns
        """When the last byte of the request had arrived at the socket."""
        self.tokens = tokens
        self.send_ns = array("q")
        """One entry a message, before its `send`. The kernel of a client on this machine stamps the
        message while the `send` lasts."""
        self.took_ns = array("I")
        """How long each `send` took. Half as wide, so that 100,000 answers of 200 tokens fit in 300 MB."""

    def sent(self, before_ns: int, after_ns: int) -> None:
        """One message more."""
        self.send_ns.append(before_ns)
        self.took_ns.append(min(after_ns - before_ns, _MOST_TOOK_NS))


class Truth:
    """The answers of a paced server, in the order in which their requests arrived."""

    def __init__(self, *, ttft_ns: int, interval_ns: int, tokens_per_message: int) -> None:
        self._ttft_ns = ttft_ns
        self._interval_ns = interval_ns
        self._tokens_per_message = tokens_per_message
        self.answers: list[AnswerTruth] = []
        self.short_writes = 0
        """Messages that the socket did not take whole at once: the client reads too slowly."""

    def reset(self) -> None:
        """Forget every answer; those in flight are not counted again."""
        self.answers = []
        self.short_writes = 0

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """`x_request_id`, `arrived_ns`, `tokens` have one row an answer; `send_ns` and `sent_ns` one row a
        message, those of answer i at `offset[i]:offset[i + 1]`."""
        counts = [len(answer.send_ns) for answer in self.answers]
        send_ns = _flat([answer.send_ns for answer in self.answers])
        return {
            "x_request_id": np.array([answer.x_request_id for answer in self.answers], dtype=np.bytes_),
            "arrived_ns": np.array([answer.arrived_ns for answer in self.answers], dtype=np.int64),
            "tokens": np.array([answer.tokens for answer in self.answers], dtype=np.int64),
            "offset": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "send_ns": send_ns,
            "sent_ns": send_ns + _flat([answer.took_ns for answer in self.answers]),
        }

    def npz(self) -> bytes:
        """`arrays` as the bytes of an .npz file."""
        file = io.BytesIO()
        arrays: dict[str, Any] = self.arrays()
        np.savez(file, **arrays)
        return file.getvalue()

    def summary(self) -> dict[str, Any]:
        """Milliseconds of TTFT and of the gaps between tokens, the k tokens of a message counting as
        gap, 0, ..., 0; how late messages left; None where there is nothing to measure."""
        known = self.arrays()
        offset, send_ns = known["offset"], known["send_ns"]
        began = np.diff(offset) > 0
        ttft_ns = send_ns[offset[:-1][began]] - known["arrived_ns"][began]
        within = np.ones(max(len(send_ns) - 1, 0), dtype=bool)
        within[offset[1:-1][(offset[1:-1] > 0) & (offset[1:-1] < len(send_ns))] - 1] = False
        gaps_ns = np.diff(send_ns)[within]
        late_ns = self._late_ns(known)
        limit_ns = max(_SATURATED_FLOOR_NS, _SATURATED_SHARE * self._interval_ns)
        return {
            "requests": len(self.answers),
            "messages": len(send_ns),
            "ttft_ms": _figures(ttft_ns, (50, 90, 99)),
            "tbt_ms": _figures(self._with_zeros(gaps_ns, known), (50, 90, 99, 99.9)),
            "itl_ms": _figures(gaps_ns, (50, 90, 99, 99.9)),
            "late_ms": _figures(late_ns, (50, 99)),
            "send_ms": _figures(known["sent_ns"] - send_ns, (50, 99)),
            "short_writes": self.short_writes,
            "saturated": bool(len(late_ns) and np.percentile(late_ns, 99) > limit_ns),
        }

    def _late_ns(self, known: dict[str, npt.NDArray[Any]]) -> Int64:
        counts = np.diff(known["offset"])
        place = np.arange(len(known["send_ns"])) - np.repeat(known["offset"][:-1], counts)
        due_ns = np.repeat(known["arrived_ns"] + self._ttft_ns, counts) + place * self._interval_ns
        late_ns: Int64 = known["send_ns"] - due_ns
        return late_ns

    def _with_zeros(self, gaps_ns: Int64, known: dict[str, npt.NDArray[Any]]) -> Int64:
        sent = np.minimum(known["tokens"], np.diff(known["offset"]) * self._tokens_per_message)
        zeros = int(np.maximum(sent - 1, 0).sum()) - len(gaps_ns)
        return np.concatenate([gaps_ns, np.zeros(max(zeros, 0), dtype=np.int64)])


def _flat(parts: list["array[int]"]) -> Int64:
    return np.concatenate([np.zeros(0, dtype=np.int64),
                           *(np.frombuffer(part, dtype=part.typecode) for part in parts)])


def _figures(values_ns: Int64, percentiles: tuple[float, ...]) -> dict[str, float] | None:
    if not len(values_ns):
        return None
    quantiles = np.percentile(values_ns, percentiles) / 1e6
    return {f"p{p:g}": round(float(value), 4) for p, value in zip(percentiles, quantiles, strict=True)} | {
        "mean": round(float(values_ns.mean()) / 1e6, 4), "max": round(float(values_ns.max()) / 1e6, 4)}
