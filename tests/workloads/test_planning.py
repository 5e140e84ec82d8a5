import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import Component, Fixed, Plan, Uniform, UsageError, Workload, build_plan, load_workload

_REQUEST_COLUMNS = ("input_len", "output_len", "component", "prefix_group", "session", "turn")
_SEEDS = st.integers(0, 2**40)
_CPU = load_workload("cpu")


def _mix(*weights: float) -> Workload:
    return Workload(
        name="mix", description="", slo=(), decode_deadline_ms=50, run_seconds=1, warmup_seconds=0,
        max_model_len=10_000,
        components=tuple(
            Component(name=f"c{i}", weight=w, input=Fixed(tokens=i + 1), output=Uniform(low=1, high=9))
            for i, w in enumerate(weights)),
    )


def _assert_starts_with(long: Plan, short: Plan) -> None:
    for name in ("intended_ns", *_REQUEST_COLUMNS):
        np.testing.assert_array_equal(getattr(long, name)[:len(short)], getattr(short, name))


@given(seed=_SEEDS, n=st.integers(1, 60), warmups=st.integers(0, 20), rate=st.floats(0.01, 1e4))
def test_the_same_seed_is_the_same_plan_byte_for_byte(seed: int, n: int, warmups: int, rate: float) -> None:
    """Built twice a plan has the same bytes; another seed gives others."""
    plan, again, other = (
        build_plan(_CPU, rate_rps=rate, seed=s, num_prompts=n, num_warmups=warmups)
        for s in (seed, seed, seed + 1))
    assert plan.to_bytes() == again.to_bytes() != other.to_bytes()
    assert len(plan) == n + warmups
    assert plan.num_warmups == warmups
    assert plan.component_names == ("chat", "documents")


def test_another_process_builds_the_same_plan() -> None:
    """Nothing of the process, such as its hash seed, enters a plan."""
    script = ("from workloads import *; "
              "print(build_plan(load_workload('cpu'), rate_rps=3, seed=9, num_prompts=20).digest())")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == build_plan(_CPU, rate_rps=3, seed=9, num_prompts=20).digest()


@given(seed=_SEEDS, n=st.integers(1, 50), more=st.integers(0, 50), warmups=st.integers(0, 10))
def test_a_longer_plan_starts_with_the_shorter(seed: int, n: int, more: int, warmups: int) -> None:
    """Rows do not depend on how many follow."""
    short = build_plan(_CPU, rate_rps=2, seed=seed, num_prompts=n, num_warmups=warmups)
    long = build_plan(_CPU, rate_rps=2, seed=seed, num_prompts=n + more, num_warmups=warmups)
    _assert_starts_with(long, short)


@given(seed=_SEEDS, rate=st.floats(10, 50), duration=st.floats(5, 20), warmup=st.floats(0, 5))
def test_a_plan_by_time_holds_what_arrives_within_it(
    seed: int, rate: float, duration: float, warmup: float
) -> None:
    """Exactly the arrivals before the end are in it, and those before the warm-up's end are warm-up."""
    plan = build_plan(_CPU, rate_rps=rate, seed=seed, duration_s=duration, warmup_s=warmup)
    end_ns, warm_ns = round(warmup * 1e9) + round(duration * 1e9), round(warmup * 1e9)
    assert plan.intended_ns[-1] < end_ns
    assert plan.num_warmups == np.count_nonzero(plan.intended_ns < warm_ns)
    more = build_plan(_CPU, rate_rps=rate, seed=seed, num_prompts=len(plan) + 1)
    _assert_starts_with(more, plan)
    assert more.intended_ns[-1] >= end_ns


@given(seed=_SEEDS, rate=st.floats(0.1, 100), factor=st.floats(0.1, 10))
def test_another_rate_only_stretches_time(seed: int, rate: float, factor: float) -> None:
    """The requests are the same and their times scale with 1 / rate."""
    slow = build_plan(_CPU, rate_rps=rate, seed=seed, num_prompts=30)
    fast = build_plan(_CPU, rate_rps=rate * factor, seed=seed, num_prompts=30)
    for name in _REQUEST_COLUMNS:
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name))
    np.testing.assert_allclose(fast.intended_ns * factor, slow.intended_ns, rtol=1e-9, atol=1 + factor)


def test_the_measured_part_after_a_counted_warm_up_lasts_the_duration() -> None:
    """A counted warm-up ends with its last arrival; the duration starts there."""
    plan = build_plan(_CPU, rate_rps=10, burstiness=math.inf, seed=0, num_warmups=5, duration_s=2)
    assert plan.num_warmups == 5
    assert len(plan) == 5 + 19   # arrivals at 0.6, 0.7 ... 2.4 s; the one at 2.5 s is outside
    by_time = build_plan(_CPU, rate_rps=10, burstiness=math.inf, seed=0, warmup_s=0.5, num_prompts=3)
    assert (by_time.num_warmups, len(by_time)) == (4, 7)


