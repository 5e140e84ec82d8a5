"""`play` without the books of the prefix cache, where nothing can be found in it."""

from dataclasses import replace

from engine_adapter.simulator.load import Played, SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost


def quick_play(load: SimulatedLoad, settings: SchedulerSettings, cost: StepCost, *,
               max_concurrency: int | None = None, keep_steps: bool = True) -> Played:
    """Exactly what `play` returns, in about two thirds of its time with a prefix cache.

    Where no two prompts share a block, only a request that was preempted can find anything: its own
    blocks. Without a preemption the cache decides nothing, as cached blocks that nobody holds count as free.
    """
    if settings.prefix_caching and not (load.prefix_keys >= 0).any():
        played = play(load, replace(settings, prefix_caching=False), cost, max_concurrency=max_concurrency,
                      keep_steps=keep_steps)
        if not played.preemptions.any():
            return played
    return play(load, settings, cost, max_concurrency=max_concurrency, keep_steps=keep_steps)
