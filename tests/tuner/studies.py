"""Small studies for the sampler's tests: a space, an SLO and made-up measurements."""

from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial

from engine_adapter.knobs import KnobLimits, Knobs
from tuner.sampler import Proposal, Proposals
from tuner.slo import parse_slo
from tuner.space import SearchSpace
from tuner.trial import Outcome, TrialRecord

SLO = parse_slo(["ttft:p99<=2s", "tbt:p99<=100ms"])
KEYS = ["error_rate", "tbt:p99", "ttft:p99"]
DEFAULT = Knobs(512, 16)
LIMITS = KnobLimits(token_budget=512, max_seqs=16, max_model_len=1024)
SPACE = SearchSpace.for_engine(DEFAULT, LIMITS, longest_prompt=600)
SMALL = SearchSpace((32, 64, 128), (8,), (), (False,), LIMITS, longest_prompt=600)


def opened(path: Path, space: SearchSpace = SPACE, seed: int = 1, **options: object) -> Proposals:
    options = {"slo": SLO, "default": DEFAULT if space is SPACE else SMALL.settings[-1]} | options
    return Proposals(path, study="s", space=space, seed=seed, **options)


def measured(proposal: Proposal, number: int, capacity: float, tbt: float = -0.5) -> TrialRecord:
    """A trial with that capacity; constraints in an order that is not sorted."""
    holds = tbt <= 0
    return TrialRecord(
        number=number, knobs=proposal.knobs, source=proposal.source,
        outcome=Outcome.OK if holds else Outcome.SLO_VIOLATED, capacity_rps=capacity if holds else None,
        constraints={"ttft:p99": -0.1, "tbt:p99": tbt, "error_rate": 0.0}, seconds=60.0,
    )


def crashed(proposal: Proposal, number: int) -> TrialRecord:
    return TrialRecord(number=number, knobs=proposal.knobs, source=proposal.source, outcome=Outcome.CRASHED,
                       seconds=5.0, note="the engine died")


def surface(proposal: Proposal, number: int) -> TrialRecord:
    """Budgets above 128 crash, 128 itself breaks TBT, and below it 96 with a cap of 64 carries most."""
    knobs = proposal.knobs
    if knobs.token_budget > 128:
        return crashed(proposal, number)
    cap = knobs.long_prefill_token_threshold
    capacity = 10.0 - (96 - knobs.token_budget) / 16 - (0 if cap == 64 else 1) - (16 - knobs.max_seqs) / 4
    return measured(proposal, number, max(capacity, 0.5), tbt=knobs.token_budget / 100 - 1)


def explore(proposals: Proposals, asks: int,
            answer: Callable[[Proposal, int], TrialRecord] = surface) -> list[TrialRecord]:
    for _ in range(asks):
        proposal = proposals.ask()
        if proposal is None:
            break
        proposals.tell(proposal, answer(proposal, len(proposals.finished())))
    return proposals.finished()


def raw_trials(path: Path) -> list[FrozenTrial]:
    """The trials as Optuna itself sees them."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    return optuna.load_study(study_name="s", storage=storage).trials
