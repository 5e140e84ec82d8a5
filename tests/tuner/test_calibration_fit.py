"""The cost of a step is found again in logs that were drawn from it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_adapter.simulator.step_cost import StepCost
from tests.tuner.logged_runs import cpu_like, logged_run
from tuner.calibration.fit import fit_cost, predicted_ns, robust
from tuner.calibration.observed import observe

NAMES = ("large", "small", "larger")


def fitted(cost, **others):
    """A fit to three runs with budgets of 512, 128 and 1,024 tokens."""
    runs = [logged_run(cost, seed=seed, steps=250, budget=budget, **others)
            for seed, budget in ((1, 512), (2, 128), (3, 1024))]
    return fit_cost(observe(runs, NAMES))


def errors(found, cost, decodes=40):
    """Relative errors of `found` on steps of other runs, without noise, at budgets of 512 and 256."""
    fresh = observe([logged_run(cost, seed=seed, steps=200, budget=budget, decodes=decodes)
                     for seed, budget in ((11, 512), (12, 256))], ("a", "b"))
    return np.abs(predicted_ns(fresh, found) / fresh.took_ns - 1)


def staircase():
    """A device with tiles of 256 tokens and of 64 queries, on which short chunks wait for their context."""
    return StepCost(linear_ns=2e6 * np.ceil(np.arange(2049) / 256), fixed_ns=5e6, chunk_ns=2e4,
                    chunk_pair_ns=2.0, chunk_kv_ns=64.0, query_tile=64, decode_ns=1e4, decode_kv_ns=2.0)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fixed=st.floats(0, 30e6), token=st.floats(1e4, 1e6), pair=st.floats(0, 500), decode=st.floats(0, 1e6),
       context=st.floats(0, 4000))
def test_a_cost_is_found_again(fixed, token, pair, decode, context):
    """Whatever the numbers, steps of other runs are predicted to a percent."""
    cost = StepCost.linear(token_ns=token, most_tokens=2048, fixed_ns=fixed, chunk_pair_ns=pair,
                           decode_ns=decode, decode_kv_ns=context)
    assert np.percentile(errors(fitted(cost).cost, cost), 95) < 0.01


def test_noise_averages_out():
    """With 3 % of noise on each step the cost is within 1.5 % of the truth."""
    cost = cpu_like()
    assert np.percentile(errors(fitted(cost, noise=0.03).cost, cost), 95) < 0.015


def test_outliers_do_not_decide():
    """One step in twenty took ten times as long: the cost is still within 2 %."""
    cost = cpu_like()
    assert np.percentile(errors(fitted(cost, noise=0.02, outliers=0.05).cost, cost), 95) < 0.02


def test_stairs_and_tiles_are_seen():
    """Where the steps show a staircase, tiles of queries and reads that take longer, the cost has them."""
    cost = staircase()
    found = fitted(cost).cost
    assert np.percentile(errors(found, cost), 95) < 0.01
    assert found.linear_ns[257] - found.linear_ns[256] == pytest.approx(2e6, rel=0.1)
    assert found.linear_ns[256] - found.linear_ns[200] < 0.1e6


def test_more_work_never_costs_less():
    """Every number of the cost is at least 0 and its table never falls, however wild the steps."""
    found = fitted(cpu_like(), noise=0.5, outliers=0.1).cost
    assert np.all(np.diff(found.linear_ns) >= 0)
    assert min(found.fixed_ns, found.chunk_ns, found.chunk_pair_ns, found.decode_ns, found.decode_kv_ns) >= 0


def test_held_out_errors_are_those_of_unseen_steps():
    """The errors that are reported are about those on other runs of the same engine: noise and no more."""
    cost = cpu_like()
    found = fitted(cost, noise=0.03)
    off = found.held_out_ns / found.observed.took_ns - 1
    assert np.median(np.abs(off)) == pytest.approx(0.02, abs=0.005)


def test_what_a_new_size_costs_stays_out_of_the_cost():
    """An engine prepares for a size when it meets it first: these steps are longer, and no step after."""
    cost = cpu_like()
    runs = [logged_run(cost, seed=seed, steps=300, budget=64, decodes=8) for seed in (1, 2)]
    for run in runs:
        steps = run.steps.steps
        first = np.unique(steps["num_tokens"], return_index=True)[1]
        extra = np.zeros(len(steps["step"]), dtype=np.int64)
        extra[first] = 20_000_000
        late = np.cumsum(extra)
        steps["end_ns"] += late
        steps["start_ns"] += late - extra
    found = fit_cost(observe(runs, ("a", "b")))
    assert found.new_shape_ns == pytest.approx(20e6, rel=0.1)
    fresh = observe([logged_run(cost, seed=9, steps=200, budget=64, decodes=8)], ("c",))
    assert np.median(np.abs(predicted_ns(fresh, found.cost) / fresh.took_ns - 1)) < 0.01


def test_a_cost_is_the_same_however_often_it_is_fitted():
    """Nothing is drawn by chance: the same runs give the same numbers."""
    one, other = fitted(cpu_like(), noise=0.05), fitted(cpu_like(), noise=0.05)
    assert one.cost.as_dict() == other.cost.as_dict()


def test_predictions_are_those_of_the_cost():
    """The columns and StepCost.step_ns say the same."""
    cost = staircase()
    steps = observe([logged_run(cost, seed=5, steps=150)], ("a",))
    assert predicted_ns(steps, cost) == pytest.approx(steps.took_ns, rel=1e-6)


def test_an_exact_solution_is_found():
    """Non-negative numbers, in columns of any scale."""
    columns = np.column_stack([np.ones(50), np.arange(50) * 1e6, np.zeros(50)])
    found = robust(columns, columns @ np.array([3e6, 2.0, 0.0]), relative=True)
    assert found == pytest.approx([3e6, 2.0, 0.0], rel=1e-4)