def test_the_rate_and_the_weights_are_those_asked_for() -> None:
    """Over many requests the mean rate and the shares of components are within statistical bounds."""
    n = 40_000
    plan = build_plan(_mix(6, 3, 1), rate_rps=25, seed=1, num_prompts=n)
    assert n / (plan.intended_ns[-1] / 1e9) == pytest.approx(25, rel=5 / math.sqrt(n))
    shares = np.bincount(plan.component) / n
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.015)
    np.testing.assert_array_equal(plan.input_len, plan.component + 1)


def test_a_component_of_tiny_weight_does_not_break_the_mix() -> None:
    """Shares that round to nothing leave every row with a component."""
    plan = build_plan(_mix(1e9, 1e-9, 1e-9), rate_rps=1, seed=0, num_prompts=1000)
    assert set(plan.component.tolist()) == {0}


def test_prompt_and_answer_lengths_are_drawn_independently() -> None:
    """The columns have streams of their own: no correlation between them or with the arrivals."""
    workload = Workload.from_lengths(1000, 1000, 0.9)
    plan = build_plan(workload, rate_rps=1, seed=4, num_prompts=20_000)
    gaps = np.diff(plan.intended_ns, prepend=0)
    correlations = np.corrcoef([plan.input_len, plan.output_len, gaps])
    assert np.abs(correlations[np.triu_indices(3, 1)]).max() < 0.03


def test_burstiness_comes_from_the_workload_unless_given() -> None:
    """A flag replaces the workload's own burstiness."""
    bursty = load_workload("code-completion")
    own = build_plan(bursty, rate_rps=1, seed=0, num_prompts=20)
    given_same = build_plan(bursty, rate_rps=1, seed=0, num_prompts=20, burstiness=bursty.burstiness)
    constant = build_plan(bursty, rate_rps=1, seed=0, num_prompts=20, burstiness=math.inf)
    assert own.digest() == given_same.digest() != constant.digest()
    assert set(np.diff(constant.intended_ns).tolist()) == {10**9}


def test_an_infinite_rate_takes_counts() -> None:
    """Everything is sent at once, the warm-up rows first."""
    plan = build_plan(_CPU, rate_rps=math.inf, seed=0, num_prompts=5, num_warmups=2, warmup_s=None)
    assert plan.intended_ns.tolist() == [0] * 7


@pytest.mark.parametrize(("arguments", "complaint"), [
    ({"rate_rps": 1}, "either a number of requests or a duration"),
    ({"rate_rps": 1, "num_prompts": 1, "duration_s": 1}, "either a number of requests or a duration"),
    ({"rate_rps": 1, "num_prompts": 1, "num_warmups": 0, "warmup_s": 1}, "give the warm-up either"),
    ({"rate_rps": 1, "num_prompts": 0}, "number of requests must be at least 1"),
    ({"rate_rps": 1, "num_prompts": 1, "num_warmups": -1}, "warm-up requests must be 0 or more"),
    ({"rate_rps": 1, "duration_s": math.nan}, "duration must be above 0"),
    ({"rate_rps": 1, "duration_s": math.inf}, "duration must be above 0 and finite"),
    ({"rate_rps": 1, "num_prompts": 1, "warmup_s": math.nan}, "warm-up must be 0 or more"),
    ({"rate_rps": 0, "num_prompts": 1}, "rate must be above 0"),
    ({"rate_rps": -1, "duration_s": 1}, "rate must be above 0"),
    ({"rate_rps": math.nan, "duration_s": 1}, "rate must be above 0"),
    ({"rate_rps": math.inf, "duration_s": 1}, "numbers of requests, not as seconds"),
    ({"rate_rps": math.inf, "num_prompts": 1, "warmup_s": 1}, "numbers of requests, not as seconds"),
    ({"rate_rps": 1, "num_prompts": 1, "burstiness": 0}, "burstiness must be above 0"),
    ({"rate_rps": 0.001, "duration_s": 0.001}, "no request falls into the measured part"),
    ({"rate_rps": 1, "num_prompts": 10**8}, "at most 10000000 requests"),
    ({"rate_rps": 1, "num_prompts": 1, "seed": -1}, "seed must be 0 or more"),
])
def test_what_cannot_be_planned_is_refused(arguments: dict[str, Any], complaint: str) -> None:
    """Each impossible request is the user's error, in one line that says what to change."""
    with pytest.raises(UsageError, match=complaint) as caught:
        build_plan(_CPU, **({"seed": 0} | arguments))
    assert "\n" not in str(caught.value)
