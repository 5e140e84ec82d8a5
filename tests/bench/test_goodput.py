import numpy as np
import pytest

from bench.goodput import GoodputRules, judge_requests
from workloads.errors import UsageError


def test_rules_are_vllms_in_milliseconds() -> None:
    """The flag's text becomes nanoseconds under our names; fluidity is a fraction to reach."""
    rules = GoodputRules.parse("ttft:200 tpot:50.5 e2el:10000 fluidity:0.9")
    assert rules.at_most_ns == {"ttft": 200_000_000, "tpot": 50_500_000, "e2e": 10_000_000_000}
    assert rules.fluidity_at_least == 0.9
    assert rules.needs_deadlines
    assert not GoodputRules.parse(["ttft:200", "tbt:100"]).needs_deadlines


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no goodput rule"),
        ("ttft=200", "not NAME:MILLISECONDS"),
        ("latency:200", "known: ttft"),
        ("ttft:200 ttft:300", "given twice"),
        ("e2e:200 e2el:300", "given twice"),
        ("ttft:1e999", "number of milliseconds"),
        ("ttft:-5", "number of milliseconds"),
        ("ttft:1e", "number of milliseconds"),
        ("fluidity:90", "a fraction from 0 to 1"),
    ],
)
def test_bad_rules_are_refused(text: str, says: str) -> None:
    """One line that says what is wrong with which rule."""
    with pytest.raises(UsageError, match=says):
        GoodputRules.parse(text)


def test_a_request_is_good_only_if_every_rule_holds() -> None:
    """On the limit is good; what nothing can judge is open unless another rule is broken."""
    rules = GoodputRules.parse("ttft:200 tpot:50 fluidity:0.9")
    found = judge_requests(rules, {
        "ttft": np.array([200, 200, 201, 200, 300]) * 1e6,
        "tpot": np.array([50, 51, 50, np.nan, np.nan]) * 1e6,
        "fluidity": np.array([0.9, 1, 1, 1, 1]),
    })
    assert found.good.tolist() == [True, False, False, False, False]
    assert found.undetermined.tolist() == [False, False, False, True, False]
