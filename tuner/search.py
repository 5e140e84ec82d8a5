"""The search: which settings are tried, at which rates, and when it ends."""

import math
from collections.abc import Callable, Sequence

from engine_adapter.clock import Clock
from engine_adapter.knobs import Knobs
from tuner.ladder import Ladder, highest_level
from tuner.measuring import Measured, Measurer
from tuner.progress import StudyProgress
from tuner.run_length import lowest_rate_rps, wall_seconds
from tuner.sampler import Proposal, Proposals
from tuner.seeds import run_seed
from tuner.study import Study
from tuner.trial import TrialRecord

_MAX_RUNS = 9
"""Runs that one setting may take to find its capacity."""
_HIGHEST = 60
_SCOUT_STRIDE = 3
"""Levels between the rates at which the scouts are played."""
_THROUGHPUT_STEP = 0.02
"""At a fixed rate throughput decides; settings within this share of each other are told apart by TTFT."""
FIXED_RATE_TIE = 5e-4
"""Tolerance for ties of `_fixed_rate_value`: about a tenth of a second of TTFT."""


class Search:
    """Runs trials until the study has enough of them, or its time is up.

    A challenger is first played at the rate of the best setting so far: it must hold there before
    its own capacity is sought, so most challengers cost one run. The engine's default is followed
    downwards too. Before the first trial a rate is sought at which one of the scouts, the most
    promising settings, holds; their runs are not played again in their trials.
    """

    def __init__(
        self, study: Study, measurer: Measurer, proposals: Proposals, *, progress: StudyProgress,
        clock: Clock, deadline_ns: int | None, first: Sequence[tuple[Knobs, str]],
        on_trial: Callable[[], None],
    ) -> None:
        """`first` are the settings to try before the sampler is asked, with their sources; the first
        two of them scout. `deadline_ns` on the clock: no run starts that would not end before it."""
        self._first = first
        self._scouted: dict[tuple[Knobs, int], list[Measured]] = {}
        for saved in study.state.scouts:
            key = Knobs.from_dict(saved["knobs"]), saved["level"]
            self._scouted.setdefault(key, []).append(Measured.from_dict(saved["measured"]))
        self._study, self._measurer, self._proposals = study, measurer, proposals
        self._progress, self._clock, self._deadline_ns = progress, clock, deadline_ns
        self._on_trial = on_trial
        base = study.state.base_rate_rps
        assert base is not None
        self._ladder = Ladder(base, study.config.rate_step)
        self._lowest = self._ladder.lowest_level(lowest_rate_rps(study.config))
        self._seed = run_seed(study.config.seed, "search")

    async def run(self) -> None:
        """Try settings until the budget of trials or time is spent, or none is left."""
        if self._study.config.rate_rps is None and self._study.state.first_level is None:
            await self._scout()
        while len(self._proposals.finished()) < self._study.config.max_trials and self._time_for_a_run():
            self._queue_next()
            proposal = self._proposals.ask()
            if proposal is None:
                break
            record = await self._try(proposal)
            if record is None:
                break
            self._proposals.tell(proposal, record)
            self._progress.records = self._proposals.finished()
            self._progress.incumbent = self._proposals.best()
            self._study.save()
            self._on_trial()

    def _queue_next(self) -> None:
        """What was interrupted comes first, then the first settings, then in turn a neighbour of the best
        and whatever the sampler proposes."""
        if self._proposals.has_queued or any(self._proposals.enqueue(*setting) for setting in self._first):
            return
        best = self._proposals.best()
        if best is not None and len(self._proposals.finished()) % 2:
            self._proposals.enqueue_near(best.knobs)

    async def _scout(self) -> None:
        """Go down from the first rate until one of the scouts holds; that is where challengers start."""
        level = max(0, self._lowest)
        while not await self._scouts_hold(level) and level > self._lowest and self._time_for_a_run():
            level = max(level - _SCOUT_STRIDE, self._lowest)
        self._study.state.first_level = level
        self._study.save()

    async def _scouts_hold(self, level: int) -> bool:
        for knobs in [knobs for knobs, _ in self._first[:2]]:
            if not self._time_for_a_run():
                return False
            if (knobs, level) not in self._scouted:
                self._progress.trial, self._progress.knobs = None, knobs
                self._progress.say(f"looking for a rate to start from: {knobs.label()}")
                self._progress.rate_rps = self._ladder.rate_rps(level)
                runs = await self._measurer.measure_valid(
                    knobs, self._ladder.rate_rps(level), seed=self._seed, purpose="scout")
                self._scouted[knobs, level] = runs
                self._study.state.scouts += [
                    {"knobs": knobs.as_dict(), "level": level, "measured": run.as_dict()} for run in runs]
                self._study.save()
                self._progress.last = runs[-1]
                self._progress.changed()
            if self._scouted[knobs, level][-1].holds:
                return True
        return False

    async def _try(self, proposal: Proposal) -> TrialRecord | None:
        """The record of one setting; None when time ran out before its first run."""
        number = len(self._proposals.finished())
        self._progress.trial, self._progress.knobs = number, proposal.knobs
        self._progress.say(f"trial {number + 1}: {proposal.source}")
        trial = _Trial(self, proposal.knobs, number)
        trial.runs += [run for (knobs, _), runs in self._scouted.items() if knobs == proposal.knobs
                       for run in runs]
        began_ns = self._clock.now_ns()
        if self._study.config.rate_rps is not None:
            await trial.play(self._study.config.rate_rps)
            best = None
        else:
            best = await self._capacity(trial, proposal.source)
        if not trial.runs:
            return None
        decisive = trial.decisive(best)
        return TrialRecord(
            number=number, knobs=proposal.knobs, source=proposal.source, outcome=decisive.outcome,
            capacity_rps=None if best is None else self._ladder.rate_rps(best),
            value=_fixed_rate_value(decisive) if self._study.config.rate_rps is not None else None,
            runs=tuple(measured.run for measured in trial.runs), constraints=decisive.constraints,
            seconds=(self._clock.now_ns() - began_ns) / 1e9, note=decisive.note or trial.failure_note(),
        )

    async def _capacity(self, trial: "_Trial", source: str) -> int | None:
        incumbent = self._proposals.best()
        first = self._study.state.first_level or 0
        start = max(first if incumbent is None else self._level_of(incumbent), self._lowest)
        return await highest_level(
            trial.holds_at, start=start, floor=self._lowest, ceiling=_HIGHEST, max_runs=_MAX_RUNS,
            downwards=source == "default",
        )

    def _level_of(self, record: TrialRecord) -> int:
        assert record.capacity_rps is not None
        return min(range(self._lowest, _HIGHEST + 1),
                   key=lambda level: abs(self._ladder.rate_rps(level) - (record.capacity_rps or 0.0)))

    def _time_for_a_run(self) -> bool:
        config = self._study.config
        if self._deadline_ns is None:
            return True
        self._progress.seconds_left = max(0.0, (self._deadline_ns - self._clock.now_ns()) / 1e9)
        return self._progress.seconds_left > wall_seconds(
            config, config.run_seconds + config.warmup_seconds + 2.0)


