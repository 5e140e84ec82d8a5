"""Compile the simulator once, so that no command has to wait for it:

    python -m engine_adapter.simulator.precompile
"""

import numpy as np

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.scheduler import Scheduler
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost


def precompile() -> None:
    """Play one request each way under vllm-v1; numba keeps what it compiles beside the sources, or in the
    user's cache where these cannot be written to."""
    settings = SchedulerSettings(token_budget=16, max_seqs=2, max_model_len=64, num_kv_blocks=8)
    four = np.full(1, 4)
    play(SimulatedLoad(arrival_ns=four, input_len=four, output_len=four), settings,
         StepCost.linear(fixed_ns=1.0, token_ns=1.0), max_concurrency=1)
    scheduler = Scheduler(settings)
    scheduler.abort(scheduler.add(4, 4))
    scheduler.add(4, 4)
    while scheduler.has_work:
        scheduler.update(scheduler.schedule())


if __name__ == "__main__":
    precompile()
