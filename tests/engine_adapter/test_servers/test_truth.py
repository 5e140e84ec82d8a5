"""What the paced server says of itself, from times that are known."""

import io

import numpy as np

from engine_adapter.test_servers.truth import AnswerTruth, Truth

MS = 1_000_000


def answer(arrived_ms: int, *send_ms: int, tokens: int | None = None, name: bytes = b"") -> AnswerTruth:
    truth = AnswerTruth(name, arrived_ms * MS, len(send_ms) if tokens is None else tokens)
    for at_ms in send_ms:
        truth.sent(at_ms * MS, at_ms * MS + 5_000)
    return truth


def truth_of(*answers: AnswerTruth, tokens_per_message: int = 1) -> Truth:
    truth = Truth(ttft_ns=50 * MS, interval_ns=20 * MS, tokens_per_message=tokens_per_message)
    truth.answers += answers
    return truth


def test_figures_are_those_of_the_times() -> None:
    """TTFT from the request's arrival; gaps within an answer only, never from one to the next."""
    figures = truth_of(answer(0, 50, 70, 90), answer(10, 60), answer(20, 71, 91)).summary()
    assert (figures["requests"], figures["messages"]) == (3, 6)
    assert figures["ttft_ms"] == {"p50": 50, "p90": 50.8, "p99": 50.98, "mean": 50.3333, "max": 51}
    assert figures["tbt_ms"] == figures["itl_ms"] == {
        "p50": 20, "p90": 20, "p99": 20, "p99.9": 20, "mean": 20, "max": 20}
    assert figures["late_ms"]["max"] == 1
    assert figures["send_ms"]["max"] == 0.005
    assert figures["saturated"] is False


def test_tokens_of_one_message_have_no_gap_between_them() -> None:
    """Four tokens a message: one gap and three zeros each; the last message may have fewer."""
    figures = truth_of(answer(0, 50, 70, 90, tokens=10), tokens_per_message=4).summary()
    assert figures["itl_ms"]["mean"] == 20
    assert figures["tbt_ms"]["mean"] == round(40 / 9, 4)
    assert figures["tbt_ms"]["p50"] == 0


def test_a_server_that_cannot_keep_its_pace_says_so() -> None:
    """More than 2 ms late at p99 of 20 ms: saturated, although every time is still true."""
    assert truth_of(*(answer(0, 53, 73) for _ in range(10))).summary()["saturated"] is True


def test_nothing_sent_gives_no_figures() -> None:
    """None, not zero: before any request, after a reset, and for answers that were never begun."""
    truth = truth_of(answer(0, 50))
    truth.reset()
    for figures in (truth.summary(), truth_of(answer(0), answer(1)).summary()):
        assert figures["ttft_ms"] is figures["tbt_ms"] is figures["late_ms"] is None
        assert figures["saturated"] is False
    assert truth_of(answer(0), answer(0, 50), answer(0)).summary()["ttft_ms"]["mean"] == 50


def test_the_arrays_hold_every_time() -> None:
    """Rows of answers, and the messages of answer i at offset[i]:offset[i + 1]."""
    with np.load(io.BytesIO(truth_of(answer(1, 50, 70, name=b"x"), answer(2, name=b"yy")).npz())) as arrays:
        assert arrays["x_request_id"].tolist() == [b"x", b"yy"]
        assert arrays["arrived_ns"].tolist() == [MS, 2 * MS]
        assert arrays["offset"].tolist() == [0, 2, 2]
        assert arrays["send_ns"].tolist() == [50 * MS, 70 * MS]
        assert (arrays["sent_ns"] - arrays["send_ns"]).tolist() == [5_000, 5_000]
