"""Model names: what is passed on, and what is refused in one line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.models import (
    BUNDLED_MODEL,
    bundled_model_path,
    cache_dir,
    checkpoint_problem,
    resolve_model,
)
from workloads.errors import UsageError


@pytest.fixture
def checkpoint(tmp_path):
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"data_offsets": [0, 6]}}).encode()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(6))
    return tmp_path


def test_directory_with_a_whole_checkpoint_is_taken(checkpoint):
    """A directory that holds a configuration, with whole weights or none, is given to vLLM."""
    assert resolve_model(str(checkpoint)) == str(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    assert resolve_model(str(checkpoint)) == str(checkpoint)


@pytest.mark.parametrize("name", ["org/name", "Qwen/Qwen3-0.6B", "gpt2"])
def test_hub_names_pass_as_they_are(name):
    """What looks like a hub name and is no local path is left to vLLM."""
    assert resolve_model(name) == name


@pytest.mark.parametrize("name", ["/no/such/place", "./here", "a/b/c", "", "~/nothing here", "../up"])
def test_missing_paths_are_refused(name):
    """What can only be a path, and does not exist, is one line that says what can be given."""
    with pytest.raises(UsageError, match=r"^no such model directory: .*config\.json") as refusal:
        resolve_model(name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("file", "content", "reason"), [
    ("config.json", b"{", "cannot be read"),
    ("config.json", b"[]", "not a JSON object"),
    ("config.json", None, "no config.json"),
    ("model.safetensors", b"", "cut short"),
    ("model.safetensors", b"\xff" * 20, "cut short"),
    ("model.safetensors", b"\x02\0\0\0\0\0\0\0[]", "cut short"),
])
def test_broken_checkpoints_are_refused(checkpoint, file, content, reason):
    """A missing or broken configuration and damaged weights are told before an engine starts."""
    (checkpoint / file).unlink()
    if content is not None:
        (checkpoint / file).write_bytes(content)
    with pytest.raises(UsageError, match=reason) as refusal:
        resolve_model(str(checkpoint))
    assert "\n" not in str(refusal.value)


@given(cut=st.integers(min_value=0, max_value=200))
def test_weights_cut_anywhere_are_noticed(tmp_path_factory, cut):
    """However many bytes are missing at the end, the file is not taken for whole."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text("{}")
    header = json.dumps({"w": {"data_offsets": [0, 150]}}).encode()
    whole = len(header).to_bytes(8, "little") + header + bytes(150)
    (folder / "model.safetensors").write_bytes(whole[: len(whole) - min(cut, len(whole))])
    assert (checkpoint_problem(folder) is None) == (cut == 0)


def test_a_file_is_no_model(checkpoint):
    """A file in the place of the directory is refused by name."""
    with pytest.raises(UsageError, match="is not a directory"):
        resolve_model(str(checkpoint / "model.safetensors"))


def test_bundled_name_stands_for_the_cached_checkpoint(checkpoint, monkeypatch):
    """The bundled model's name leads to the user's cache, or to the command that fills it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkpoint / "cache"))
    with pytest.raises(UsageError, match="make setup"):
        resolve_model(BUNDLED_MODEL)
    bundled_model_path().mkdir(parents=True)
    (bundled_model_path() / "config.json").write_text("{}")
    assert resolve_model(BUNDLED_MODEL) == str(checkpoint / "cache" / "stallfree" / BUNDLED_MODEL)


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_cache_ignores_an_empty_or_relative_variable(monkeypatch, tmp_path, value):
    """XDG_CACHE_HOME counts only when it is absolute, as its specification says."""
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "stallfree"
