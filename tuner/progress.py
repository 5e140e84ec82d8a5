"""What a study is doing now, for whoever shows it; the study only writes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bench import Progress
from engine_adapter.knobs import Knobs
from tuner.measuring import Measured
from tuner.trial import TrialRecord


@dataclass(slots=True)
class StudyProgress:
    """The live picture of a study. `on_change` is called after every change and must return at once."""

    phase: str = ""
    """What happens now, in words."""
    max_trials: int = 0
    trial: int | None = None
    knobs: Knobs | None = None
    rate_rps: float | None = None
    run: Progress | None = None
    last: Measured | None = None
    records: list[TrialRecord] = field(default_factory=list)
    incumbent: TrialRecord | None = None
    seconds_left: float | None = None
    """Of the time budget, None without one."""
    on_change: Callable[["StudyProgress"], None] | None = None

    def say(self, phase: str) -> None:
        """A new phase; what belonged to the last run is forgotten."""
        self.phase, self.run, self.rate_rps = phase, None, None
        self.changed()

    def on_run(self, run: Progress) -> None:
        """From bench.play, at most four times a second."""
        self.run = run
        self.changed()

    def changed(self) -> None:
        """Tell whoever shows it."""
        if self.on_change is not None:
            self.on_change(self)
