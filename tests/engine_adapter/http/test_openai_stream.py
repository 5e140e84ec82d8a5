import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.http.openai_stream import StreamContent, decode_stream
from tests.engine_adapter.http.stream_bytes import (
    DONE,
    ROLE,
    STOP,
    any_cut,
    counted,
    delta,
    event,
    text,
    usage_only,
)


class _Characters:
    """A tokenizer that makes each character a token."""

    def counts(self, text: str, ends: list[int]) -> list[int]:
        return [end - start for start, end in pairwise([0, *ends])]


def _gaps(content: StreamContent, stamps_ms: list[int]) -> tuple[int, list[int]]:
    """Time of the first token, and gaps between the messages."""
    times = [stamps_ms[read] for read in content.message_read]
    return times[0], [later - earlier for earlier, later in pairwise(times)]


def _tool(name: str | None = None, arguments: str | None = None) -> dict:
    return {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]}


# What bears a token (rows 1 to 32 of the public defects), by the messages' own times.

def test_k_messages_have_k_minus_1_gaps() -> None:
    """The time to the first token is no gap (rows 1, 2, 12), and gaps add up to last minus first (row 21)."""
    content = decode_stream([text("a"), text("b"), text("c", finish_reason="length"), DONE])
    assert _gaps(content, [200, 220, 240, 241]) == (200, [20, 20])
    assert content.failure is None


def test_a_role_is_no_token_even_when_it_comes_late() -> None:
    """The role message neither is the first token nor starts a gap (rows 4, 5)."""
    content = decode_stream([ROLE, delta({"content": "a"}), delta({"content": "b"}), STOP, DONE])
    assert _gaps(content, [90, 300, 320, 330, 331]) == (300, [20])


def test_empty_messages_before_and_after_bear_none() -> None:
    """Empty deltas, no delta, null choices, empty texts and an empty end have no token (rows 6, 11)."""
    empty = [delta({}), delta(None), text(""), text(None), event({"choices": None}), event({}), event(b"{}")]
    content = decode_stream([*empty, ROLE, delta({"content": "a"}), delta({"content": "b"}), *empty, STOP,
                             usage_only(2), DONE])
    assert content.message_read == [8, 9]
    assert content.message_tokens == [1, 1]


def test_the_usage_message_ends_nothing() -> None:
    """Usage after the last token moves no token time, with no choices and with empty ones (rows 10, 14)."""
    for last in (usage_only(2), delta({}, usage=counted(2)), event({"choices": None, "usage": counted(2)})):
        content = decode_stream([text("a"), text("b", finish_reason="length"), last, DONE])
        assert (content.message_read, content.completion_tokens, content.prompt_tokens) == ([0, 1], 2, 7)


def test_usage_and_text_in_one_message_both_count() -> None:
    """The last text is not lost to the usage beside it, nor the usage to the text (row 15)."""
    content = decode_stream([text("x"), text("z", finish_reason="stop", usage=counted(2))])
    assert (content.text, content.message_read, content.completion_tokens) == ("xz", [0, 1], 2)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_tokens_under_either_name(key: str) -> None:
    """The first token may be reasoning; the first content is told apart (rows 16, 17)."""
    reasoning = [delta({key: "r"})] * 5
    content = decode_stream([ROLE, *reasoning, delta({"content": "c"}), STOP, DONE])
    assert content.message_read == [1, 2, 3, 4, 5, 6]
    assert content.first_content_message == 5
    assert content.text == "rrrrrc"


def test_reasoning_under_both_names_is_one_text() -> None:
    """Servers that send both names send one text twice; only reasoning means no content."""
    both = delta({"reasoning": "r", "reasoning_content": "r", "content": None})
    content = decode_stream([both, STOP, DONE])
    assert (content.text, content.first_content_message) == ("r", None)


def test_tool_calls_are_tokens() -> None:
    """A tool's name and each piece of its arguments bear tokens; a call with neither does not."""
    content = decode_stream([ROLE, delta(_tool("f", "")), delta(_tool(None, '{"a":')), delta(_tool()),
                             delta(_tool(None, "1}")), delta({}, finish_reason="tool_calls"), DONE])
    assert content.message_read == [1, 2, 4]
    assert content.text == 'f{"a":1}'
    assert content.first_content_message == 0


@pytest.mark.parametrize("fields", [
    {"tool_calls": None}, {"content": None}, {"reasoning": None, "content": ""}, {"tool_calls": []},
    {"tool_calls": [None]}, {"tool_calls": [{}]}, {"tool_calls": [{"function": None}]},
])
def test_null_is_absent(fields: dict) -> None:
    """Null or empty fields bear no token and break nothing (rows 50, 51)."""
    content = decode_stream([delta(fields), delta({**fields, "content": "a"}), STOP, DONE])
    assert (content.message_read, content.failure) == ([1], None)


def test_null_in_usage_is_absent() -> None:
    """Null details and null counts are no error, and each count falls back by itself (rows 52, 66)."""
    last = usage_only(None, 5, prompt_tokens_details=None)
    content = decode_stream([text("a", usage=None), last, STOP, DONE])
    assert (content.prompt_tokens, content.completion_tokens, content.failure) == (5, None, None)
    assert (content.message_tokens, content.token_count_source) == ([1], "events")


def test_messages_in_one_read_share_its_time() -> None:
    """Several messages in one read are as many messages without a gap (rows 24, 30)."""
    content = decode_stream([text("a") + text("b") + text("c", finish_reason="stop") + DONE])
    assert _gaps(content, [500]) == (500, [0, 0])


