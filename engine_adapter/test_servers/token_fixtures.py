"""Which messages bear tokens, how many, and when they came. A message is a chunk and a write of its own
unless a fixture is about that."""

from engine_adapter.answer import FailureKind
from engine_adapter.test_servers.fixture import (
    A_B,
    ROLE,
    Expectation,
    Fixture,
    content,
    counted,
    delta,
    ok,
    text,
    usage,
)
from engine_adapter.test_servers.script import Send, Wait, spaced, stream_head, streamed
from engine_adapter.test_servers.wire import LAST_CHUNK, chunk, sse

_DONE = chunk(sse("[DONE]")) + LAST_CHUNK
_TOOL = {"tool_calls": [{"index": 0, "id": "call-1", "function": {"name": "look", "arguments": ""}}]}
_TOOL_MORE = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
_TOOL_NULL = {"tool_calls": [{"index": 0, "function": {"name": None, "arguments": None}}]}
_NO_DETAILS = {"prompt_tokens_details": None, "completion_tokens_details": None}
_EMPTY = FailureKind.EMPTY

KINDS_OF_MESSAGE = (
    Fixture("two tokens", (streamed(A_B),), ok("ab", 1, 2)),
    Fixture("chat, two tokens", (streamed([content("a"), content("b", "length")]),), ok("ab", 1, 2),
            chat=True),
    Fixture("role only first", (streamed([ROLE, content("a"), content("b", "length")]),), ok("ab", 2, 3),
            chat=True),
    Fixture("late role", (
        (Send(stream_head()), Wait(0.03), Send(chunk(sse(ROLE))), Wait(0.06),
         *spaced(chunk(sse(content("a"))), chunk(sse(content("b", "length"))), _DONE)),),
        ok("ab", 2, 3), chat=True),
    Fixture("empty deltas around the text", (
        streamed([delta({}), content("a"), delta({}), content("b"), delta({}, "stop")]),),
        ok("ab", 2, 4, finish="stop"), chat=True),
    Fixture("empty texts around the text", (streamed([text(""), text("a"), text(""), text("", "stop")]),),
            ok("a", 2, finish="stop")),
    Fixture("reasoning under the name reasoning", (
        streamed([ROLE, delta({"reasoning": "r"}), delta({"reasoning": "s"}), content("a", "stop")]),),
        ok("rsa", 2, 3, 4, finish="stop"), chat=True),
    Fixture("reasoning under the name reasoning_content", (
        streamed([delta({"reasoning_content": "r", "content": None}), content("a", "stop")]),),
        ok("ra", 1, 2, finish="stop"), chat=True),
    Fixture("reasoning under both names", (
        streamed([delta({"reasoning": "r", "reasoning_content": "r"}), content("a", "stop")]),),
        ok("ra", 1, 2, finish="stop"), chat=True),
    Fixture("nothing but reasoning", (streamed([delta({"reasoning": "r"}), delta({}, "length")]),),
            ok("r", 1), chat=True),
    Fixture("tool call", (streamed([ROLE, delta(_TOOL), delta(_TOOL_MORE), delta({}, "tool_calls")]),),
            ok("look{}", 2, 3, finish="tool_calls"), chat=True),
    Fixture("tool call of nulls", (streamed([delta(_TOOL_NULL), content("a", "stop")]),),
            ok("a", 2, finish="stop"), chat=True),
    Fixture("tool_calls null", (
        streamed([delta({"content": "a", "tool_calls": None}),
                  delta({"content": "b", "tool_calls": None}, "length")]),), ok("ab", 1, 2), chat=True),
    Fixture("content null", (
        streamed([delta({"role": "assistant", "content": None}), content("a"),
                  delta({"content": None}, "stop")]),), ok("a", 2, finish="stop"), chat=True),
    Fixture("choices null", (streamed([*A_B, {"choices": None, "usage": None}]),), ok("ab", 1, 2)),
    Fixture("one token", (streamed([text("a", "length")]),), ok("a", 1)),
    Fixture("no token but a finish reason", (streamed([text("", "stop")]),),
            Expectation(failure=_EMPTY, finish_reason="stop", text="")),
    Fixture("no token but [DONE]", (streamed([]),), Expectation(failure=_EMPTY, text="")),
    Fixture("role and usage but no token", (streamed([ROLE, delta({}, "stop"), counted(5, 0)]),),
            Expectation(failure=_EMPTY, finish_reason="stop", prompt_tokens=5, text=""), chat=True),
    Fixture("finish reason stop early", (streamed([text("a"), text("b", "stop")]),),
            ok("ab", 1, 2, finish="stop")),
    Fixture("[DONE] missing", (streamed(A_B, done=False),), ok("ab", 1, 2)),
    Fixture("finish reason missing", (streamed([text("a"), text("b")]),), ok("ab", 1, 2, finish=None)),
    Fixture("two choices", (streamed([text("a"), text("x", index=1), text("b", "length")]),),
            Expectation(tokens=(1,), writes=(1,), failure=FailureKind.PARSE, says="several choices")),
)

