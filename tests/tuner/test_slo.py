"""Objectives: what is accepted, what is refused with which advice, and how a run is judged."""

import json
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalog import CATALOG
from tuner.slo import VIOLATION_CAP, Judgement, Objective, Slo, parse_objective, parse_slo
from workloads.errors import EvidenceError, UsageError


@dataclass(frozen=True)
class Measured:
    value: float | None
    n: int = 1000
    why_missing: str | None = None


@dataclass(frozen=True)
class Run:
    """Figures by key; every other one is missing."""

    figures: dict[str, Measured] = field(default_factory=dict)

    def figure(self, metric: str, stat: str | None = None) -> Measured:
        key = metric if stat is None else f"{metric}:{stat}"
        return self.figures.get(key, Measured(None, 0, f"{key} has no samples"))


@st.composite
def objectives(draw: st.DrawFn) -> Objective:
    metric = draw(st.sampled_from(list(CATALOG.values())))
    stat = None
    if metric.statistics:
        stat = draw(st.sampled_from(metric.statistics))
        if stat == "pNN":
            stat = f"p{draw(st.integers(1, 999)) / 10:g}"
    op = "<=" if metric.better == "lower" or stat == "std" else ">="
    unit = metric.unit_of(stat)
    if unit == "ns":
        limit: float = draw(st.integers(0 if op == "<=" else 1, 2**63 - 1))
    else:
        top = 1.0 if unit == "fraction" else 1e12
        limit = draw(st.floats(1e-9, top, exclude_max=True))
    return Objective(metric.name, stat, op, limit)


@pytest.mark.parametrize(("text", "canonical"), [
    ("tbt:p99<=100ms", "tbt:p99<=100ms"),
    ("  TBT : p99 <= 0.1 s ", "tbt:p99<=100ms"),
    ("tbt:p99<=1.5e5us", "tbt:p99<=150ms"),
    ("tbt:p99<=1500000ns", "tbt:p99<=1.5ms"),
    ("ttft:p50<=2s", "ttft:median<=2s"),
    ("tbt:p99:le:100", "tbt:p99<=100ms"),
    ("error_rate:le:0.01", "error_rate<=0.01"),
    ("fluidity:p1:ge:0.9", "fluidity:p1>=0.9"),
    ("p99_itl_ms<=50", "itl:p99<=50ms"),
    ("median_e2el_ms<=2s", "e2e:median<=2s"),
    ("request_goodput>=3", "goodput:rate>=3req/s"),
    ("error_rate<=1%", "error_rate<=0.01"),
    ("goodput:attainment>=99 %", "goodput:attainment>=0.99"),
    ("goodput:token_rate>=5tok/s", "goodput:token_rate>=5tok/s"),
    ("fluid_token_rate>=12.5", "fluid_token_rate>=12.5tok/s"),
    ("stall:count<=3", "stall:count<=3"),
    ("fluidity:std<=0.1", "fluidity:std<=0.1"),
])
def test_accepted_forms(text: str, canonical: str) -> None:
    """Every documented form, in any case and spacing, has one canonical spelling."""
    objective = parse_objective(text)
    assert str(objective) == canonical
    assert objective.text == text.strip()


