"""`tune workload formats` lists what can be read."""

import json
from pathlib import Path

import pytest

from tuner.cli import main
from workloads.traces import open_trace
from workloads.traces.formats import FORMATS, OTHER_NAMES


def shown(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    with pytest.raises(SystemExit) as left:
        main.main(["workload", "formats", *flags])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_every_format_is_listed_with_its_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Each format stands there with its fields, units and a row."""
    text = " ".join(shown(capsys).split())
    for form in FORMATS.values():
        assert f"{form.name} {' '.join(form.title.split())}" in text
        assert form.units in text


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same for programs, with units and block sizes as values."""
    found = {fact["name"]: fact for fact in json.loads(shown(capsys, "--json"))}
    assert list(found) == list(FORMATS)
    assert (found["mooncake"]["time_unit"], found["mooncake"]["block_size"]) == ("ms", 512)
    assert (found["bailian"]["time_unit"], found["bailian"]["block_size"]) == ("s", 16)
    assert found["azure"]["time_unit"] is None


@pytest.mark.parametrize(("written", "meant"), [
    ("timed_trace", "timed-trace"), ("custom", "vllm-custom"), ("Qwen-Bailian", "bailian"),
    ("OpenAI", "request-log"), ("azure_2024", "azure"), ("vidur", "csv")])
def test_formats_answer_to_the_names_that_others_give_them(tmp_path: Path, written: str, meant: str) -> None:
    """As vLLM spells them, and as their publishers call them."""
    (tmp_path / "trace").write_text("")
    assert open_trace(tmp_path / "trace", format=written).format == meant
    assert set(OTHER_NAMES.values()) <= set(FORMATS)
