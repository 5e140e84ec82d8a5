"""A StepCost as numba takes it: two arrays, and the functions that read them, compiled."""

from typing import NamedTuple

import numpy as np
from numba import njit

from engine_adapter.simulator import cost_formulas
from engine_adapter.simulator.cost_formulas import Float64
from engine_adapter.simulator.step_cost import StepCost


class CostArrays(NamedTuple):
    """float64 arrays in C order that a compiled function may take."""

    linear_ns: Float64
    """By the tokens of the step, as far as was asked for."""
    terms: Float64
    """In the order of cost_formulas.TERMS."""


def cost_arrays(cost: StepCost, most_tokens: int) -> CostArrays:
    """The arrays of `cost` for steps of up to `most_tokens` tokens at least."""
    return CostArrays(np.array(cost_formulas.extended(cost.linear_ns, most_tokens)), cost.terms())


chunk_attention_ns = njit(cache=True)(cost_formulas.chunk_attention_ns)
step_ns = njit(cache=True)(cost_formulas.step_ns)
