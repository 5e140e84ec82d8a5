"""Knobs in, steps out: nothing is lost, mixed up or invented between two processes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.control_block import ControlBlock
from engine_adapter.knobs import Knobs
from engine_adapter.step_log import STEP_COLUMNS


def _pair(path: Path) -> tuple[ControlBlock, ControlBlock]:
    ours = ControlBlock.create(path / "control")
    return ours, ControlBlock.attach(path / "control")


def _step(number: int) -> tuple[int, ...]:
    return (number, *range(number, number + len(STEP_COLUMNS) - 1))


def test_asked_knobs_arrive_once_and_the_answer_comes_back(tmp_path: Path) -> None:
    """The scheduler sees each change once, and what it reports is what we read."""
    ours, theirs = _pair(tmp_path)
    assert theirs.asked_since(0) is None
    knobs = Knobs(512, 16, 128, True, "priority")
    version = ours.ask(knobs)
    assert theirs.asked_since(0) == (version, knobs)
    assert theirs.asked_since(version) is None
    theirs.report(knobs, version)
    assert (ours.applied_version, ours.effective()) == (version, knobs)


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_every_step_is_read_once(tmp_path_factory: pytest.TempPathFactory, batches: list[int]) -> None:
    """However writing and reading alternate, the steps come out whole, in order and once."""
    ours, theirs = _pair(tmp_path_factory.mktemp("block"))
    written, read = 0, []
    for count in batches:
        for _ in range(count):
            theirs.write_step(_step(written), [(written, 7, 3, 0)] * (written % 3))
            written += 1
        log = ours.read_steps()
        assert log.lost == 0
        assert len(log.chunks["step"]) == sum(s % 3 for s in log.steps["step"].tolist())
        read += log.steps["step"].tolist()
    assert read == list(range(written))


def test_overwritten_steps_are_counted_as_lost(tmp_path: Path) -> None:
    """A reader that comes too late gets the newest steps and the number it missed, never a mixture."""
    ours, theirs = _pair(tmp_path)
    for number in range(40_000):
        theirs.write_step(_step(number), [])
    log = ours.read_steps()
    assert log.lost + len(log) == 40_000
    assert log.steps["step"].tolist() == list(range(log.lost, 40_000))
    assert np.array_equal(log.steps["end_ns"], log.steps["step"] + 1)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    """Attaching to something else is an error, not garbage knobs."""
    path = tmp_path / "control"
    ControlBlock.create(path)
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(ValueError, match="not a control block"):
        ControlBlock.attach(path)


def test_prefix_counts_are_unknown_until_somebody_counts(tmp_path: Path) -> None:
    """Nobody's count is None, not 0; then it is what the scheduler said last."""
    ours, theirs = _pair(tmp_path)
    assert ours.prefix_counts() is None
    theirs.count_prefixes(0, 0)
    assert ours.prefix_counts() == (0, 0)
    theirs.count_prefixes(500, 320)
    assert ours.prefix_counts() == (500, 320)
