import pytest

from engine_adapter.answer import FailureKind
from engine_adapter.http.openai_stream import decode_stream
from tests.engine_adapter.http.stream_bytes import DONE, ROLE, STOP, delta, event, text, usage_only


def _failure(*reads: bytes) -> tuple[FailureKind, str]:
    failure = decode_stream(list(reads)).failure
    assert failure is not None
    return failure.kind, failure.text


_ERROR = event({"error": {"message": "out of\nmemory", "type": "server_error", "code": 500}})
_ERRORS = [
    (_ERROR, "out of memory"),
    (event({"object": "error", "message": "too long", "code": 400}), "too long"),
    (event({"object": "error"}), "null"),
    (event({"error": "bad"}), "bad"),
    (event({"error": {}}), "{}"),
    (event({"error": {"code": 3}}), '{"code": 3}'),
    (b"event: error\ndata: no room\n\n", "no room"),
    (b'event: error\ndata: {"message": "no room"}\n\n', '{"message": "no room"}'),
    (b'event: error\ndata: {"error": {"message": "no room"}}\n\n', "no room"),
    (b"event: error\ndata:\n\n", "an error without a message"),
]


@pytest.mark.parametrize(("error", "said"), _ERRORS)
def test_an_error_in_the_stream_is_a_failure(error: bytes, said: str) -> None:
    """An error object or event fails the answer in the server's words, [DONE] or not (rows 42, 54, 55)."""
    assert _failure(ROLE, error, DONE) == (FailureKind.IN_STREAM_ERROR, said)
    assert _failure(error) == (FailureKind.IN_STREAM_ERROR, said)


@pytest.mark.parametrize(("error", "said"), _ERRORS)
def test_tokens_before_an_error_are_kept(error: bytes, said: str) -> None:
    """What came before the error stays in the answer; what comes after it is not read (row 54)."""
    content = decode_stream([text("a"), text("b", finish_reason="stop"), error, text("c"), DONE])
    assert content.failure is not None
    assert (content.failure.kind, content.failure.text) == (FailureKind.IN_STREAM_ERROR, said)
    assert (content.message_read, content.text) == ([0, 1], "ab")


def test_an_error_without_its_blank_line_is_read() -> None:
    """Servers that fail may end at once after the error."""
    assert _failure(text("a"), b'data: {"error": "full"}') == (FailureKind.IN_STREAM_ERROR, "full")


@pytest.mark.parametrize("nothing", [None, False, "", 0])
def test_no_error_is_no_error(nothing: object) -> None:
    """Some servers send an empty `error` with every message."""
    assert decode_stream([event({"choices": [{"text": "a"}], "error": nothing}), DONE]).failure is None


def test_an_error_is_one_short_line_without_control_characters() -> None:
    """At most 300 characters, fit for a terminal, whatever the server wrote."""
    kind, said = _failure(event({"error": {"message": "\x1b[31mred\n\n\x00" + "long " * 1000}}))
    assert kind == FailureKind.IN_STREAM_ERROR
    assert said.startswith("[31mred long")
    assert len(said) == 300
    assert said.isprintable()


@pytest.mark.parametrize("reason", ["abort", "error", {"type": "abort", "message": "x"}])
def test_an_answer_that_the_engine_gave_up_is_a_failure(reason: object) -> None:
    """The finish reasons `abort` and `error` are no success, with tokens or without."""
    for start in (ROLE, text("a")):
        kind, said = _failure(start, delta({}, finish_reason=reason), DONE)
        assert kind == FailureKind.IN_STREAM_ERROR
        assert "finish_reason" in said


def test_either_terminal_signal_is_enough() -> None:
    """[DONE] without a finish reason, and a finish reason without [DONE], end an answer in order."""
    for end in (DONE, STOP, b"data: [DONE]", b"data:[DONE]\r\n\r\n", b"data:  [DONE] \n\n"):
        assert decode_stream([text("a"), end]).failure is None
    assert decode_stream([text("a"), DONE]).done
    assert not decode_stream([text("a"), STOP]).done


@pytest.mark.parametrize(
    "rest", [b"", b"data: ", b'data: {"choices":[{"te', b": ping\n\n", usage_only(3), b"data: [DO"]
)
def test_an_end_without_a_terminal_signal_is_truncated(rest: bytes) -> None:
    """A stream that stops after three tokens failed, with the tokens kept (rows 47, 57)."""
    content = decode_stream([text("a"), text("b"), text("c"), rest])
    assert content.failure is not None
    assert content.failure.kind == FailureKind.TRUNCATED
    assert content.message_tokens == [1, 1, 1]