@pytest.mark.parametrize(("text", "advice"), [
    ("tbt:p99<=100", "write tbt:p99<=100ms"),
    ("tbt:p99>=100ms", "tbt:p99 is better lower: write tbt:p99<=100ms"),
    ("fluidity:p1<=0.9", "fluidity:p1 is better higher: write fluidity:p1>=0.9"),
    ("tbt:p99:ge:100", "write tbt:p99<=100ms"),
    ("tbtt:p99<=100ms", "unknown metric 'tbtt'; known: ttft"),
    ("tbt:p100<=100ms", "unknown statistic 'p100' of tbt; known: tbt:mean"),
    ("tbt<=100ms", "tbt needs a statistic"),
    ("error_rate:p99<=0", "error_rate is a single figure"),
    ("tbt:p99<=100min", "unknown unit 'min' for tbt:p99; known: ns, us, ms, s"),
    ("goodput:rate>=3tok/s", "known: none, req/s"),
    ("error_rate<=1", "write a percentage as 1% or 0.01"),
    ("fluidity:p1>=90", "write a percentage as"),
    ("fluidity:p1>=0", "always holds"),
    ("tbt:p99<=nan", "cannot read the limit"),
    ("tbt:p99<=infms", "cannot read the limit"),
    ("request_throughput>=1e999", "cannot read the limit"),
    ("tbt:p99<=1e9999999999ms", "cannot read the limit"),
    ("tbt:p99<=-5ms", "is negative"),
    ("tbt:p99<=0.5ns", "whole number of nanoseconds"),
    ("tbt:p99<=300000000000s", "below 292 years"),
    ("tbt:p99<100ms", "write METRIC:STAT<=VALUE"),
    ("50ms<=tbt:p99<=100ms", "write METRIC:STAT<=VALUE"),
    ("ttft:200", "write METRIC:STAT<=VALUE"),
    ("", "write METRIC:STAT<=VALUE"),
])
def test_refused_forms_say_what_to_write(text: str, advice: str) -> None:
    """What cannot be meant is refused in one line that says what to write."""
    with pytest.raises(UsageError) as refused:
        parse_objective(text)
    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)


@settings(deadline=None)
@given(st.text(max_size=40) | st.from_regex(
    r"\s?(tbt|fluidity|goodput|error_rate)(:p?[0-9a-z.]{1,5})?(<=|>=|:le:)[0-9.e+-]{1,9}[a-z%/]{0,5}"))
def test_any_text_parses_or_is_refused(text: str) -> None:
    """Whatever is typed becomes an objective or a usage error, never another exception."""
    try:
        objective = parse_objective(text)
    except UsageError:
        return
    assert parse_objective(str(objective)) == objective


@settings(deadline=None)
@given(objectives())
def test_the_canonical_form_parses_back(objective: Objective) -> None:
    """`str` of an objective parses to an equal objective."""
    assert parse_objective(str(objective)) == objective


@settings(deadline=None)
@given(objectives(), st.floats(0, 1e300))
def test_violation_is_above_zero_exactly_when_missed(objective: Objective, observed: float) -> None:
    """The sign of a violation never disagrees with the comparison, however near or far the value is."""
    missed = observed > objective.limit if objective.op == "<=" else observed < objective.limit
    violation = objective.violation(observed)
    assert (violation > 0) == missed
    assert abs(violation) <= VIOLATION_CAP


@pytest.mark.parametrize(("text", "observed", "violation"), [
    ("tbt:p99<=100ms", 150e6, 0.5),
    ("tbt:p99<=100ms", 100e6, 0.0),
    ("tbt:p99<=100ms", 1e15, VIOLATION_CAP),
    ("fluidity:p1>=0.8", 0.4, 0.5),
    ("fluidity:p1>=0.5", 1.0, -1.0),
    ("error_rate<=0", 0.25, 0.25),
    ("tbt:p99<=0ms", 5e8, 0.5),
])
def test_violation_is_a_share_of_the_limit(text: str, observed: float, violation: float) -> None:
    """Violations are dimensionless, so that milliseconds cannot outweigh fractions in their sum."""
    assert parse_objective(text).violation(observed) == pytest.approx(violation)


def test_violations_do_not_depend_on_the_unit() -> None:
    """Missing a limit by half is the same violation for a TTFT in seconds and a TBT in microseconds."""
    slow, fast = parse_objective("ttft:p99<=2s"), parse_objective("tbt:p99<=20us")
    assert slow.violation(3e9) == fast.violation(30e3) == 0.5


def test_failed_requests_break_every_slo_unless_allowed() -> None:
    """An SLO without an error-rate objective promises that no request fails, and shows it."""
    strict, lenient = parse_slo(["tbt:p99<=100ms"]), parse_slo(["tbt:p99<=100ms", "error_rate<=5%"])
    run = Run({"tbt:p99": Measured(50e6), "error_rate": Measured(0.02)})
    assert str(strict) == "tbt:p99<=100ms, error_rate<=0"
    assert [objective.implicit for objective in strict.objectives] == [False, True]
    assert not strict.judge(run).holds
    assert lenient.judge(run).holds
    assert lenient.constraint_keys() == ("error_rate", "tbt:p99")


