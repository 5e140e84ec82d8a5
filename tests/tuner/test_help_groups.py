"""`--help` of the commands with many flags: nothing is missing, nothing is cut off."""

from typing import Any

import pytest
import typer

from tuner.cli import main
from tuner.cli.help_groups import BENCH_GROUPS, RUN_GROUPS, SIMULATE_GROUPS

COMMANDS = [("run", RUN_GROUPS), ("bench", BENCH_GROUPS), ("simulate", SIMULATE_GROUPS)]
ROOT: Any = typer.main.get_command(main.app)


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        main.main([command, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("command", "groups"), COMMANDS)
def test_every_flag_has_its_place(command: str, groups: Any) -> None:
    """A flag that is added is put into one group, and no group names one that is gone."""
    placed = [name for names in groups.values() for name in names]
    assert sorted(placed) == sorted(param.name for param in ROOT.commands[command].params)


@pytest.mark.parametrize(("command", "groups"), COMMANDS)
def test_names_are_whole_at_80_columns(
    command: str, groups: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headings come in their order, each name stands on one line, and only a name is longer than that."""
    monkeypatch.setenv("COLUMNS", "80")
    told = help_of(command, capsys)
    headings = [line.removesuffix(":") for line in told.splitlines() if line and not line.startswith(" ")]
    assert headings[1:] == [*groups, "Other"]
    for param in ROOT.commands[command].params:
        assert all(any(name in line for line in told.splitlines()) for name in param.opts)
    assert not [line for line in told.splitlines() if len(line) > 80 and not line.startswith("  --")]
