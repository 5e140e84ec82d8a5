"""The form of a step's cost before its numbers are known: where its table bends and jumps, and how its
chunks are counted."""

from dataclasses import dataclass

import numpy as np

from engine_adapter.simulator.step_cost import StepCost
from tuner.calibration.observed import Float64, Int64, ObservedSteps

NUISANCE = 2
"""Columns that the fit must know and the cost leaves out: what a new shape costs, once and by its tokens."""
_SCALARS = ("chunk_ns", "chunk_pair_ns", "decode_ns", "decode_kv_ns")


@dataclass(frozen=True, slots=True)
class Shape:
    """The table of the cost is straight between `knots`, and jumps up after each of `jumps`, both in
    tokens of a step and ascending; the larger `stiffness`, the less it bends where steps do not demand
    it. Chunks count whole tiles of `query_tile` queries, and reading a token of their context takes as
    long as computing `pairs_per_read` pairs."""

    knots: tuple[int, ...]
    stiffness: float = 1.0
    jumps: tuple[int, ...] = ()
    query_tile: int = 1
    pairs_per_read: float = 0.0


def columns_of(observed: ObservedSteps, shape: Shape) -> Float64:
    """What each unknown of the cost is multiplied by in each step, shape (steps, unknowns): a new shape,
    the fixed cost, the table's slopes and jumps, chunks, their attention, decodes and their context."""
    tokens = observed.tokens.astype(np.float64)
    new = observed.new_shape.astype(np.float64)
    return np.column_stack([
        new, new * tokens, np.ones(len(observed)), table_columns(tokens, shape), observed.chunks,
        observed.per_step(_attention_pairs(observed, shape)), observed.decodes, observed.decode_context,
    ])


def stiff_rows(shape: Shape, unknowns: int) -> Float64:
    """Rows whose product with the unknowns is how much the table bends at each knot but the last, in
    nanoseconds over the shorter of the two pieces, times the stiffness; shape (bends, unknowns)."""
    lengths = np.diff(np.array((0, *shape.knots), dtype=np.float64))
    bends = len(lengths) - 1
    rows = np.zeros((bends, unknowns))
    first = NUISANCE + 1
    weight = shape.stiffness * np.minimum(lengths[:-1], lengths[1:])
    rows[np.arange(bends), first + np.arange(bends)] = -weight
    rows[np.arange(bends), first + 1 + np.arange(bends)] = weight
    return rows


def table_columns(tokens: Float64, shape: Shape) -> Float64:
    """The part of the table: tokens between two knots, then what lies above a jump."""
    knots = np.array(shape.knots, dtype=np.float64)
    below = np.concatenate([[0.0], knots[:-1]])
    slopes = np.clip(tokens[:, None] - below, 0, knots - below)
    return np.hstack([slopes, (tokens[:, None] > np.array(shape.jumps)).astype(np.float64)])


def cost_of(found: Float64, shape: Shape) -> StepCost:
    """The cost with the numbers `found`, one for each column of `columns_of`, in nanoseconds."""
    table = found[NUISANCE + 1:len(found) - len(_SCALARS)]
    scalars = dict(zip(_SCALARS, found[len(found) - len(_SCALARS):].tolist(), strict=True))
    tokens = np.arange(shape.knots[-1] + 1, dtype=np.float64)
    return StepCost(
        linear_ns=table_columns(tokens, shape) @ table, fixed_ns=float(found[NUISANCE]),
        query_tile=shape.query_tile, chunk_kv_ns=scalars["chunk_pair_ns"] * shape.pairs_per_read, **scalars)


def _attention_pairs(observed: ObservedSteps, shape: Shape) -> Float64:
    """Of each chunk: the pairs that it computes, or those that it could while it reads its context."""
    queries = -(-observed.chunk_tokens // shape.query_tile) * shape.query_tile
    computing = queries * (observed.chunk_prefix + 0.5 * (observed.chunk_tokens + 1))
    reading = shape.pairs_per_read * (observed.chunk_prefix + observed.chunk_tokens)
    pairs: Float64 = np.maximum(computing, reading)
    return pairs


def knots_for(tokens: Int64, least_between: int, per_octave: int) -> tuple[int, ...]:
    """Places from 2 up to the largest step where the table may bend: `per_octave` evenly between two powers
    of two, and sizes that a twentieth of the steps has, as far as `least_between` steps lie since the last
    such place."""
    largest = int(tokens.max())
    octaves = 2.0 ** np.arange(largest.bit_length())
    grid = np.unique((octaves[:, None] * (1 + np.arange(per_octave) / per_octave)).astype(np.int64))
    sizes, count = np.unique(tokens, return_counts=True)
    wanted = np.unique(np.concatenate([grid, sizes[count >= len(tokens) / 20]]))
    ordered = np.sort(tokens)
    knots: list[int] = []
    used = 0
    for place in wanted[(wanted > 1) & (wanted < largest)].tolist():
        upto = int(np.searchsorted(ordered, place, side="right"))
        if upto - used >= least_between and len(ordered) - upto >= least_between:
            knots.append(place)
            used = upto
    return (*knots, largest)


def jumps_for(tokens: Int64, every: int, least_between: int) -> tuple[int, ...]:
    """Multiples of `every` with `least_between` steps on either side up to the next one."""
    bins = np.bincount((tokens - 1) // every)
    enough = bins >= least_between
    return tuple(((np.flatnonzero(enough[:-1] & enough[1:]) + 1) * every).tolist())