COUNTS = (
    Fixture("usage in the message of the last text", (
        streamed([text("a"), text("b", "length", usage=usage(3, 2))]),),
        ok("ab", 1, 2, source="usage", prompt_tokens=3)),
    Fixture("usage in a message of its own", (streamed([*A_B, counted(3, 2)]),),
            ok("ab", 1, 2, source="usage", prompt_tokens=3)),
    Fixture("usage that comes late", (
        (*streamed(A_B, done=False)[:-2], Wait(0.05), Send(chunk(sse(counted(3, 2))) + _DONE)),),
        ok("ab", 1, 2, source="usage", prompt_tokens=3)),
    Fixture("usage with null details", (
        streamed([*A_B, {"choices": [], "usage": usage(3, 2) | _NO_DETAILS}]),),
        ok("ab", 1, 2, source="usage", prompt_tokens=3)),
    Fixture("usage of the prompt only", (streamed([*A_B, {"choices": [], "usage": {"prompt_tokens": 3}}]),),
            ok("ab", 1, 2, prompt_tokens=3)),
    Fixture("usage null in every message", (
        streamed([text("a", usage=None), text("b", "length", usage=None)]),), ok("ab", 1, 2)),
    Fixture("four tokens a message, by their ids", (
        streamed([text("aaaa", token_ids=[1, 2, 3, 4]), text("bbbb", "length", token_ids=[5, 6, 7, 8])]),),
        ok("aaaabbbb", 1, 2, tokens=(4, 4), source="token_ids")),
    Fixture("four tokens a message, by a running count", (
        streamed([text("aaaa", usage=usage(3, 4)), text("bbbb", "length", usage=usage(3, 8)),
                  counted(3, 8)]),),
        ok("aaaabbbb", 1, 2, tokens=(4, 4), source="usage", prompt_tokens=3)),
    Fixture("five tokens in the first message", (
        streamed([text("aaaaa", usage=usage(3, 5)), text("b", usage=usage(3, 6)),
                  text("c", "length", usage=usage(3, 7))]),),
        ok("aaaaabc", 1, 2, 3, tokens=(5, 1, 1), source="usage", prompt_tokens=3)),
    Fixture("twelve tokens in three messages, counted at the end", (
        streamed([text("a"), text("b"), text("c", "length"), counted(3, 12)]),),
        ok("abc", 1, 2, 3, tokens=(4, 4, 4), source="usage", prompt_tokens=3)),
    Fixture("prompt ids in the first message", (
        streamed([text("a", prompt_token_ids=[1, 2, 3], token_ids=[4]),
                  text("b", "length", token_ids=[5])]),), ok("ab", 1, 2, source="token_ids")),
    Fixture("part of a character, by its id", (
        streamed([text("", token_ids=[1]), text("é", "length", token_ids=[2])]),),
        ok("é", 1, 2, source="token_ids")),
    Fixture("part of a character, by a running count", (
        streamed([text("", usage=usage(3, 1)), text("é", "length", usage=usage(3, 2))]),),
        ok("é", 1, 2, source="usage", prompt_tokens=3)),
    Fixture("all tokens at once", (
        (Send(stream_head()), Wait(0.02),
         Send(chunk(b"".join(sse(event) for event in (*A_B, "[DONE]"))) + LAST_CHUNK)),), ok("ab", 1, 1)),
    Fixture("no gap between two tokens", (
        spaced(stream_head(), chunk(sse(text("a"))) + chunk(sse(text("b"))),
               chunk(sse(text("c", "length"))), _DONE),), ok("abc", 1, 1, 2)),
)
