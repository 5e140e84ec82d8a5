"""Conversations as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, open_trace, read_trace


def _talk(*texts: str) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": ("human", "gpt")[i % 2], "value": text}
                                         for i, text in enumerate(texts)]}


def _file(folder: Path, rows: list[Any], *, lines: bool = False) -> Path:
    path = folder / "talks.json"
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, indent=1))
    return path


def _read(path: Path, tokenizer: str | None, **options: Any) -> Trace:
    return read_trace(path, options=ReadOptions(tokenizer=tokenizer, **options))


@pytest.mark.parametrize("lines", [False, True])
def test_every_answer_is_a_request_with_its_history(tmp_path: Path, word_tokenizer: str, lines: bool) -> None:
    """The prompt of a turn is all that was said before; a conversation is a session without times."""
    path = _file(tmp_path, [_talk("a b c d", "e f"), _talk("a", "b c", "d e f", "g h i j k")], lines=lines)
    assert open_trace(path).format == "sharegpt"
    trace = _read(path, word_tokenizer)
    assert trace.input_len.tolist() == [4, 1, 6]
    assert trace.output_len.tolist() == [2, 2, 5]
    assert trace.session.tolist() == [0, 1, 1]
    assert trace.turn.tolist() == [0, 0, 1]
    assert not trace.timed


def test_messages_of_roles_are_read_too(tmp_path: Path, word_tokenizer: str) -> None:
    """The other layout in use: `messages` with `role` and `content`, which may come in parts or be null."""
    trace = _read(_file(tmp_path, [{"messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a b"}]},
        {"role": "assistant", "content": None}, {"role": "tool", "content": "c"},
        {"role": "assistant", "content": "d e"}]}]), word_tokenizer)
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([5], [2])
    assert trace.rejected == {"failed": 1}


def test_what_a_model_says_unasked_is_history(tmp_path: Path, word_tokenizer: str) -> None:
    """Conversations that begin with an answer, or have two in a row, have a request for each answer to
    somebody."""
    says = [("gpt", "a"), ("human", "b c"), ("gpt", "d"), ("gpt", "e f"), ("human", "g"), ("gpt", "h")]
    talk = {"conversations": [{"from": who, "value": text} for who, text in says]}
    trace = _read(_file(tmp_path, [talk]), word_tokenizer)
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([3, 7], [1, 1])


def test_conversations_without_an_answer_are_counted(tmp_path: Path, word_tokenizer: str) -> None:
    """They hold no request, which is no error."""
    trace = _read(_file(tmp_path, [_talk("a"), _talk(), _talk("a", "b"), _talk("a", "")]), word_tokenizer)
    assert len(trace) == 1
    assert trace.rejected == {"no answer": 2, "failed": 1}


@pytest.mark.parametrize(("row", "said"), [
    ({"id": 1}, "conversations (or messages)"), ({"conversations": 3}, "Expected `array"),
    ({"conversations": [{"value": "a"}]}, "`from` and `value`"),
    ({"conversations": [{"from": "human", "value": 5}]}, "conversations"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url' has no tokens"),
])
@pytest.mark.parametrize("lines", [False, True])
def test_a_bad_conversation_is_named_or_counted(tmp_path: Path, word_tokenizer: str, row: dict[str, Any],
                                                said: str, lines: bool) -> None:
    """An error with the line on which it begins, or a counted skip where it is asked for."""
    path = _file(tmp_path, [_talk("a", "b"), row, _talk("a", "b")], lines=lines)
    with pytest.raises(UsageError) as error:
        read_trace(path, format="sharegpt", options=ReadOptions(tokenizer=word_tokenizer))
    assert str(error.value).startswith(f"{path}:{2 if lines else 15}: ")
    assert said in str(error.value)
    trace = _read(path, word_tokenizer, bad_rows="skip")
    assert (len(trace), sum(trace.rejected.values())) == (2, 1)


def test_a_file_that_is_cut_off_says_so(tmp_path: Path, word_tokenizer: str) -> None:
    """What came whole is read where bad rows are skipped."""
    path = tmp_path / "talks.json"
    text = json.dumps([_talk("a", "b"), _talk("c", "d")])
    for end in (len(text) - 1, len(text) - 8):
        path.write_text(text[:end])
        with pytest.raises(UsageError, match="cut off"):
            _read(path, word_tokenizer)
        assert len(_read(path, word_tokenizer, bad_rows="skip")) == (2 if end == len(text) - 1 else 1)


def test_a_tokenizer_is_asked_for(tmp_path: Path) -> None:
    """Lengths are tokens, so texts need the tokenizer of a model."""
    with pytest.raises(UsageError, match="give --tokenizer"):
        _read(_file(tmp_path, [_talk("a", "b")]), None)
    with pytest.raises(UsageError, match="no tokenizer at"):
        _read(_file(tmp_path, [_talk("a", "b")]), str(tmp_path / "none"))


def test_prompts_cannot_be_called_new(tmp_path: Path, word_tokenizer: str) -> None:
    """They are counted with their history, which would be added twice."""
    with pytest.raises(UsageError, match="leave out --lengths new"):
        _read(_file(tmp_path, [_talk("a", "b")]), word_tokenizer, lengths="new")
