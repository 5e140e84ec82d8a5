"""The proof: the recommended setting and the engine's default, each in a freshly started engine.

The search plays one engine with live knobs, on one set of arrivals, and keeps the best of many
noisy results; so its figure is too good. What is handed over was measured again, on arrivals that
the search never saw, in an engine started from the very file that is handed over.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_adapter.errors import EngineError
from engine_adapter.knobs import Knobs
from tuner.engines import EngineMaker
from tuner.ladder import Ladder
from tuner.measuring import Measured, Measurer
from tuner.progress import StudyProgress
from tuner.seeds import run_seed
from tuner.study import Study

STEPS_DOWN = 2
"""Rates below the searched capacity that are tried when it does not hold on fresh arrivals."""
RUN_FACTOR = 2.0
"""A confirming run measures this many times as long as a search run."""
_SAID = {"remote": ("setting the server as in", ""),
         "sim": ("setting the simulator as in", " in the simulator")}
"""What happens where no engine is started: a server that runs already only takes the settings."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Figures of one setting in a fresh engine. `effective` is what the engine says it obeys."""

    knobs: Knobs
    effective: Knobs | None
    runs: tuple[Measured, ...]
    note: str = ""

    @property
    def decisive(self) -> Measured | None:
        """The run that stands for it: the one that held, else the last one."""
        holding = [measured for measured in self.runs if measured.holds]
        return holding[0] if holding else (self.runs[-1] if self.runs else None)

    @property
    def holds(self) -> bool:
        """Whether some run held, under exactly the knobs asked for."""
        return self.effective == self.knobs and any(measured.holds for measured in self.runs)


class Confirmer:
    """Starts the fresh engines of a study, one after the other."""

    def __init__(self, study: Study, measurer: Measurer, maker: EngineMaker, progress: StudyProgress) -> None:
        self._study, self._measurer, self._maker, self._progress = study, measurer, maker, progress
        self._seed = run_seed(study.config.seed, "confirm")

    async def recommended(self, knobs: Knobs, rate_rps: float) -> Confirmation:
        """From recommended.yaml, at the searched rate; where it does not hold, a few steps below it."""
        self._study.write_text("recommended.yaml", self._maker.config_text(knobs))
        rates = [rate_rps]
        if self._study.config.rate_rps is None:
            ladder = Ladder(rate_rps, self._study.config.rate_step)
            rates += [ladder.rate_rps(-step) for step in range(1, STEPS_DOWN + 1)]
        return await self._fresh(knobs, self._study.recommended_config, rates, "confirm-recommended")

    async def default(self, knobs: Knobs, rate_rps: float) -> Confirmation:
        """The engine's default at the rate that was confirmed for the recommended setting."""
        self._study.write_text("default.yaml", self._maker.config_text(knobs))
        return await self._fresh(knobs, self._study.directory / "default.yaml", [rate_rps], "confirm-default")

    async def _fresh(self, knobs: Knobs, config: Path, rates: list[float], purpose: str) -> Confirmation:
        progress = self._progress
        progress.trial, progress.knobs = None, knobs
        begins, where = _SAID.get(self._study.config.server["kind"],
                                  ("starting a fresh engine from", " in a fresh engine"))
        progress.say(f"{begins} {config.name}")
        try:
            info = await self._measurer.open_config(config)
        except EngineError as error:
            return Confirmation(knobs, None, (), str(error))
        if info.knobs != knobs:
            runs_now = "settings that it does not tell" if info.knobs is None else info.knobs.label()
            return Confirmation(knobs, info.knobs, (), f"{config.name} asks for {knobs.label()}, "
                                                       f"the engine runs {runs_now}")
        runs: list[Measured] = []
        for rate in rates:
            progress.say(f"confirming{where}: {config.stem}")
            progress.rate_rps = rate
            runs += await self._measurer.measure_valid(knobs, rate, seed=self._seed, purpose=purpose,
                                                       factor=RUN_FACTOR)
            progress.last = runs[-1]
            progress.changed()
            if runs[-1].holds or runs[-1].outcome.is_bad:
                break
        return Confirmation(knobs, info.knobs, tuple(runs))


def figures(measured: Measured | None, capacity_rps: float | None) -> dict[str, Any] | None:
    """One setting's figures as recommendation.json shows them; None when it was not measured."""
    if measured is None:
        return None
    run = measured.run
    return {
        "capacity_rps": capacity_rps, "rate_rps": run.rate_rps, "run": run.directory or None,
        "holds": run.holds, "outcome": measured.outcome.value, "judgement": run.judgement,
        "figures": run.figures, "note": measured.note,
    }

