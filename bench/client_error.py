"""How wrong a client was, against a server that knows what it sent and when.

Both clocks are CLOCK_MONOTONIC of one machine, so single token times can be compared too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.run import Int64, Run
from bench.samples import Samples
from engine_adapter.request_number import http_request_number

STATS = ("p50", "p99", "max")


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity as the client measured it and as it was. Nanoseconds by statistic; None for a
    statistic that needs more samples."""

    n: int
    true: Mapping[str, float | None]
    measured: Mapping[str, float | None]
    error: Mapping[str, float | None]
    """Of the single samples, without their signs."""

    def difference(self, stat: str) -> float | None:
        """Measured less true; None where one of them is."""
        true, measured = self.true[stat], self.measured[stat]
        return None if true is None or measured is None else measured - true

    def resolution(self, stat: str) -> float | None:
        """Differences in this statistic below so many nanoseconds may be the client's own: its error there,
        at least the median error of a single sample; None where there is no figure."""
        difference, typical = self.difference(stat), self.error["p50"]
        return None if difference is None or typical is None else max(abs(difference), typical)

    def as_dict(self) -> dict[str, Any]:
        """In milliseconds."""
        return {
            "n": self.n, "true_ms": _ms(self.true), "measured_ms": _ms(self.measured),
            "difference_ms": _ms({stat: self.difference(stat) for stat in STATS}),
            "sample_error_ms": _ms(self.error),
        }


@dataclass(frozen=True, slots=True)
class ClientError:
    """Of the requests that both sides know with the same number of messages."""

    ttft: Compared
    tbt: Compared
    lateness: Mapping[str, float | None]
    """From just before a message was sent to its time at the client, by `p1` and STATS: the way through
    the kernel, and the error of a single token's time."""
    requests: int
    mismatched: int
    """Successes of the run that the server does not know, or knows with another number of messages."""

    def as_dict(self) -> dict[str, Any]:
        """In milliseconds."""
        return {
            "ttft": self.ttft.as_dict(), "tbt": self.tbt.as_dict(), "token_lateness_ms": _ms(self.lateness),
            "requests": self.requests, "mismatched": self.mismatched,
        }


def client_error(run: Run, truth: Mapping[str, npt.NDArray[Any]]) -> ClientError:
    """Compare the measured successes of `run` with the arrays of a paced server (see its Truth.arrays).

    For a server that sends one token a message. Its truth must be of this run alone.
    """
    answers = {_row_named(name): answer for answer, name in enumerate(truth["x_request_id"].tolist())}
    reads, sends = run.reads_offset, truth["offset"]
    pairs = [(row, answers[row]) for row in np.flatnonzero(run.ok).tolist() if row in answers
             and reads[row + 1] - reads[row] == sends[answers[row] + 1] - sends[answers[row]]]
    rows = np.array([row for row, _ in pairs], dtype=np.int64)
    known = np.array([answer for _, answer in pairs], dtype=np.int64)
    read_ns, owner = _flat(run.read_ns, reads, rows)
    send_ns, _ = _flat(truth["send_ns"], sends, known)
    within = owner[1:] == owner[:-1]
    return ClientError(
        ttft=_compared(truth["send_ns"][sends[known]] - truth["arrived_ns"][known],
                       run.read_ns[reads[rows]] - run.sent_ns[rows]),
        tbt=_compared(np.diff(send_ns)[within], np.diff(read_ns)[within]),
        lateness=_statistics(read_ns - send_ns, ("p1", *STATS)),
        requests=len(rows), mismatched=int(run.ok.sum()) - len(rows),
    )


def _row_named(x_request_id: bytes) -> int:
    """The row in the name that our client gave its request; -1 for another's."""
    number = http_request_number(x_request_id.decode("latin-1"))
    return -1 if number is None else number


def _flat(times: Int64, offsets: Int64, rows: Int64) -> tuple[Int64, Int64]:
    """The times of these rows, one after the other, and the row that each belongs to."""
    counts = offsets[rows + 1] - offsets[rows]
    owner = np.repeat(np.arange(len(rows)), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return times[np.repeat(offsets[rows], counts) + place], owner


def _compared(true: Int64, measured: Int64) -> Compared:
    return Compared(len(true), _statistics(true), _statistics(measured), _statistics(np.abs(measured - true)))


def _statistics(values: Int64, stats: tuple[str, ...] = STATS) -> dict[str, float | None]:
    samples = Samples(values)
    return {stat: samples.statistic(stat)[0] for stat in stats}


def _ms(values_ns: Mapping[str, float | None]) -> dict[str, float | None]:
    return {stat: None if value is None else round(value / 1e6, 6) for stat, value in values_ns.items()}
