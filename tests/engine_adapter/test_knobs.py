"""Knobs are vLLM's settings under vLLM's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.knobs import KnobLimits, Knobs
from workloads.errors import UsageError

any_knobs = st.builds(
    lambda seqs, more, cap, adaptive: Knobs(seqs + more, seqs, cap, adaptive),
    st.integers(1, 512), st.integers(0, 8192), st.integers(0, 4096), st.booleans(),
)


@given(any_knobs)
def test_knobs_survive_json(knobs: Knobs) -> None:
    """What is saved is what was set."""
    assert Knobs.from_dict(knobs.as_dict()) == knobs


def test_a_budget_below_the_active_sequences_is_refused_with_both_ways_out() -> None:
    """Running decodes would be left out of steps, as vLLM's own check says."""
    with pytest.raises(UsageError, match=r"64.*128.*--max-num-batched-tokens.*--max-num-seqs"):
        Knobs(token_budget=64, max_seqs=128)


def test_flags_are_vllms_own_and_leave_defaults_out() -> None:
    """The command a user copies names only what matters."""
    assert Knobs(64, 16).serve_flags() == ["--max-num-batched-tokens", "64", "--max-num-seqs", "16"]
    assert Knobs(64, 16, 32, True).serve_flags()[4:] == [
        "--long-prefill-token-threshold", "32", "--long-prefill-token-threshold-adaptive"]


@given(any_knobs)
def test_limits_refuse_exactly_what_is_above_them(knobs: Knobs) -> None:
    """Start-up values are ceilings for live ones."""
    limits = KnobLimits(2048, 128, 2048)
    fits = (knobs.token_budget <= 2048 and knobs.max_seqs <= 128
            and knobs.long_prefill_token_threshold <= 2048)
    assert (limits.refusal(knobs) is None) == fits
