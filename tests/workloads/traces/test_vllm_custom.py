"""The custom dataset of vLLM."""

import json
from pathlib import Path
from typing import Any

import pytest

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, open_trace, read_trace


def _file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _read(path: Path, tokenizer: str | None = None, **options: Any) -> Trace:
    return read_trace(path, format="vllm-custom", options=ReadOptions(tokenizer=tokenizer, **options))


def test_prompts_are_counted_in_order(tmp_path: Path, word_tokenizer: str) -> None:
    """By the tokenizer, without special tokens or a chat template; there are no times."""
    path = _file(tmp_path, {"prompt": "a b c d e", "output_tokens": 120}, {"prompt": "a", "output_tokens": 1})
    assert open_trace(path).format == "vllm-custom"
    trace = _read(path, word_tokenizer)
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([5, 1], [120, 1])
    assert not trace.timed


def test_a_key_may_have_the_length_of_the_prompt(tmp_path: Path) -> None:
    """Then no tokenizer is needed."""
    path = _file(tmp_path, {"prompt": "a b", "n": 7, "m": 3})
    trace = _read(path, columns={"input_len": "n", "output_len": "m"})
    assert (trace.input_len.tolist(), trace.output_len.tolist()) == ([7], [3])


@pytest.mark.parametrize(("row", "said"), [
    ({"prompt": "a"}, "--column output_len=KEY"), ({"prompt": "a", "output_tokens": None}, "output_len=KEY"),
    ({"output_tokens": 3}, "found: output_tokens; expected: prompt, output_tokens"),
    ({"prompt": 5, "output_tokens": 3}, "Expected `str`"), ({"prompt": "", "output_tokens": 3}, "0 tokens"),
    ({"prompt": "a", "output_tokens": "3"}, "Expected `int"),
    ({"prompt": "a", "output_tokens": -3}, "-3 tokens"), ({"prompt": "a", "output_tokens": 2**80}, "beyond"),
])
def test_a_bad_row_is_named_or_counted(tmp_path: Path, word_tokenizer: str, row: dict[str, Any],
                                       said: str) -> None:
    """An error of one line with file and line, or a counted skip where it is asked for."""
    good = {"prompt": "a", "output_tokens": 1}
    path = _file(tmp_path, good, row, good)
    with pytest.raises(UsageError) as error:
        _read(path, word_tokenizer)
    assert str(error.value).startswith(f"{path}:2: ")
    assert said in str(error.value)
    trace = _read(path, word_tokenizer, bad_rows="skip")
    assert (len(trace), sum(trace.rejected.values())) == (2, 1)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    """In one line, whatever the library says."""
    path = _file(tmp_path, {"prompt": "a", "output_tokens": 1})
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json is no readable tokenizer: ") as error:
        _read(path, str(tmp_path))
    assert "\n" not in str(error.value)
