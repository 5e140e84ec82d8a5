from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.http.openai_stream import decode_stream
from engine_adapter.http.token_counts import from_increments, never_fall, tokens_per_message
from tests.engine_adapter.http.stream_bytes import (
    DONE,
    ROLE,
    STOP,
    counted,
    delta,
    event,
    text,
    usage_only,
)


def _counts(*reads: bytes, tokens_of_text=None) -> tuple[list[int], list[int], str]:
    content = decode_stream([*reads, STOP, DONE], tokens_of_text=tokens_of_text)
    return content.message_read, content.message_tokens, content.token_count_source


class _Words:
    """Each letter but x is a token of its own; an x is part of the letter that follows it."""

    def counts(self, text: str, ends: list[int]) -> list[int]:
        return [sum(c != "x" for c in text[start:end]) for start, end in pairwise([0, *ends])]


def test_token_ids_count_themselves() -> None:
    """Ids in the messages come first; those of the prompt are not counted (rows 20, 22, 25)."""
    first = event({"choices": [{"text": "abcd", "token_ids": [1, 2, 3, 4], "prompt_token_ids": [9] * 50}],
                   "prompt_token_ids": [9] * 50})
    later = [text("ef", token_ids=[5, 6]), text("g", token_ids=[7])]
    assert _counts(first, *later) == ([0, 1, 2], [4, 2, 1], "token_ids")
    end = usage_only(7)
    assert _counts(first, *later, end, tokens_of_text=_Words()) == ([0, 1, 2], [4, 2, 1], "token_ids")


def test_token_ids_without_text_bear_tokens() -> None:
    """A message whose tokens are part of a character, or a control token, has its ids and no text yet."""
    last = text("", token_ids=[3], finish_reason="length")
    reads = [text("", token_ids=[1]), text("é", token_ids=[2]), last]
    assert _counts(*reads) == ([0, 1, 2], [1, 1, 1], "token_ids")


def test_text_without_new_ids_belongs_to_earlier_tokens() -> None:
    """Text that was held back has no token of its own; before the first token it takes part in it."""
    assert _counts(text("a", token_ids=[1, 2]), text("b", token_ids=[]), text("c", token_ids=[3])) == (
        [0, 2], [2, 1], "token_ids")
    assert _counts(text("a", token_ids=[]), text("b", token_ids=[1, 2])) == ([0, 1], [1, 1], "token_ids")


@pytest.mark.parametrize("last", [text("c"), text("c", token_ids=None)])
def test_token_ids_count_only_where_every_message_has_them(last: bytes) -> None:
    """Ids that are missing somewhere give no total, so the next source is asked."""
    first = text("ab", token_ids=[1, 2])
    assert _counts(first, last)[2] == "events"
    assert _counts(first, last, tokens_of_text=_Words()) == ([0, 1], [2, 1], "tokenizer")
    assert _counts(first, last, usage_only(3))[2] == "usage"


def test_the_servers_count_overrules_ids_that_contradict_it() -> None:
    """Ids that repeat the earlier ones in every message would count tokens twice."""
    reads = [text("a", token_ids=[1]), text("b", token_ids=[1, 2]), text("c", token_ids=[1, 2, 3])]
    assert _counts(*reads, usage_only(3)) == ([0, 1, 2], [1, 1, 1], "usage")


def test_continuous_usage_gives_each_message_its_tokens() -> None:
    """Differences of the running count, whatever the number of tokens in a message (rows 20, 22, 25)."""
    reads = [delta({"role": "assistant", "content": ""}, usage=counted(0)),
             *[delta({"content": "x"}, usage=counted(n)) for n in (4, 6, 9, 12)], usage_only(12)]
    assert _counts(*reads) == ([1, 2, 3, 4], [4, 2, 3, 3], "usage")


def test_a_growing_count_without_text_bears_tokens() -> None:
    """With a running count, a message without text has the tokens by which the count grew."""
    reads = [text("", usage=counted(1)), text("é", usage=counted(2)), text("", usage=counted(2)),
             text("", usage=counted(3)), usage_only(3)]
    assert _counts(*reads) == ([0, 1, 3], [1, 1, 1], "usage")
    last = delta({}, finish_reason="stop", usage=counted(2))
    assert _counts(ROLE, delta({"content": "a"}, usage=counted(1)), last) == ([1, 2], [1, 1], "usage")


def test_a_role_bears_no_token_whatever_is_counted_with_it() -> None:
    """The first count of a chat may come with the role."""
    role = delta({"role": "assistant", "content": ""}, usage=counted(1))
    texts = [delta({"content": "a"}, usage=counted(1)), delta({"content": "b"}, usage=counted(2))]
    assert _counts(role, *texts) == ([1, 2], [1, 1], "usage")


