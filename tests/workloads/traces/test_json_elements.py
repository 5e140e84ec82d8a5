"""JSON arrays taken apart without reading them whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import json_elements as module
from workloads.traces.json_elements import json_elements

_JSON = st.recursive(
    (st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[],\n €')
     | st.floats(allow_nan=False)),
    lambda inner: (st.lists(inner, max_size=3)
                   | st.dictionaries(st.text(alphabet='a"\\{]'), inner, max_size=3)),
    max_leaves=8)


@given(st.lists(st.dictionaries(st.text(max_size=3), _JSON, max_size=3), max_size=6), st.integers(4, 40),
       st.sampled_from([None, 1]), st.booleans())
def test_objects_come_as_they_were_written(
        tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], block: int, indent: int | None,
        bom: bool) -> None:
    """Whatever stands in their texts, however they are laid out, and wherever the blocks of reading end."""
    path = tmp_path_factory.mktemp("array") / "rows.json"
    text = json.dumps(rows, indent=indent, ensure_ascii=False)
    path.write_text(text, encoding="utf-8-sig" if bom else "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        elements = list(json_elements(path))
    assert [json.loads(element.data) for element in elements] == rows
    lines = text.split("\n")
    assert all(element.data.split(b"\n")[0].decode() in lines[element.line - 1] for element in elements)
    assert not any(element.cut for element in elements)


@pytest.mark.parametrize(("text", "line", "data"), [
    ('[{"a": 1},\n{"b": "x', 2, b'{"b": "x'), ('[{"a": 1},\n{"b": {', 2, b'{"b": {'),
    ('[{"a": 1}\n,', 2, b""), ('[{"a": 1}', 1, b""),
])
def test_an_array_that_is_cut_off_says_where(tmp_path: Path, text: str, line: int, data: bytes) -> None:
    """The objects before are handed over, and one more that is marked as cut."""
    path = tmp_path / "rows.json"
    path.write_text(text)
    first, last = json_elements(path)
    assert (first.data, first.cut) == (b'{"a": 1}', False)
    assert (last.line, last.data, last.cut) == (line, data, True)


@pytest.mark.parametrize("text", ['[1]', '[{}\n}', '[{}] {}', '{"a": []}', '[{}, "x"]', '[[]]', 'x'])
def test_what_is_no_array_of_objects_is_refused(tmp_path: Path, text: str) -> None:
    """With file and line: what follows could not be told apart."""
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"rows\.json:\d: "):
        list(json_elements(path))


def test_an_object_without_end_is_not_read_into_memory(tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """An error says so once it is longer than any row can be."""
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(module, "BLOCK_BYTES", 100)
    path = tmp_path / "rows.json"
    path.write_text('[{"a": "' + "x" * 5000 + '"}]')
    with pytest.raises(UsageError, match=r"rows\.json:1: an object of more than"):
        list(json_elements(path))
