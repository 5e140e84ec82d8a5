import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import Plan, RateProfile, Stage, UsageError, Workload, build_plan, load_workload, parse_stages
from workloads.arrivals import unit_rate_arrivals

_RATES = st.floats(0.01, 1e4)
_DURATIONS = st.floats(0.01, 1e4)
_STAGES = st.one_of(
    st.builds(Stage, _DURATIONS, _RATES, _RATES, st.sampled_from(["linear", "exponential"])),
    st.builds(lambda s, r: Stage(s, r, r), _DURATIONS, _RATES),
    st.builds(lambda s, r: Stage(s, 0, r), _DURATIONS, _RATES),
    st.builds(lambda s, r: Stage(s, r, 0), _DURATIONS, _RATES),
    st.builds(lambda s: Stage(s, 0, 0), _DURATIONS),
)
_PROFILES = st.lists(_STAGES, min_size=1, max_size=5).filter(
    lambda stages: any(s.expected() for s in stages)).map(lambda stages: RateProfile(tuple(stages)))
_CPU = load_workload("cpu")
_TINY = Workload.from_lengths(4, 2)


def _cumulative(stage: Stage, seconds: np.ndarray) -> np.ndarray:
    """The integral of the stage's rate by its definition, not by the code's formula."""
    if stage.shape == "exponential" and stage.start_rps != stage.end_rps:
        ratio = stage.end_rps / stage.start_rps
        grown = ratio ** (seconds / stage.duration_s) - 1
        return stage.start_rps * stage.duration_s * grown / math.log(ratio)
    slope = (stage.end_rps - stage.start_rps) / stage.duration_s
    return stage.start_rps * seconds + slope * seconds**2 / 2


@given(_STAGES.filter(lambda s: s.expected() > 0), st.lists(st.floats(0, 0.999), min_size=1, max_size=9))
def test_the_cumulative_rate_at_an_arrival_is_the_arrival(stage: Stage, shares: list[float]) -> None:
    """Arrivals lie where the integral of the rate says, to a billionth of the stage."""
    arrivals = np.array(shares) * stage.expected()
    back = _cumulative(stage, stage.reached_s(arrivals))
    np.testing.assert_allclose(back, arrivals, rtol=1e-6, atol=1e-9 * stage.expected())


@given(_PROFILES, st.integers(0, 2**32))
def test_arrivals_keep_their_order_and_fall_into_their_stage(profile: RateProfile, seed: int) -> None:
    """Times never go back, each within the stage it is counted to, and no pause has any."""
    arrivals = unit_rate_arrivals(200, 1.0, np.random.default_rng(seed))
    arrivals = arrivals[arrivals < profile.expected()]
    seconds, stage = profile.place(arrivals)
    assert np.all(np.diff(seconds) >= 0)
    ends = np.cumsum([s.duration_s for s in profile.stages])
    begins = ends - [s.duration_s for s in profile.stages]
    assert np.all((seconds >= begins[stage] - 1e-9) & (seconds <= ends[stage] + 1e-9))
    assert not {index for index, s in enumerate(profile.stages) if s.kind == "pause"} & set(stage.tolist())


@pytest.mark.parametrize("text", ["40s@50", "40s@10..90", "40s@90..10", "40s@0..100", "40s@20..120exp",
                                  "10s@20,5s@0,20s@20..80,10s@100"])
