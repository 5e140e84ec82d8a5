"""Files are written whole, or it is said in one line why they are not."""

from pathlib import Path

import pytest

from bench.errors import OutputError
from bench.files import write_text


@pytest.mark.parametrize("name", [".", "folder", "a-file/below"])
def test_what_cannot_be_a_file_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  name: str) -> None:
    """A directory, the current one too, and a path below a file; nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "a-file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_text(Path(name), "text")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a-file", "folder"]