class _Trial:
    """The runs of one setting."""

    def __init__(self, search: Search, knobs: Knobs, number: int) -> None:
        self._search, self._knobs, self._number = search, knobs, number
        self.runs: list[Measured] = []
        self._by_level: dict[int, Measured] = {}

    async def holds_at(self, level: int) -> bool | None:
        """Play one run at a level of the ladder; None when the setting cannot be judged further."""
        if (scouted := self._search._scouted.get((self._knobs, level))) is not None:
            measured = scouted[-1]
        elif self._search._time_for_a_run():
            measured = await self.play(self._search._ladder.rate_rps(level))
        else:
            return None
        self._by_level[level] = measured
        return None if measured.outcome.is_bad else measured.holds

    async def play(self, rate_rps: float) -> Measured:
        """One valid run, or the second invalid one."""
        search = self._search
        search._progress.rate_rps = rate_rps
        self.runs += await search._measurer.measure_valid(
            self._knobs, rate_rps, seed=search._seed, purpose=f"trial-{self._number:02d}")
        search._progress.last = self.runs[-1]
        search._progress.changed()
        return self.runs[-1]

    def decisive(self, best: int | None) -> Measured:
        """The run that stands for the setting: at its capacity; else a failure; else the lowest rate."""
        if best is not None:
            return self._by_level[best]
        if bad := self._failures():
            return bad[-1]
        judged = [measured for measured in self.runs if not measured.outcome.is_bad]
        return min(judged, key=lambda measured: measured.run.rate_rps)

    def failure_note(self) -> str:
        """What went wrong at a higher rate, for a setting that held at a lower one."""
        return "; ".join(f"at {m.run.rate_rps:g} req/s: {m.outcome}: {m.note}" for m in self._failures())

    def _failures(self) -> list[Measured]:
        """Runs that could not be judged, repeated ones left out."""
        judged = {m.run.rate_rps for m in self.runs if not m.outcome.is_bad}
        return [m for m in self.runs if m.outcome.is_bad and m.run.rate_rps not in judged]


def _fixed_rate_value(measured: Measured) -> float | None:
    """Throughput in steps of 2 %, then a fraction below one that falls with the median TTFT."""
    throughput = measured.run.figures.get("output_throughput")
    ttft_ms = measured.run.figures.get("median_ttft_ms")
    if throughput is None or ttft_ms is None:
        return None
    return math.floor(math.log(max(throughput, 1.0)) / math.log1p(_THROUGHPUT_STEP)) + 1 / (1 + ttft_ms / 1e3)
