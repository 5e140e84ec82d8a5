"""The capacity of many settings at once, simulated in several processes."""

import itertools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from bench import Deadlines, Run, summarise, sustainable
from bench.simulated import simulate_run, simulated_curve
from engine_adapter.knobs import Knobs
from tuner.probe import probe_lengths
from tuner.simulation import SimulationTarget
from tuner.slo import Judgement, Slo
from workloads import Plan, UsageError


@dataclass(frozen=True, slots=True)
class GridRun:
    """One setting under one plan."""

    rate_rps: float
    holds: bool
    """Valid, every objective met, load sustainable, as in a search on an engine."""
    why_not: str
    """The worst of what does not hold; empty where all does."""


@dataclass(frozen=True, slots=True)
class SettingCapacity:
    """What one setting carries, and the runs that show it, in the order of their rates."""

    knobs: Knobs
    capacity_rps: float | None
    """The highest of the rates that was found to hold; None where none was."""
    runs: tuple[GridRun, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    target: SimulationTarget
    plans: tuple[Plan, ...]
    slo: Slo
    deadlines: Deadlines | None
    rule: str
    every_rate: bool


def capacity_grid(
    target: SimulationTarget, settings: Sequence[Knobs], plans: Sequence[Plan], slo: Slo, *,
    deadlines: Deadlines | None = None, rule: str = "vllm-v1", every_rate: bool = False, workers: int = 2,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[SettingCapacity]:
    """What each of `settings` carries of `plans`, whose rates rise; in the order of the settings.

    Of each setting the highest rate that holds is sought by halving, as what holds at a rate is taken to
    hold below it; `every_rate` plays all plans instead. `deadlines` are the readers' where an objective
    needs them, as `reader_deadlines` makes them. Several `workers` are processes, which import the main
    module of the caller again. `on_progress` is called with the settings done and their number.
    UsageError for rates that do not rise and settings that are not simulated.
    """
    rates = [plan.rate_rps for plan in plans]
    if not rates or any(low >= high for low, high in itertools.pairwise(rates)):
        raise UsageError(f"the rates of a grid rise from plan to plan; got {', '.join(map(str, rates))}")
    from engine_adapter.simulator.state_arrays import check_supported  # only now, as it loads the compiler

    for knobs in settings:
        check_supported(target.settings(knobs, rule=rule))
    question = _Question(target, tuple(plans), slo, deadlines, rule, every_rate)
    found = []
    for capacity in _answers(question, settings, min(workers, len(settings))):
        found.append(capacity)
        if on_progress is not None:
            on_progress(len(found), len(settings))
    return found


def reader_deadlines(target: SimulationTarget, longest_prompt: int, *, decode_deadline_ms: float,
                     prefill_slack_ms: float) -> Deadlines | None:
    """Of lone prompts up to `longest_prompt` on the default settings; None where none fits."""
    curve = simulated_curve(target.settings(target.default_knobs), target.cost, probe_lengths(longest_prompt),
                            info=target.info(target.default_knobs))
    return None if curve is None else Deadlines(curve, round(prefill_slack_ms * 1e6),
                                                round(decode_deadline_ms * 1e6))


def _answers(question: _Question, settings: Sequence[Knobs], workers: int) -> Iterator[SettingCapacity]:
    if workers <= 1:
        yield from (_capacity(question, knobs) for knobs in settings)
        return
    # Not forked: a process with threads must not be.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_ask, initargs=(question,)) as pool:
        yield from pool.map(_answer, settings)


_asked: list[_Question] = []
"""Of a worker process: what it is there for."""


def _ask(question: _Question) -> None:
    _asked.append(question)


def _answer(knobs: Knobs) -> SettingCapacity:
    return _capacity(_asked[-1], knobs)


def _capacity(question: _Question, knobs: Knobs) -> SettingCapacity:
    runs: dict[int, GridRun] = {}
    if question.every_rate:
        runs = {at: _play(question, knobs, plan) for at, plan in enumerate(question.plans)}
    holding, failing = -1, len(question.plans)
    while failing - holding > 1 and not question.every_rate:
        at = (holding + failing) // 2
        runs[at] = _play(question, knobs, question.plans[at])
        if runs[at].holds:
            holding = at
        else:
            failing = at
    held = [run.rate_rps for run in runs.values() if run.holds]
    return SettingCapacity(knobs, max(held, default=None), tuple(runs[at] for at in sorted(runs)))


def _play(question: _Question, knobs: Knobs, plan: Plan) -> GridRun:
    target = question.target
    run = simulate_run(plan, target.settings(knobs, rule=question.rule), target.cost)
    judgement = question.slo.judge(summarise(run, deadlines=question.deadlines))
    why_not = _why_not(run, judgement, question.deadlines)
    return GridRun(plan.rate_rps, not why_not, why_not)


def _why_not(run: Run, judgement: Judgement, deadlines: Deadlines | None) -> str:
    if not run.validity.valid:
        return run.validity.reasons[0]
    if not judgement.holds:
        worst = judgement.worst()
        return worst.why or f"{worst.objective} is missed"
    load = sustainable(run, deadlines)
    return "" if load.sustainable else load.reasons[0]
