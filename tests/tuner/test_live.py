"""What a user sees while a study runs."""

import io
from pathlib import Path

from rich.console import Console

from engine_adapter.knobs import Knobs
from tests.tuner.test_tuning import config, tune
from tuner.cli.live import StudyDisplay, time_left
from tuner.progress import StudyProgress


def watch(directory: Path, *, terminal: bool) -> str:
    """Everything a whole scripted study shows."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, height=60, color_system=None)
    with StudyDisplay(console) as display:
        display.least_pause_s = 0.0
        tune(directory, config(max_trials=3), progress=StudyProgress(on_change=display.show))
    return out.getvalue()


def test_without_a_terminal_every_event_is_one_line(tmp_path: Path) -> None:
    """A log file names each setting, each run's rate, p99 TBT and fluidity, and the best so far."""
    lines = watch(tmp_path / "s", terminal=False).splitlines()
    assert all(line.startswith("[") for line in lines)
    for part in ("starting the engine", "probing", "trial 1: analytic", "p99 TBT", "fluidity", "best so far",
                 "confirming in a fresh engine: recommended", "confirming in a fresh engine: default"):
        assert any(part in line for line in lines), part


def test_on_a_terminal_a_panel_shows_the_trial_and_the_best(tmp_path: Path) -> None:
    """Trial, knobs, last figures, incumbent and the table of trials are on the screen."""
    shown = watch(tmp_path / "s", terminal=True)
    for part in ("now: budget", "last run:", "best so far:", "of 3 settings tried", "requests done"):
        assert part in shown, part


def test_the_time_left_is_the_budgets_or_the_pace() -> None:
    """With a time budget its end is named, else what the trials so far suggest."""
    progress = StudyProgress(max_trials=4, seconds_left=90.0, knobs=Knobs(64, 16))
    assert time_left(progress, 60) == "search ends in 1.5 min at the latest"
    progress.seconds_left = None
    assert time_left(progress, 60) is None
