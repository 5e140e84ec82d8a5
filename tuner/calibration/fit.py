"""From observed steps to the cost of a step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine_adapter.simulator.step_cost import StepCost
from tuner.calibration.observed import LEAST_OF_A_KIND, Bool, Float64, Int64, ObservedSteps
from tuner.calibration.shape import NUISANCE, Shape, columns_of, cost_of, jumps_for, knots_for, stiff_rows

FOLDS = 5
"""Each step is judged by a cost that was fitted without its block of steps."""
HUBER = 1.345
"""Residuals beyond so many standard deviations count by their size, not by its square."""
LEAST_SPREAD = 0.005
"""Of the relative errors: no shape is truer than that, and steps that one fits exactly must not outvote those
that it does not."""
WORTH, SURE = 0.01, 1.0
"""Another shape must lower the error on held-out steps by this share of it, and by so many standard errors
of the difference, which blocks of steps tell."""
WORST = 0.25
"""A step that is off by more counts as this much when shapes are compared."""
_FOR_SHAPE, _PIECE = 4000, 64
_PASSES, _ROUNDS, _SETTLED, _HAIR = 2, 30, 1e-4, 1e-13
_STIFF = (1.0, 0.1, 0.03)
_KNOTS = ((16, 2), (8, 4), (8, 8))
"""Fewest steps between two knots, and most knots from a size to twice that size."""
_READS = (2.0, 8.0, 32.0, 128.0)
_TILES = (16, 32, 64, 128)
_STAIRS = (256, 128, 64, 16, 8)


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The cost of a step, fitted to all steps, and how well the same shape predicts what it has not seen."""

    cost: StepCost
    """Of the device; what passes around the steps is not in it."""
    observed: ObservedSteps
    """The steps that it was fitted to."""
    held_out_ns: Float64
    """Of each of them, what a fit without its block of steps says, shape (steps,). What a new shape costs
    is not in it."""
    new_shape_ns: float
    """What a step of a size that the run had not had before took longer, by the median of those steps."""


def fit_cost(observed: ObservedSteps) -> Fitted:
    """Non-negative numbers by iteratively reweighted least squares of the relative errors, in the simplest
    shape that predicts held-out blocks of steps about as well as any."""
    # Where the host hides behind the step before, a step after idle time shows it, and no other does.
    hidden = observed.where(~observed.after_idle) if observed.asynchronous else observed
    shape = _best_shape(hidden.thinned(_FOR_SHAPE))
    found = _solve(hidden, shape)
    new = columns_of(hidden, shape)[hidden.new_shape, :NUISANCE] @ found[:NUISANCE]
    return Fitted(cost_of(found, shape), hidden, _held_out(hidden, shape),
                  float(np.median(new)) if len(new) else 0.0)