def test_a_missing_figure_does_not_hold() -> None:
    """No samples: the objective is not met, at the cap, and says why."""
    judgement = parse_slo(["tbt:p99<=100ms"]).judge(Run({"error_rate": Measured(0.0)}))
    assert not judgement.holds
    worst = judgement.worst()
    assert (worst.observed, worst.violation, worst.why) == (None, VIOLATION_CAP, "tbt:p99 has no samples")
    assert json.loads(json.dumps(judgement.as_dict()))["objectives"][0]["observed"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_figure_that_is_no_number_does_not_hold(value: float) -> None:
    """NaN and infinity count as missing, so constraints stay finite."""
    judgement = parse_slo(["tbt:p99<=100ms"]).judge(Run({"tbt:p99": Measured(value)}))
    assert judgement.constraints() == {"error_rate": VIOLATION_CAP, "tbt:p99": VIOLATION_CAP}


def test_constraints_come_in_order_of_their_keys() -> None:
    """The order in which objectives are written does not change the order of the constraints."""
    texts = ["ttft:p99<=2s", "tbt:p99<=100ms", "error_rate<=0", "fluidity:p1>=0.9"]
    run = Run()
    expected = ["error_rate", "fluidity:p1", "tbt:p99", "ttft:p99"]
    assert list(parse_slo(texts).judge(run).constraints()) == expected
    assert list(parse_slo(texts[::-1]).judge(run).constraints()) == expected


@pytest.mark.parametrize(("texts", "advice"), [
    ([], "needs an objective"),
    (["tbt:p99<=100ms", "tbt:p99<=50ms"], "tbt:p99 has two objectives, tbt:p99<=100ms and tbt:p99<=50ms"),
    (["tbt:p99<=1ms", "tbt:p99<=1ms"], "tbt:p99 has two objectives"),
    (["tbt:p50<=1ms", "tbt:median<=1ms"], "tbt:median has two objectives"),
    (["error_rate<=0", "error_rate<=1%"], "error_rate has two objectives"),
])
def test_empty_and_contradicting_slos_are_refused(texts: list[str], advice: str) -> None:
    """One figure has one limit, and there is at least one."""
    with pytest.raises(UsageError, match=advice):
        parse_slo(texts)


@settings(deadline=None)
@given(st.lists(objectives(), min_size=1, max_size=5, unique_by=lambda o: o.key), st.data())
def test_judgements_survive_json(chosen: list[Objective], data: st.DataObject) -> None:
    """A judgement read back from JSON equals the one written; times are milliseconds there."""
    slo = Slo(tuple(chosen))
    values = st.none() | st.integers(0, 10**15).map(float)
    run = Run({o.key: Measured(data.draw(values), 7, "none") for o in slo.objectives})
    judgement = slo.judge(run)
    assert Judgement.from_dict(json.loads(json.dumps(judgement.as_dict(), allow_nan=False))) == judgement


def test_times_in_json_are_milliseconds() -> None:
    """Observed value and limit of a time are written in milliseconds, beside the user's own words."""
    judgement = parse_slo(["tbt:p99 <= 0.05s"]).judge(Run({"tbt:p99": Measured(40e6)}))
    shown = judgement.as_dict()["objectives"][0]
    assert (shown["unit"], shown["observed"], shown["limit"]) == ("ms", 40.0, 50.0)
    assert (shown["objective"], shown["text"]) == ("tbt:p99<=50ms", "tbt:p99 <= 0.05s")


@pytest.mark.parametrize("broken", [{}, {"objectives": [{}]}, {"objectives": [{"objective": "x", "text": "",
                                                                               "implicit": False}]}])
def test_a_broken_judgement_is_no_evidence(broken: dict[str, object]) -> None:
    """JSON that is no judgement is refused as evidence."""
    with pytest.raises(EvidenceError, match="no judgement"):
        Judgement.from_dict(broken)