@pytest.mark.parametrize("endpoint", [text, lambda piece, **more: delta({"content": piece}, **more)])
def test_a_character_cut_by_reads_comes_out_whole(endpoint) -> None:
    """Bytes are joined before they are decoded, so no character is replaced (row 34)."""
    body = endpoint("a😀b", finish_reason="stop")
    start = body.index("😀".encode())
    content = decode_stream([body[: start + 1], body[start + 1 : start + 3], body[start + 3 :], DONE])
    assert (content.text, content.message_read) == ("a😀b", [2])


@pytest.mark.parametrize(("raw", "shown"), [
    (b'"a\xffb"', "a\ufffdb"), (rb'"a\ud83db"', "a\ufffdb"), (rb'"\ud83d\ude00"', "😀"),
    (b'"a\x0bb\x0c"', "a\x0bb\x0c"),
    ('"a\u2028b\x85"'.encode(), "a\u2028b\x85"), (rb'"a\u0000b"', "a\x00b"),
    (b'[{"type":"text","text":"a"},{"type":"thinking","thinking":[{"type":"text","text":"b"}]}]', "ab"),
    (b"5", ""),
])
def test_odd_text_is_read(raw: bytes, shown: str) -> None:
    """What is no text becomes U+FFFD; controls and line separators stay (row 35); lists are joined."""
    content = decode_stream([event(b'{"choices":[{"index":0,"delta":{"content":' + raw + b"}}]}"), STOP])
    assert content.text == shown
    assert len(content.message_read) == bool(shown)


def test_a_megabyte_message_is_one_message() -> None:
    """No size is too large (row 44)."""
    logprobs = {"tokens": ["t"] * 50_000, "token_logprobs": [-0.5] * 50_000}
    content = decode_stream([text("x" * 1_000_000, logprobs=logprobs, finish_reason="stop"), DONE])
    assert (len(content.text), content.message_tokens) == (1_000_000, [1])


_PIECES = st.text(st.characters(codec="utf-8"), max_size=3)
_MESSAGES = st.one_of(
    st.builds(text, _PIECES),
    st.builds(lambda piece, n: text(piece, token_ids=[5] * n), _PIECES, st.integers(0, 3)),
    st.builds(lambda piece: delta({"content": piece}), _PIECES),
    st.builds(lambda piece: delta({"reasoning": piece, "content": None}), _PIECES),
    st.builds(lambda piece, n: delta({"content": piece}, usage=counted(n)), _PIECES, st.integers(0, 20)),
    st.builds(usage_only, st.one_of(st.none(), st.integers(0, 20))),
    st.sampled_from([ROLE, STOP, DONE, b": ping\n\n", b"\n", event(b"{"), event({"error": "no"})]),
)
_BODIES = st.builds(
    lambda messages, crlf: b"".join(messages).replace(b"\n", b"\r\n" if crlf else b"\n"),
    st.lists(_MESSAGES, max_size=8), st.booleans(),
)


@given(st.data(), st.sampled_from([None, _Characters()]))
def test_any_segmentation_means_the_same(data: st.DataObject, tokenizer: _Characters | None) -> None:
    """Only the reads' indexes depend on where a body is cut: they name the read that completed a message."""
    body = data.draw(_BODIES)
    reads = data.draw(any_cut(body))
    whole = decode_stream([body[i : i + 1] for i in range(len(body))], tokens_of_text=tokenizer)
    content = decode_stream(reads, tokens_of_text=tokenizer)
    ends = [sum(map(len, reads[: index + 1])) for index in range(len(reads))]
    expected = [next(i for i, end in enumerate(ends) if end > byte) for byte in whole.message_read]
    assert content.message_read == expected
    for name in set(StreamContent.__slots__) - {"message_read"}:
        assert getattr(content, name) == getattr(whole, name)


@given(_BODIES, st.sampled_from([None, _Characters()]))
def test_what_holds_for_every_answer(body: bytes, tokenizer: _Characters | None) -> None:
    """Each message has a token, reads never fall, and a success has a terminal signal and tokens."""
    content = decode_stream([body], tokens_of_text=tokenizer)
    assert len(content.message_read) == len(content.message_tokens)
    assert all(count >= 1 for count in content.message_tokens)
    assert content.message_read == sorted(content.message_read)
    if content.first_content_message is not None:
        assert 0 <= content.first_content_message < len(content.message_read)
    if content.failure is None:
        assert content.message_tokens
        assert content.done or content.finish_reason
    else:
        assert content.failure.text.isprintable()
        assert len(content.failure.text) <= 300
    if content.token_count_source == "usage":
        assert sum(content.message_tokens) == content.completion_tokens


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([
            "choices", "delta", "text", "content", "reasoning", "tool_calls", "function", "name", "arguments",
            "usage", "prompt_tokens", "completion_tokens", "token_ids", "finish_reason", "index", "error",
            "object", "message", "type",
        ]), inner, max_size=5),
    ), max_leaves=20,
))
def test_no_json_crashes_it(value: object) -> None:
    """Whatever types the fields of a message have, there is an answer or a failure."""
    data = json.dumps(value).encode()
    for body in (event(data), data, event(b'{"choices":[' + data + b"]}"), event(b'{"usage":' + data + b"}")):
        content = decode_stream([body])
        assert content.failure or content.message_tokens
