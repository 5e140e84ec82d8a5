"""Files are written whole, or it is said in one line why they are not."""

import os
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


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path: Path) -> None:
    """What a link points to is written, and what reads a pipe gets the text; neither becomes a file."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
