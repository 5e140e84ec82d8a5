"""What may be wrong with any file of JSON rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import ReadOptions, Trace, read_trace
from workloads.traces.formats import FORMATS

_LENGTHS = {"input_length": 20, "output_length": 3}
_ROWS: dict[str, dict[str, Any]] = {
    "mooncake": {"timestamp": 1, **_LENGTHS, "hash_ids": [4]},
    "timed-trace": {"timestamp": 1, **_LENGTHS, "hash_ids": [4, 5]},
    "bailian": {"chat_id": 1, "timestamp": 1, **_LENGTHS, "hash_ids": [4, 5], "type": "text"},
    "sharegpt": {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
    "vllm-custom": {"prompt": "a", "output_tokens": 3},
    "request-log": {"timestamp": 1, "usage": {"prompt_tokens": 20, "completion_tokens": 3}},
}


def _read(path: Path, name: str, tokenizer: str, **options: Any) -> Trace:
    return read_trace(path, format=name, options=ReadOptions(tokenizer=tokenizer, **options))


@pytest.mark.parametrize("name", _ROWS)
def test_the_example_of_each_format_is_a_row_of_it(tmp_path: Path, word_tokenizer: str, name: str) -> None:
    """What `tune workload formats` shows can be read."""
    path = tmp_path / "rows.jsonl"
    path.write_text(FORMATS[name].example + "\n")
    assert len(_read(path, name, word_tokenizer)) == 1


@pytest.mark.parametrize("name", _ROWS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_line_ends_a_mark_and_packing_change_nothing(tmp_path: Path, word_tokenizer: str, name: str,
                                                     pack: Any) -> None:
    """Windows line ends, a byte order mark, blank lines, no line end at the end, and gzip."""
    line = json.dumps(_ROWS[name]).encode()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(pack(b"\xef\xbb\xbf" + line + b"\r\n\r\n" + line + b"\r\n  \n" + line))
    trace = _read(path, name, word_tokenizer)
    assert len(trace) == 3
    assert trace.rejected == {}


@pytest.mark.parametrize("name", _ROWS)
@pytest.mark.parametrize("wrong", [b"{", b"nonsense", b"[1]", b"5", b'"a"', b"{}", b"\xff\xfe", b"[" * 5000])
def test_a_line_that_is_no_row_is_named_or_counted(tmp_path: Path, word_tokenizer: str, name: str,
                                                   wrong: bytes) -> None:
    """An error of one line with file and line, or a counted skip where it is asked for."""
    line = json.dumps(_ROWS[name]).encode()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line + b"\n" + wrong + b"\n" + line + b"\n")
    with pytest.raises(UsageError) as error:
        _read(path, name, word_tokenizer)
    assert str(error.value).startswith(f"{path}:2: ")
    assert "\n" not in str(error.value)
    trace = _read(path, name, word_tokenizer, bad_rows="skip")
    assert (len(trace), trace.rejected) == (2, {"unreadable": 1})


@pytest.mark.parametrize("name", _ROWS)
def test_a_last_line_that_is_cut_off_says_so(tmp_path: Path, word_tokenizer: str, name: str) -> None:
    """It is no mistake of the format, so the message says what it may be."""
    line = json.dumps(_ROWS[name]).encode()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line + b"\n" + line[:-5])
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: .*cut off"):
        _read(path, name, word_tokenizer)
    assert len(_read(path, name, word_tokenizer, bad_rows="skip")) == 1


@pytest.mark.parametrize("name", _ROWS)
@given(data=st.data())
def test_junk_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, word_tokenizer: str, name: str,
                                 data: st.DataObject) -> None:
    """Whatever stands in a file, it is a trace or an error of one line that names it."""
    values = (st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([])
              | st.just({}))
    keys = st.sampled_from([*_ROWS[name], "timestamp", "hash_ids", "usage", "messages", "error", "status"])
    rows = st.builds(lambda changes: {**_ROWS[name], **changes}, st.dictionaries(keys, values, max_size=2))
    lines = st.lists(rows.map(json.dumps).map(str.encode) | st.binary(max_size=20), min_size=1, max_size=4)
    path = tmp_path_factory.mktemp("junk") / "rows.jsonl"
    path.write_bytes(b"\n".join(data.draw(lines)))
    refused = rows_read = None
    try:
        trace = _read(path, name, word_tokenizer, bad_rows=data.draw(st.sampled_from(["refuse", "skip"])))
        rows_read = len(trace)
    except UsageError as error:
        refused = str(error)
    assert rows_read or refused
    assert refused is None or (str(path) in refused and "\n" not in refused)