@pytest.mark.parametrize("reads", [[], [b""], [b"\n"], [b": ping\n\n"], [ROLE], [b"dat"], [b"event: x\n\n"]])
def test_nothing_is_truncated(reads: list[bytes]) -> None:
    """A body that ended before anything came was cut short; it is not called another format."""
    assert _failure(*reads)[0] == FailureKind.TRUNCATED


@pytest.mark.parametrize("reads", [[DONE], [ROLE, DONE], [STOP], [ROLE, STOP, usage_only(0), DONE],
                                   [text("", finish_reason="stop"), DONE], [ROLE, STOP, usage_only(1), DONE]])
def test_an_end_without_tokens_is_empty(reads: list[bytes]) -> None:
    """A terminal signal without a token is a failure, and there is no token time (rows 7, 9, 29, 56)."""
    content = decode_stream(reads)
    assert content.failure is not None
    assert content.failure.kind == FailureKind.EMPTY
    assert content.message_read == []
    assert content.first_content_message is None


@pytest.mark.parametrize(("body", "said"), [
    (b"<!DOCTYPE html>\n<html><body>502</body></html>\n", "no event stream came: <!DOCTYPE html> <html>"),
    (b"Internal Server Error", "no event stream came: Internal Server Error"),
    (b'{"detail": "Not Found"}', 'no event stream came: {"detail": "Not Found"}'),
    (b'{"choices": [{"message": {"content": "hi"}}]}', "a whole answer came instead of a stream: {"),
    (b"\x1f\x8b\x08\x00\x00", "no event stream came: \ufffd"),
    (b"[1, 2]", "no event stream came: [1, 2]"),
])
def test_what_is_no_event_stream_is_said_so(body: bytes, said: str) -> None:
    """HTML, text or a whole JSON answer in a 200 is a parse failure that shows how it begins, on one line."""
    kind, shown = _failure(body[:5], body[5:])
    assert kind == FailureKind.PARSE
    assert shown.startswith(said)
    assert shown.isprintable()
    assert len(_failure(body * 100)[1]) < 130


@pytest.mark.parametrize(
    "body", [b'{"error": {"message": "full"}}', b'\n{\n "object": "error",\n "message": "full"\n}\n']
)
def test_an_error_as_the_whole_body_is_the_servers_error(body: bytes) -> None:
    """A JSON error body with status 200 is the server's own failure, not a broken stream."""
    assert _failure(body) == (FailureKind.IN_STREAM_ERROR, "full")


@pytest.mark.parametrize(
    "data", [b"{", b"hello", b"[]", b"null", b"3", b'{"a":' + b"[" * 100_000, b'{"a": 1}\n{"b": 2}']
)
def test_a_message_that_is_no_json_object_is_a_parse_failure(data: bytes) -> None:
    """An event must hold one JSON object; tokens before it are kept."""
    content = decode_stream([text("a"), event(data.replace(b"\n", b"\ndata: ")), DONE])
    assert content.failure is not None
    assert content.failure.kind == FailureKind.PARSE
    assert content.failure.text.startswith("a message that is no JSON object: ")
    assert content.message_tokens == [1]


@pytest.mark.parametrize("data", [b"", b"data:\n\n", b"data\n\n", b"data: \t\n\n"])
def test_an_event_with_empty_data_is_passed_over(data: bytes) -> None:
    """It keeps the connection alive and says nothing."""
    assert decode_stream([data, text("a"), DONE]).failure is None


def test_several_choices_are_refused() -> None:
    """Token times of parallel samples would be mixed up, so their answer is a failure (row 32)."""
    second = event({"choices": [{"index": 1, "text": "b"}]})
    both = event({"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]})
    for reads in ([text("a"), second, DONE], [text("a"), both, DONE]):
        kind, said = _failure(*reads)
        assert kind == FailureKind.PARSE
        assert "several choices" in said
        assert decode_stream(reads).text == "a"


def test_the_index_may_be_left_out() -> None:
    """A choice without an index, or with null, is the only one."""
    for index in ({}, {"index": None}):
        assert decode_stream([event({"choices": [{**index, "text": "a"}]}), DONE]).failure is None