def test_each_second_has_the_requests_its_rate_says(text: str) -> None:
    """Over many Poisson plans the counts a second average to the integral of the rate."""
    profile = parse_stages(text)
    plans = [build_plan(_TINY, profile=profile, seed=seed) for seed in range(25)]
    seconds = round(profile.duration_s)
    counts = np.mean([np.bincount(p.intended_ns // 10**9, minlength=seconds) for p in plans], axis=0)
    edges = np.concatenate([
        np.diff(_cumulative(s, np.arange(round(s.duration_s) + 1.0))) for s in profile.stages])
    assert np.abs(counts - edges).max() <= 5 * math.sqrt(edges.max() / len(plans))


def test_burstiness_survives_a_ramp() -> None:
    """Mapped back through the cumulative rate, the gaps of a ramp have the spread asked for."""
    stage = Stage(200, 10, 200)
    for burstiness in (0.25, 4.0):
        plan = build_plan(_TINY, profile=RateProfile((stage,)), seed=3, burstiness=burstiness)
        gaps = np.diff(_cumulative(stage, plan.intended_ns / 1e9))
        assert gaps.std() == pytest.approx(1 / math.sqrt(burstiness), rel=0.05)


@given(seed=st.integers(0, 2**40), rate=st.floats(1, 20), warmup=st.floats(0, 3))
def test_one_steady_stage_is_the_plan_of_that_rate(seed: int, rate: float, warmup: float) -> None:
    """The same requests at the same times, to the nanosecond of rounding."""
    staged = build_plan(_CPU, profile=RateProfile((Stage(10, rate, rate),)), seed=seed, warmup_s=warmup)
    plain = build_plan(_CPU, rate_rps=rate, duration_s=10, seed=seed, warmup_s=warmup)
    assert (len(staged), staged.num_warmups) == (len(plain), plain.num_warmups)
    np.testing.assert_allclose(staged.intended_ns, plain.intended_ns, atol=2, rtol=0)
    np.testing.assert_array_equal(staged.input_len, plain.input_len)
    assert staged.rate_rps == pytest.approx(rate)


@given(text=st.sampled_from(["5s@10", "5s@0..30", "3s@0,4s@20", "4s@20..5exp,1s@3", "4s@20..0"]),
       seed=st.integers(0, 2**40), warmups=st.integers(0, 9))
def test_a_warm_up_comes_before_the_stages_at_the_rate_they_begin_with(
    text: str, seed: int, warmups: int
) -> None:
    """The stages begin with the warm-up's last arrival; its rows are counted to the first stage."""
    profile = parse_stages(text)
    plan = build_plan(_TINY, profile=profile, seed=seed, num_warmups=warmups)
    begin_ns = int(plan.intended_ns[warmups - 1]) if warmups else 0
    assert not plan.stage[:warmups].any()
    ends_s = np.cumsum([s.duration_s for s in profile.stages])
    after_s = (plan.intended_ns[warmups:] - begin_ns) / 1e9
    assert np.all(after_s <= ends_s[plan.stage[warmups:]] + 1e-6)
    if warmups > 1:
        gaps_s = np.diff(plan.intended_ns[:warmups]) / 1e9
        constant = build_plan(_TINY, rate_rps=profile.first_rps, seed=seed, num_prompts=warmups)
        np.testing.assert_allclose(gaps_s, np.diff(constant.intended_ns) / 1e9, atol=1e-8)


def test_a_timed_warm_up_is_followed_by_the_whole_profile() -> None:
    """Stages keep their length behind a warm-up, and a pause in front stays one."""
    plan = build_plan(_TINY, profile=parse_stages("2s@0,2s@10"), seed=0, warmup_s=1, burstiness=math.inf)
    assert plan.num_warmups == 9   # at 0.1 .. 0.9 s
    # The tenth arrival is due just when the pause begins, and so comes when it is over.
    assert plan.intended_ns[9] == 3_000_000_000
    assert plan.intended_ns[-1] < 5_000_000_000
    assert plan.stage.tolist() == [0] * 9 + [1] * 20


def test_a_number_of_requests_takes_the_first_or_holds_the_last_rate() -> None:
    """Fewer requests end the profile early, more go on at its final rate; after a pause there are none."""
    profile = parse_stages("2s@5,2s@5..10")
    few, many = (build_plan(_TINY, profile=profile, seed=1, num_prompts=n, burstiness=math.inf)
                 for n in (4, 100))
    assert len(few) == 4
    np.testing.assert_array_equal(many.intended_ns[:4], few.intended_ns)
    assert np.diff(many.intended_ns)[-50:] == pytest.approx(np.full(50, 1e8), abs=1)
    assert set(many.stage.tolist()) == {0, 1}
    with pytest.raises(UsageError, match="end with a pause after 9 of 100 requests"):
        build_plan(_TINY, profile=parse_stages("2s@5,1s@0"), seed=1, num_prompts=100, burstiness=math.inf)


def test_a_plan_names_its_stages_and_survives_the_way_to_bytes() -> None:
    """Stage of every row, and what each stage is, come back; a ramp can be told from a steady rate."""
    profile = parse_stages("1s@20,1s@20..40exp,1s@0,1s@40")
    plan = build_plan(_TINY, profile=profile, seed=2)
    again = Plan.from_bytes(plan.to_bytes())
    assert again.digest() == plan.digest()
    assert again.stages == profile.stages
    assert again.stage.tolist() == plan.stage.tolist()
    assert plan.stage_names == ("1s@20", "1s@20..40exp", "1s@0", "1s@40")
    assert [stage.kind for stage in plan.stages] == ["steady", "ramp", "pause", "steady"]
    assert [Stage.from_dict(stage.as_dict()) for stage in plan.stages] == list(plan.stages)


def test_a_plan_without_stages_is_one_part_and_keeps_its_bytes() -> None:
    """All rows are stage 0, called run, and nothing of stages is stored."""
    plan = build_plan(_TINY, rate_rps=2, seed=0, num_prompts=3)
    assert plan.stage.tolist() == [0, 0, 0]
    assert plan.stage_names == ("run",)
    assert b"stage" not in plan.to_bytes().replace(b"stallfree", b"")


@given(_PROFILES)
def test_what_is_printed_can_be_read_back(profile: RateProfile) -> None:
    """The text of a profile gives it again, to the digits that are printed."""
    again = parse_stages(str(profile))
    assert str(again) == str(profile)
    assert [s.kind for s in again.stages if s.kind == "pause"] == [
        s.kind for s in profile.stages if s.kind == "pause"]


@pytest.mark.parametrize(("text", "stages"), [
    ("30s@2,60s@2..8,30s@8", [Stage(30, 2, 2), Stage(60, 2, 8), Stage(30, 8, 8)]),
    (" 1.5m @ 0.5 .. 8 exp , 500ms@0,1h@1e-1",
     [Stage(90, 0.5, 8, "exponential"), Stage(0.5, 0, 0), Stage(3600, 0.1, 0.1)]),
    ("10s@8..0", [Stage(10, 8, 0)]),
])
def test_stages_are_read_as_written(text: str, stages: list[Stage]) -> None:
    """Durations in ms, s, m or h; rates as decimals, rising, falling, or 0."""
    def figures(of: Any) -> list[tuple[Any, ...]]:
        return [(s.duration_s, s.start_rps, s.end_rps, s.shape) for s in of]

    assert figures(parse_stages(text).stages) == figures(stages)


@pytest.mark.parametrize(("text", "complaint"), [
    ("", "no stage given"), (" , ", "is not DURATION@RATE"), ("30s", "is not DURATION@RATE"),
    ("30@2", "is not DURATION@RATE"), ("0s@2", "lasts above 0"), ("-5s@2", "lasts above 0"),
    ("infs@2", "lasts above 0"), ("nans@2", "lasts above 0"), ("5s@-1", "rate of a stage is 0"),
    ("5s@inf", "rate of a stage is 0"), ("5s@nan", "rate of a stage is 0"),
    ("5s@1..inf", "rate of a stage is 0"), ("5s@x", "'x' is not a number"),
    ("xs@5", "'x' is not a number"), ("5s@0..4exp", "cannot touch a rate of 0"),
    ("5s@4..0exp", "cannot touch a rate of 0"), ("5s@0,6s@0", "every stage is a pause"),
    ("9e8s@1,9e8s@1", "at most 1e\\+09"), (",".join(["1s@1"] * 1001), "at most 1000 stages"),
])
def test_stages_that_cannot_be_are_refused(text: str, complaint: str) -> None:
    """Zero, negative, endless and empty stages are the user's error, in one line."""
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_stages(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "complaint"), [
    ({}, "either one request rate or stages"),
    ({"profile": parse_stages("1s@1"), "rate_rps": 1}, "either one request rate or stages"),
    ({"profile": parse_stages("1s@1"), "duration_s": 1}, "leave out the duration"),
    ({"profile": parse_stages("1e8s@1e3")}, "more than 5000000 requests"),
    ({"profile": parse_stages("1s@1e-9")}, "no request falls into the measured part"),
    ({"profile": parse_stages("1s@1e-300"), "num_prompts": 3}, "after a century"),
    ({"profile": parse_stages("1s@1e-300"), "num_prompts": 1, "num_warmups": 1}, "after a century"),
])
def test_profiles_that_cannot_be_planned_are_refused(arguments: dict[str, Any], complaint: str) -> None:
    """A profile has a length of its own, a finite number of requests, and stands instead of a rate."""
    with pytest.raises(UsageError, match=complaint):
        build_plan(_TINY, **({"seed": 0} | arguments))


@pytest.mark.parametrize(("strategy", "start", "end"), [
    ("linear", 1, 9), ("linear", 0, 4), ("exponential", 1, 16), ("linear", 3, 3), ("exponential", 3, 3)])
def test_vllms_ramp_flags_make_one_stage_over_the_run(strategy: str, start: float, end: float) -> None:
    """From start to end rate within the time that the requests take, exactly so with constant gaps."""
    profile = RateProfile.ramp(strategy, start, end, num_prompts=100)
    (stage,) = profile.stages
    assert profile.expected() == pytest.approx(100)
    plan = build_plan(_TINY, profile=profile, seed=0, num_prompts=100, burstiness=math.inf)
    assert plan.intended_ns[-1] / 1e9 == pytest.approx(stage.duration_s)
    assert set(plan.stage.tolist()) == {0}
    timed = RateProfile.ramp(strategy, start, end, duration_s=7)
    assert timed.stages[0] == Stage(7, start, end, strategy)


def test_vllms_linear_ramp_is_our_exponential() -> None:
    """Its rate is linear in the request's number: dn/dt grows by equal factors in time."""
    n, start, end = 20_000, 2.0, 10.0
    vllm_s = np.cumsum(1 / (start + (end - start) * np.arange(n) / (n - 1)))
    ours = build_plan(_TINY, profile=RateProfile.ramp("exponential", start, end, num_prompts=n), seed=0,
                      num_prompts=n, burstiness=math.inf)
    np.testing.assert_allclose(ours.intended_ns / 1e9, vllm_s, rtol=1e-3)


@pytest.mark.parametrize(("arguments", "complaint"), [
    (("steep", 1, 2), "unknown --ramp-up-strategy 'steep'"), (("linear", 0, 0), "sends nothing"),
    (("exponential", 0, 2), "cannot touch a rate of 0"), (("linear", -1, 2), "rate of a stage is 0"),
])
def test_ramps_that_cannot_be_are_refused(arguments: tuple[str, float, float], complaint: str) -> None:
    """As vLLM refuses them, in one line."""
    with pytest.raises(UsageError, match=complaint):
        RateProfile.ramp(*arguments, num_prompts=10)
    with pytest.raises(UsageError, match="either a number of requests or a duration"):
        RateProfile.ramp("linear", 1, 2)