def predicted_ns(observed: ObservedSteps, cost: StepCost) -> Float64:
    """Nanoseconds that `cost` gives each step, shape (steps,)."""
    from engine_adapter.simulator.cost_formulas import extended

    tile = cost.query_tile
    queries = -(-observed.chunk_tokens // tile) * tile
    attention = np.maximum(
        cost.chunk_pair_ns * queries * (observed.chunk_prefix + 0.5 * (observed.chunk_tokens + 1)),
        cost.chunk_kv_ns * (observed.chunk_prefix + observed.chunk_tokens))
    table = extended(cost.linear_ns, int(observed.tokens.max(initial=0)))
    total: Float64 = (cost.fixed_ns + table[observed.tokens] + cost.chunk_ns * observed.chunks
                      + observed.per_step(attention) + cost.decode_ns * observed.decodes
                      + cost.decode_kv_ns * observed.decode_context)
    return total


def _best_shape(observed: ObservedSteps) -> Shape:
    best = Shape(knots_for(observed.tokens, *_KNOTS[0]), _STIFF[0])
    errors = _errors(observed, best)
    for _ in range(_PASSES):
        before = best
        for refine in (_table, _reading, _tiled, _stepped):
            for shape in refine(observed, best):
                its_errors = _errors(observed, shape)
                if _surely_lower(its_errors, errors, observed.block):
                    best, errors = shape, its_errors
        if best == before or errors.sum() < LEAST_SPREAD:
            break
    return best


def _surely_lower(errors: Float64, than: Float64, block: Int64) -> bool:
    gain = np.bincount(block, weights=than - errors)[np.bincount(block) > 0]
    sure = SURE * float(gain.std()) * math.sqrt(len(gain))
    return float(gain.sum()) > max(WORTH * float(than.sum()), sure)


def _table(observed: ObservedSteps, shape: Shape) -> Iterator[Shape]:
    for density in _KNOTS:
        for stiffness in _STIFF:
            yield replace(shape, knots=knots_for(observed.tokens, *density), stiffness=stiffness)


def _reading(observed: ObservedSteps, shape: Shape) -> Iterator[Shape]:
    for pairs in _READS:
        yield replace(shape, pairs_per_read=pairs)


def _tiled(observed: ObservedSteps, shape: Shape) -> Iterator[Shape]:
    for tile in _TILES:
        yield replace(shape, query_tile=tile)


def _stepped(observed: ObservedSteps, shape: Shape) -> Iterator[Shape]:
    for every in _STAIRS:
        if jumps := jumps_for(observed.tokens, every, _KNOTS[-1][0]):
            yield replace(shape, jumps=jumps)


def _errors(observed: ObservedSteps, shape: Shape) -> Float64:
    """Relative error of each step when it is held out, weighed so that every kind of step counts alike."""
    off = np.minimum(np.abs(_held_out(observed, shape) / observed.took_ns - 1), WORST)
    kind = np.where(observed.chunks == 0, 0, np.where(observed.decodes > 0, 1, 2))
    kind[observed.new_shape] = 3
    members = np.bincount(kind, minlength=4)
    # What a new shape costs is no fault of the cost, and a handful of steps says nothing of its kind.
    weight = np.where(members >= LEAST_OF_A_KIND, 1 / np.maximum(members, 1), 0.0)
    weight[3] = 0.0
    errors: Float64 = off * (weight[kind] if weight.any() else 1.0)
    return errors


def _held_out(observed: ObservedSteps, shape: Shape) -> Float64:
    predicted = np.empty(len(observed))
    fold = observed.block % FOLDS
    for number in np.unique(fold):
        out: Bool = fold == number
        rest = observed.where(~out)
        predicted[out] = predicted_ns(observed.where(out), cost_of(_solve(rest, shape), shape))
    return predicted


def _solve(observed: ObservedSteps, shape: Shape) -> Float64:
    """Huber's estimate of the unknowns, in nanoseconds."""
    columns = columns_of(observed, shape)
    typical = math.sqrt(len(observed)) / float(np.median(observed.took_ns))
    return robust(columns, observed.took_ns, relative=True,
                  near_zero=stiff_rows(shape, columns.shape[1]) * typical)


def robust(columns: Float64, values: Float64, *, relative: bool, near_zero: Float64 | None = None) -> Float64:
    """The non-negative numbers whose sum of `columns` (n, k) comes near `values` (n,), by Huber's estimate
    of the residuals, or of the relative ones. Rows of `near_zero` are weighed equations of their own, with
    0 on the right. Shape (k,)."""
    from scipy.optimize import nnls

    if near_zero is None:
        near_zero = np.zeros((0, columns.shape[1]))

    expected, weight = values.copy(), np.ones(len(values))
    found = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        scale = np.sqrt(weight) / (expected if relative else 1.0)
        weighted, target = columns * scale[:, None], values * scale
        size = np.linalg.norm(weighted, axis=0)
        size[size == 0] = 1.0
        rows = np.vstack([np.column_stack([weighted, target]), np.pad(near_zero, ((0, 0), (0, 1)))])
        rows /= np.append(size, 1.0)
        # Of k + 1 rows, with the same solution as the tall matrix; a hair on the diagonal lets columns of
        # zeros and their likes pass.
        root = np.linalg.cholesky(_squares(rows) + _HAIR * len(rows) * np.eye(len(size) + 1)).T
        found = nnls(root[:, :-1], root[:, -1])[0] / size
        expected, before = np.maximum(np.einsum("ij,j->i", columns, found), 1.0), expected
        if np.abs(expected / before - 1).max() < _SETTLED:
            break
        off = (values - expected) / (expected if relative else 1.0)
        spread = max(1.4826 * float(np.median(np.abs(off))), LEAST_SPREAD if relative else 1.0)
        weight = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(off), 1e-12))
    return found


def _squares(rows: Float64) -> Float64:
    """rows.T @ rows in small pieces: the threads of a large product wait for one another where other
    processes have the cores, as beside an engine, and take ten times as long."""
    padded = np.zeros((-(-len(rows) // _PIECE), _PIECE, rows.shape[1]))
    padded.reshape(-1, rows.shape[1])[:len(rows)] = rows
    total: Float64 = np.matmul(padded.transpose(0, 2, 1), padded).sum(axis=0)
    return total