@pytest.mark.parametrize("last", [
    delta({}, finish_reason="stop", usage=counted(6)), delta({}, usage=counted(6)), usage_only(6),
])
def test_a_total_at_the_end_is_no_message(last: bytes) -> None:
    """A count that comes first after the texts is their sum, also in a message with an empty choice."""
    texts = [delta({"content": "a"}), delta({"content": "b"}), delta({"content": "c"})]
    for start in (ROLE, delta({"role": "assistant", "content": ""}, usage=counted(0))):
        assert _counts(start, *texts, last) == ([1, 2, 3], [2, 2, 2], "usage")


def test_text_at_an_unchanged_count_belongs_to_earlier_tokens() -> None:
    """Text that a parser held back comes without new tokens: it is no token message."""
    reads = [text(letter, usage=counted(n)) for letter, n in (("a", 2), ("b", 2), ("c", 3))]
    assert _counts(*reads) == ([0, 2], [2, 1], "usage")


def test_tokens_counted_after_the_last_message_are_its_own() -> None:
    """The messages have all tokens that the server counted at the end."""
    assert _counts(text("a", usage=counted(1)), text("b", usage=counted(2)), usage_only(4)) == (
        [0, 1], [1, 3], "usage")


def test_the_servers_total_is_spread_over_the_messages() -> None:
    """Reasoning that the texts do not show is in the server's count, so it is preferred (row 19)."""
    read, tokens, source = _counts(*[text("x") for _ in range(38)], usage_only(512), tokens_of_text=_Words())
    assert (sum(tokens), source, len(read)) == (512, "usage", 38)
    assert max(tokens) - min(tokens) == 1


@pytest.mark.parametrize("reads", [
    [text("a"), text("b"), usage_only(0)],
    [text("a", usage=counted(5)), text("b", usage=counted(1))],
    [text("a", usage=counted(1)), text("b")],
    [text("a"), text("b"), usage_only(None)],
])
def test_a_count_that_cannot_be_cumulative_and_whole_is_not_used(reads: list[bytes]) -> None:
    """No tokens, a falling count, or one that ends before the last message says nothing."""
    assert _counts(*reads) == ([0, 1], [1, 1], "events")


def test_the_tokenizer_counts_the_whole_text_once() -> None:
    """Twenty one-word messages are twenty tokens, each where its last character came (row 26)."""
    assert _counts(*[text("w") for _ in range(20)], tokens_of_text=_Words())[1:] == ([1] * 20, "tokenizer")
    assert _counts(text("ax"), text("xb"), text("cd"), tokens_of_text=_Words()) == (
        [0, 1, 2], [1, 1, 2], "tokenizer")
    assert _counts(text("x"), text("ab"), tokens_of_text=_Words()) == ([0, 1], [1, 1], "tokenizer")


def test_a_text_without_tokens_falls_back_to_messages() -> None:
    """A tokenizer that finds nothing cannot undo that something came."""
    assert _counts(text("x"), tokens_of_text=_Words()) == ([0], [1], "events")


@pytest.mark.parametrize(("messages", "total", "tokens"), [
    (3, 3, [1, 1, 1]), (3, 12, [4, 4, 4]), (5, 7, [2, 1, 2, 1, 1]), (1, 9, [9]),
    (5, 3, [1, 0, 1, 0, 1]), (5, 2, [1, 0, 0, 0, 1]), (5, 1, [1, 0, 0, 0, 0]), (4, 3, [1, 0, 1, 1]),
])
def test_how_a_total_is_spread(messages: int, total: int, tokens: list[int]) -> None:
    """As even as whole tokens are; with fewer tokens than messages, the first and the last keep one."""
    assert tokens_per_message(messages, [(messages, total)]) == tokens


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=12))
def test_counts_add_up_to_the_last_checkpoint(steps: list[tuple[int, int]]) -> None:
    """Whenever the count was reported, the messages have all its tokens, and the first has one."""
    messages, tokens = zip(*steps, strict=True)
    checkpoints = list(zip(accumulate(messages), accumulate(tokens), strict=True))
    seen, total = checkpoints[-1]
    assert never_fall(checkpoints)
    if seen and total:
        spread = tokens_per_message(seen, checkpoints)
        assert sum(spread) == total
        assert min(spread) >= 0
        assert spread[0] >= 1


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_increments_keep_their_sum_and_their_place(increments: list[int]) -> None:
    """Tokens counted in each message stay there, but that the first text is never without one."""
    tokens = from_increments(increments)
    assert sum(tokens) == sum(increments)
    if increments[0]:
        assert tokens == increments


@given(st.lists(st.tuples(st.text("ab", min_size=0, max_size=2), st.integers(0, 3)), min_size=1, max_size=10))
def test_the_sum_is_the_final_usage(steps: list[tuple[str, int]]) -> None:
    """With a running count, the messages' tokens add up to the final usage."""
    steps = [("a", steps[0][1] + 1), *steps[1:]]
    total, reads = 0, []
    for piece, tokens in steps:
        total += tokens
        reads.append(text(piece, usage=counted(total)))
    content = decode_stream([*reads, STOP, usage_only(total), DONE])
    assert content.token_count_source == "usage"
    assert sum(content.message_tokens) == content.completion_tokens == total
