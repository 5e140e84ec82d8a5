"""Bringing a hardware sheet to what a run showed, with at most three constants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine_adapter.simulator.sheets.hardware import Hardware, adjusted
from engine_adapter.simulator.sheets.models import Model
from engine_adapter.simulator.sheets.roofline import roofline_cost
from workloads.errors import UsageError

CONSTANTS = ("fixed_ns", "mfu", "bandwidth", "cache_bandwidth", "launch_us")
"""What may be fitted, at most three at a time; see `adjusted`."""
_BOUNDS = {"fixed_ns": (1e3, 1e9), "launch_us": (1e-2, 1e4), "mfu": (1e-3, 1.0),
           "bandwidth": (1e8, 1e14), "cache_bandwidth": (1e8, 1e14)}


@dataclass(frozen=True, slots=True)
class StepSample:
    """A step that was observed: (tokens, prefix) of its chunks, contexts of its decodes."""

    chunks: tuple[tuple[int, int], ...]
    decode_contexts: tuple[int, ...]
    observed_ns: float

    @property
    def num_tokens(self) -> int:
        return sum(tokens for tokens, _ in self.chunks) + len(self.decode_contexts)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A sheet with fitted constants."""

    hardware: Hardware
    constants: dict[str, float]
    errors: tuple[float, ...]
    """Predicted over observed, less 1, in the order of what was observed."""

    @property
    def mape(self) -> float:
        """Mean of the absolute errors."""
        return float(np.mean(np.abs(self.errors)))


def fit_constants(hardware: Hardware, predict: Callable[[Hardware], npt.ArrayLike],
                  observed: npt.ArrayLike, *, free: Sequence[str] = CONSTANTS[:3]) -> Fitted:
    """The sheet with the `free` constants that bring `predict(sheet)` closest to `observed`: both of one
    shape, in any unit, positive. Closest is the least sum of squared logarithms of their ratio, found
    by the Nelder-Mead simplex from the sheet's own values. UsageError for other names or shapes."""
    from scipy.optimize import minimize

    seen = np.asarray(observed, dtype=np.float64)
    if not 1 <= len(set(free)) == len(free) <= 3 or set(free) - set(CONSTANTS):
        raise UsageError(f"free constants must be one to three of {', '.join(CONSTANTS)}; "
                         f"got {', '.join(free) or 'none'}")
    if not seen.size or np.any(seen <= 0):
        raise UsageError("there is nothing to fit: observations must be positive")
    own = {"fixed_ns": max(hardware.step_us * 1e3, 1e5), "launch_us": max(hardware.launch_us, 1.0),
           "mfu": hardware.computing("bf16").gemm_share,
           "bandwidth": hardware.bytes_per_ns * 1e9, "cache_bandwidth": hardware.cache_bytes_per_ns * 1e9}

    def sheet(logarithms: npt.NDArray[np.float64]) -> tuple[Hardware, dict[str, float]]:
        values = {name: float(np.clip(np.exp(value), *_BOUNDS[name]))
                  for name, value in zip(free, logarithms, strict=True)}
        return adjusted(hardware, **values), values

    def miss(logarithms: npt.NDArray[np.float64]) -> float:
        ratio = np.log(np.asarray(predict(sheet(logarithms)[0])) / seen)
        return float(np.sum(ratio * ratio))

    start = np.log([own[name] for name in free])
    simplex = np.vstack([start, start + np.eye(len(free)) * np.log(1.5)])
    best = minimize(miss, start, method="Nelder-Mead",
                    options={"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-9, "maxiter": 400})
    fitted, constants = sheet(best.x)
    errors = np.asarray(predict(fitted)) / seen - 1
    return Fitted(fitted, constants, tuple(float(error) for error in errors.ravel()))


def fit_steps(hardware: Hardware, model: Model, samples: Sequence[StepSample], *,
              free: Sequence[str] = CONSTANTS[:3], **layout: Any) -> Fitted:
    """The same for durations of steps; `layout` as in `roofline_cost`."""
    most = max((sample.num_tokens for sample in samples), default=1)

    def predict(sheet: Hardware) -> list[float]:
        cost = roofline_cost(sheet, model, most_tokens=most, **layout)
        return [cost.step_ns(sample.num_tokens, sample.chunks, sample.decode_contexts) for sample in samples]

    return fit_constants(hardware, predict, [sample.observed_ns for sample in samples], free=free)
