"""What passes around the steps: between two of them, before a request's first and after each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench import NEVER, Run
from bench.delivery import delivery_delays_ns
from engine_adapter.simulator.step_cost import StepCost
from tuner.calibration.fit import predicted_ns, robust
from tuner.calibration.observed import LEAST_OF_A_KIND, Float64, ObservedSteps


@dataclass(frozen=True, slots=True)
class Delays:
    """Fields of StepCost under their names there, and sentences about what could not be measured."""

    host_ns: float
    host_request_ns: float
    arrival_ns: float
    arrival_token_ns: float
    delivery_ns: float
    warnings: tuple[str, ...] = ()

    def added_to(self, device: StepCost) -> StepCost:
        """The cost with them."""
        return replace(device, host_ns=self.host_ns, host_request_ns=self.host_request_ns,
                       arrival_ns=self.arrival_ns, arrival_token_ns=self.arrival_token_ns,
                       delivery_ns=self.delivery_ns)


def fit_delays(runs: Sequence[Run], observed: ObservedSteps, device: StepCost) -> Delays:
    """The delays of `runs`, whose steps are `observed` and cost `device`. A run that is invalid had a late
    client, or was cut short: its steps count, its requests' delays do not."""
    host_ns, host_request_ns = _host(observed, device)
    sound = [run for run in runs if run.validity.valid]
    arrival_ns, arrival_token_ns, warnings = _arrival(sound)
    delivered = [delays for run in sound if (delays := delivery_delays_ns(run)) is not None]
    if not delivered:
        warnings += ("no run is valid: the way from a step to the client counts as 0",)
    delivery_ns = float(np.median(np.concatenate(delivered))) if delivered else 0.0
    return Delays(host_ns, host_request_ns, arrival_ns, arrival_token_ns, delivery_ns, warnings)


def _host(observed: ObservedSteps, device: StepCost) -> tuple[float, float]:
    """Nanoseconds between steps, at all and for each request of the later one."""
    if observed.asynchronous:
        # After idle time nothing hides it.
        bare = observed.took_ns - predicted_ns(observed, device)
        seen = bare[observed.after_idle]
        return (max(float(np.median(seen)), 0.0) if len(seen) else 0.0), 0.0
    known = ~np.isnan(observed.gap_ns)
    return _line((observed.chunks + observed.decodes)[known], observed.gap_ns[known])


def _arrival(runs: Sequence[Run]) -> tuple[float, float, tuple[str, ...]]:
    """From sending to the first step, of requests that found the engine idle."""
    seen = [_idle_arrivals(run) for run in runs]
    lengths = np.concatenate([np.zeros(0), *(length for length, _ in seen)])
    delays = np.concatenate([np.zeros(0), *(delay for _, delay in seen)])
    if not len(delays):
        return 0.0, 0.0, ("no request found the engine idle: the way to its queue counts as 0; add a run at "
                          "a low rate",)
    return (*_line(lengths, delays), ())


def _idle_arrivals(run: Run) -> tuple[Float64, Float64]:
    """Prompt length and delay of the requests whose first step began after idle time."""
    numbers, first_ns = run.steps.first_scheduled()
    starts, ends = run.steps.steps["start_ns"], run.steps.steps["end_ns"]
    row_of = {number: row for row, number in enumerate(run.index.tolist())}
    earliest: dict[int, tuple[int, int]] = {}
    for number, first in zip(numbers.tolist(), first_ns.tolist(), strict=True):
        row = row_of.get(number)
        if row is None or run.sent_ns[row] == NEVER:
            continue
        step = int(np.searchsorted(starts, first))
        sent = int(run.sent_ns[row])
        if sent <= first and (step == 0 or ends[step - 1] <= sent):
            # Of several in a step the first woke the engine.
            earliest[step] = min(earliest.get(step, (sent, row)), (sent, row))
    rows = np.array([row for _, row in earliest.values()], dtype=np.int64)
    delays = np.array([int(starts[step]) - sent for step, (sent, _) in earliest.items()], dtype=np.float64)
    return run.input_len[rows].astype(np.float64), delays


def _line(at: Float64 | np.ndarray, values: Float64) -> tuple[float, float]:
    """Non-negative constant and slope; few values, or values at one place, give their median alone."""
    if len(values) < LEAST_OF_A_KIND or at.min() == at.max():
        return (max(float(np.median(values)), 0.0) if len(values) else 0.0), 0.0
    columns = np.column_stack([np.ones(len(values)), at.astype(np.float64)])
    constant, slope = robust(columns, np.maximum(values, 1.0), relative=False).tolist()
    return constant, slope
