"""Settings as text: what is understood, what is refused, what is left to the default."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.knobs import Knobs
from tuner.knobs_asked import KnobsAsked
from tuner.knobs_text import SettingAsked, parse_policy, parse_setting
from workloads.errors import UsageError

DEFAULT = Knobs(8192, 1024)


@pytest.mark.parametrize(("text", "knobs", "rule"), [
    ("token_budget=512,max_seqs=64", {"token_budget": 512, "max_seqs": 64}, None),
    ("max-num-batched-tokens=512, max_num_seqs = 64", {"token_budget": 512, "max_seqs": 64}, None),
    ("long_prefill_token_threshold=off,adaptive_long_prefill=true",
     {"long_prefill_token_threshold": 0, "adaptive_long_prefill": True}, None),
    ("adaptive_long_prefill=0", {"adaptive_long_prefill": False}, None),
    ("policy=priority", {"policy": "priority"}, None),
    ("policy=sarathi-serve,token_budget=64,", {"token_budget": 64}, "sarathi-serve"),
])
def test_pairs_become_knobs_and_a_rule(text, knobs, rule):
    """Names of ours and of vLLM; a policy is the order of the queue or a rule, by its name."""
    assert parse_setting(text) == SettingAsked(KnobsAsked(**knobs), rule)


@pytest.mark.parametrize(("text", "told"), [
    ("budget=5", "known: token_budget, max_seqs, long_prefill_token_threshold"),
    ("token_budget", "NAME=VALUE"), ("token_budget=", "NAME=VALUE"), ("", "empty"), (",", "empty"),
    ("token_budget=1e3", "whole number"), ("token_budget=8,token_budget=9", "twice"),
    ("policy=orca,policy=vllm-v0", "twice"), ("policy=lifo", "vllm-v1, sarathi-serve"),
    ("adaptive_long_prefill=maybe", "true or false"),
])
def test_what_is_no_setting_is_refused_in_one_line(text, told):
    """A typo lists the names that exist; every other mistake says what to write."""
    with pytest.raises(UsageError, match=told) as refused:
        parse_setting(text)
    assert "\n" not in str(refused.value)


def test_a_flag_holds_for_every_setting_and_is_named_once():
    """The flags lie below --knobs; the same name in both is a contradiction."""
    below = SettingAsked(KnobsAsked(max_seqs=64), "orca")
    assert parse_setting("token_budget=512").over(below) == SettingAsked(
        KnobsAsked(token_budget=512, max_seqs=64), "orca")
    for text in ("max_seqs=8", "policy=vllm-v0"):
        with pytest.raises(UsageError, match="keep one"):
            parse_setting(text).over(below)


def test_a_policy_is_a_rule_or_the_order_of_the_queue():
    """--policy takes both kinds of names; --scheduling-policy takes vLLM's two."""
    assert parse_policy("priority") == SettingAsked(KnobsAsked(policy="priority"))
    assert parse_policy("orca", "priority") == SettingAsked(KnobsAsked(policy="priority"), "orca")
    assert parse_policy(None) == SettingAsked(KnobsAsked())
    for name, queue in (("fcfs", "priority"), ("lifo", None), (None, "orca")):
        with pytest.raises(UsageError):
            parse_policy(name, queue)


def test_a_budget_alone_lowers_the_default_of_sequences_as_vllm_does():
    """vLLM's default of sequences is never above the budget; one that was named is never changed."""
    assert parse_setting("token_budget=256").on(DEFAULT) == Knobs(256, 256)
    assert parse_setting("token_budget=2048").on(DEFAULT) == Knobs(2048, 1024)
    with pytest.raises(UsageError, match="--max-num-seqs"):
        parse_setting("token_budget=256,max_seqs=512").on(DEFAULT)
    with pytest.raises(UsageError):
        parse_setting("token_budget=0").on(DEFAULT)


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(0, 10**5), st.booleans())
def test_what_is_written_is_read(budget, seqs, threshold, adaptive):
    """Every setting that can be written comes back as it was meant."""
    found = parse_setting(f"token_budget={budget},max_seqs={seqs},long_prefill_token_threshold={threshold},"
                          f"adaptive_long_prefill={adaptive}").knobs
    assert (found.token_budget, found.max_seqs) == (budget, seqs)
    assert (found.long_prefill_token_threshold, found.adaptive_long_prefill) == (threshold, adaptive)
