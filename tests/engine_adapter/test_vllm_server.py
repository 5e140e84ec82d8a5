"""A control block belongs to one engine at a time, and never shows what an earlier one left in it."""

import os
import sys
from pathlib import Path

import pytest

from engine_adapter import vllm_server
from engine_adapter.control_block import ControlBlock
from engine_adapter.engine_facts import facts_beside, write_facts
from engine_adapter.knobs import Knobs


def test_a_block_that_an_engine_uses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    """Two engines in one block would answer for each other."""
    ControlBlock.create(tmp_path / "block").announce(os.getpid())
    monkeypatch.setattr(sys, "argv", ["vllm_server", str(tmp_path / "block"), "--", "model"])
    with pytest.raises(SystemExit, match="2"):
        vllm_server.main()
    assert f"in use by the engine of process {os.getpid()}" in capsys.readouterr().err


def test_what_a_dead_engine_left_is_replaced(tmp_path: Path) -> None:
    """Its settings, its steps and its facts are gone; whoever still maps the old file keeps it."""
    path = tmp_path / "block"
    old = ControlBlock.create(path)
    old.announce(1 << 30)
    old.report(Knobs(64, 8), 3)
    write_facts(facts_beside(path), {"old": True})
    assert vllm_server.user_of(path) is None
    fresh = ControlBlock.attach(path)
    assert (fresh.plugin_pid, fresh.applied_version) == (0, 0)
    assert not facts_beside(path).exists()
    assert old.applied_version == 3


def test_a_fresh_block_stays_as_it_is(tmp_path: Path) -> None:
    """Whoever starts the server has mapped it already."""
    path = tmp_path / "block"
    ours = ControlBlock.create(path)
    assert vllm_server.user_of(path) is None
    ControlBlock.attach(path).announce(7)
    assert ours.plugin_pid == 7


def test_a_missing_block_is_made(tmp_path: Path) -> None:
    """Nothing has to exist before a server is started by hand."""
    assert vllm_server.user_of(tmp_path / "block") is None
    assert ControlBlock.attach(tmp_path / "block").plugin_pid == 0
