"""Which draft tokens are accepted: chance that depends on nothing but its arguments."""

from engine_adapter.simulator.kernel_steps import accepted_drafts
from engine_adapter.simulator.state_arrays import acceptance_bound


def accepted(seed: int, row: int, num_output_tokens: int, num_drafts: int, draft_acceptance: float) -> int:
    """How many of `num_drafts` draft tokens are accepted when request `row` has `num_output_tokens`:
    each with the chance `draft_acceptance`, if those before it were. The same in every process."""
    return int(accepted_drafts(seed, row, num_output_tokens, num_drafts, acceptance_bound(draft_acceptance)))
