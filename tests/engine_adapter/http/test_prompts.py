"""What a request looks like on the wire, and prompts as words."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.http.dialect import EXTRAS, Dialect, usable_ids
from engine_adapter.http.target import HttpTarget
from engine_adapter.http.words import PromptWords
from engine_adapter.seam import GenerateRequest

REQUEST = GenerateRequest(3, [21, 22, 23], 5)


def body_of(dialect: Dialect) -> dict[str, object]:
    body: dict[str, object] = json.loads(dialect.body(REQUEST))
    return body


def test_a_request_asks_for_exact_lengths_and_exact_counts() -> None:
    """Token ids in, and whatever makes the server say how many came out; as a server of vLLM takes it."""
    body = body_of(Dialect(HttpTarget(base_url="http://h"), "m"))
    assert body["prompt"] == [21, 22, 23]
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (5, 5, True)
    assert (body["stream"], body["return_token_ids"], body["temperature"]) == (True, True, 0.0)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize("extra", list(EXTRAS))
def test_what_a_server_refuses_is_left_out(extra: str) -> None:
    """Without an extra the body does not mention it."""
    assert extra not in json.dumps(body_of(Dialect(HttpTarget(base_url="http://h"), "m").without(extra)))


def test_answers_may_end_by_themselves() -> None:
    """With --no-ignore-eos neither ignore_eos nor min_tokens is sent."""
    body = body_of(Dialect(HttpTarget(base_url="http://h", ignore_eos=False), "m"))
    assert "ignore_eos" not in body
    assert "min_tokens" not in body


def test_the_users_fields_win() -> None:
    """--extra-body comes last."""
    target = HttpTarget(base_url="http://h", extra_body={"temperature": 0.7, "top_p": 0.9})
    body = body_of(Dialect(target, "m"))
    assert (body["temperature"], body["top_p"]) == (0.7, 0.9)


def test_chat_sends_one_message_of_words() -> None:
    """A chat server gets text, as long as the prompt was planned."""
    body = body_of(Dialect(HttpTarget(base_url="http://h", api="chat"), "m", token_ids=False))
    (message,) = body["messages"]  # type: ignore[misc]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 3
    assert "prompt" not in body


def test_the_head_has_the_length_and_the_headers() -> None:
    """One well-formed HTTP request; an IPv6 host keeps its brackets."""
    target = HttpTarget(base_url="http://[::1]:80", headers={"x-tenant": "blue"}, api_key="key-1234")
    head, _, body = Dialect(target, "m").payload(REQUEST, 9).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert (headers["Host"], headers["x-tenant"], headers["Authorization"]) == (
        "[::1]:80", "blue", "Bearer key-1234")
    assert int(headers["Content-Length"]) == len(body)


@given(st.lists(st.integers(10, 31_999), min_size=1, max_size=60), st.integers(1, 60))
def test_equal_beginnings_stay_equal_as_words(ids: list[int], shared: int) -> None:
    """Two prompts that share ids share as many words, so that a prefix cache sees what was planned."""
    words = PromptWords()
    other = [*ids[:shared], *(id_ + 1 for id_ in ids[shared:])]
    assert words.text(ids).split()[:shared] == words.text(other).split()[:shared]


@given(st.floats(0.4, 3.0), st.floats(0, 20), st.integers(30, 300), st.integers(30, 300), st.integers(1, 300))
def test_prompts_share_words_as_they_share_tokens(
        per_word: float, overhead: float, shared: int, own: int, more: int) -> None:
    """Whatever a word counts, a common beginning of so many tokens makes words of so many tokens common, and
    what comes after it differs: also where a conversation goes on."""
    words = PromptWords(per_word, overhead)
    prefix = np.arange(shared) * 31 + 10
    texts = [words.text([*prefix, *(np.arange(length) * 17 + salt)]).split()
             for length, salt in ((own, 5000), (own + more, 5000), (own + more, 9001))]
    first, longer, other = texts
    common = next((i for i, (a, b) in enumerate(zip(longer, other, strict=True)) if a != b), len(longer))
    assert abs(common * per_word - shared) <= overhead + 3 * max(1, per_word)
    assert longer[:len(first) - 1] == first[:-1]   # the last word may stand for what is left


@given(st.floats(0.5, 3.0), st.floats(0, 60), st.integers(1, 5000))
def test_words_make_the_planned_tokens_once_two_prompts_were_counted(
        per_word: float, overhead: float, tokens: int) -> None:
    """A line through two counted prompts: the third has its length, give or take a word."""
    def counted(words: int) -> int:
        return round(overhead + per_word * words)

    fitted = PromptWords.fitted((20, counted(20)), (220, counted(220)))
    got = counted(len(fitted.text(np.arange(tokens) + 10).split()))
    assert abs(got - max(tokens, counted(1))) <= per_word + 1 + 0.01 * tokens


def test_a_server_that_counts_nonsense_gets_a_word_a_token() -> None:
    """A longer prompt that counts no more tokens teaches nothing."""
    assert PromptWords.fitted((20, 50), (220, 50)) == PromptWords()


@given(st.integers(2, 40_000), st.integers(1, 64))
def test_a_probe_reaches_to_the_end_of_the_vocabulary(vocab_size: int, count: int) -> None:
    """Its ids exist, and the highest one is among them."""
    ids = usable_ids(vocab_size, count)
    assert len(ids) == count
    assert max(ids) == vocab_size - 1
    assert min(ids) >= 0
