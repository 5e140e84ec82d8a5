"""`tune workload formats` lists what can be read."""

import json

import pytest

from tuner.cli import main
from workloads.traces.formats import FORMATS


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
