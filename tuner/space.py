"""The settings a tuning may try: ordered choices per knob, and when two settings are one."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

from engine_adapter.knobs import KnobLimits, Knobs
from workloads.errors import UsageError

_GRID_RATIO = 2**0.5
"""Neighbouring choices differ by about this factor: step time grows with tokens, so finer steps of
a large budget cannot be told apart, and coarser ones miss the optimum by up to half."""
_THRESHOLD_CHOICES = 4
_MAX_SEQS_CHOICES = 4
_KNOB_CHOICES = ("token_budgets", "max_seqs", "thresholds", "adaptive")
"""Names of the search parameters, one per knob, in the order of the fields of SearchSpace."""


class Suggester(Protocol):
    """The one call of an Optuna trial that a space needs."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        ...


def geometric_choices(low: int, high: int, tile: int = 1) -> tuple[int, ...]:
    """Multiples of `tile` from about `low` to `high`, each about 1.41 times the one before; `low` and
    `high` themselves are always included. Sorted, without repeats; shape (at least 1,)."""
    choices = {low, high}
    value = float(low)
    while value < high:
        choices.add(min(max(round(value / tile) * tile, low), high))
        value *= _GRID_RATIO
    return tuple(sorted(choices))


def parse_choices(text: str, tile: int = 1) -> tuple[int, ...]:
    """The integers that `64,128,256`, `32..512` or a mix of both names; sorted, without repeats.

    A range is a geometric grid of multiples of `tile` (`geometric_choices`). Refused with a
    UsageError: anything else, numbers of more than nine digits, and ranges that start at 0 or
    run backwards.
    """
    choices: set[int] = set()
    for item in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:\.\.\s*([0-9]{1,9})\s*)?", item)
        if match is None:
            raise UsageError(f"cannot read {item.strip()!r} in {text!r}: write 64,128,256 or 32..512")
        low = int(match[1])
        high = low if match[2] is None else int(match[2])
        if match[2] is not None and not 1 <= low <= high:
            raise UsageError(f"the range {item.strip()} must rise from at least 1; "
                             f"list 0 beside it, as in 0,32..512")
        choices.update(geometric_choices(low, high, tile))
    return tuple(sorted(choices))


@dataclass(frozen=True)
class SearchSpace:
    """Choices per knob; a setting is one of each, reduced to its simplest equal (`normalise`).

    Sorted and freed of repeats on construction; a threshold of 0 (off) is always a choice. Refused
    with a UsageError: no choices, choices below the least or above the engine's limits, and a
    budget below every choice of `max_seqs` (vLLM refuses fewer tokens than sequences).
    """

    token_budgets: tuple[int, ...]
    max_seqs: tuple[int, ...]
    thresholds: tuple[int, ...]
    adaptive: tuple[bool, ...]
    limits: KnobLimits
    longest_prompt: int
    """Tokens; a long-prefill threshold at or above it never acts."""
    policy: str = "fcfs"

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", (0, *self.thresholds))
        for name in _KNOB_CHOICES:
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if not (self.token_budgets and self.max_seqs and self.adaptive):
            raise UsageError("the search space is empty: give at least one token budget and one --max-seqs")
        if self.token_budgets[0] < self.max_seqs[0]:
            raise UsageError(
                f"a token budget of {self.token_budgets[0]} is below the smallest --max-seqs choice of "
                f"{self.max_seqs[0]}: start budgets at {self.max_seqs[0]} or add a smaller --max-seqs"
            )
        if self.max_seqs[0] < 1 or self.thresholds[0] < 0:
            raise UsageError("token budgets and --max-seqs start at 1, long-prefill thresholds at 0 (off)")
        for name, choices, ceiling, flag in (
            ("token budget", self.token_budgets, self.limits.token_budget, "max_num_batched_tokens"),
            ("--max-seqs choice", self.max_seqs, self.limits.max_seqs, "max_num_seqs"),
            ("long-prefill threshold", self.thresholds, self.limits.max_model_len, "max_model_len"),
        ):
            if choices[-1] > ceiling:
                raise UsageError(f"a {name} of {choices[-1]} is above the engine's {flag} of {ceiling}: "
                                 f"leave it out or start the engine with more")

    @classmethod
    def for_engine(
        cls,
        default: Knobs,
        limits: KnobLimits,
        *,
        longest_prompt: int,
        expected_concurrency: int | None = None,
        min_budget: int = 32,
        max_budget: int | None = None,
        tile: int = 16,
    ) -> Self:
        """A space around the engine's default, which is always part of it.

        Budgets are multiples of `tile` (tokens) on a geometric grid up to the engine's limit;
        active sequences halve from the limit, or from the first power of two at or above
        `expected_concurrency` (requests) since more never run; thresholds halve from the largest
        value that can act.
        """
        most_seqs = limits.max_seqs
        if expected_concurrency is not None:
            most_seqs = min(most_seqs, 1 << max(expected_concurrency - 1, 0).bit_length())
        high = min(max_budget or limits.token_budget, limits.token_budget)
        seqs = _halvings(min(most_seqs, high), _MAX_SEQS_CHOICES)
        low = min(-(-max(min_budget, seqs[-1]) // tile) * tile, high)
        ceiling = min(high, longest_prompt, limits.max_model_len)
        thresholds = tuple(t // tile * tile for t in _halvings(ceiling, _THRESHOLD_CHOICES + 1)[1:])
        return cls(
            token_budgets=geometric_choices(low, high, tile),
            max_seqs=seqs,
            thresholds=thresholds,
            adaptive=(False, True) if any(thresholds) else (False,),
            limits=limits,
            longest_prompt=longest_prompt,
            policy=default.policy,
        ).including(default)

    def including(self, *settings: Knobs) -> Self:
        """This space with the values of `settings` among its choices; refuses what the limits refuse."""
        simple = [self.normalise(knobs) for knobs in settings]
        return replace(
            self,
            token_budgets=(*self.token_budgets, *(k.token_budget for k in simple)),
            max_seqs=(*self.max_seqs, *(k.max_seqs for k in simple)),
            thresholds=(*self.thresholds, *(k.long_prefill_token_threshold for k in simple)),
            adaptive=(*self.adaptive, *(k.adaptive_long_prefill for k in simple)),
        )

    def normalise(self, knobs: Knobs) -> Knobs:
        """The simplest setting that schedules exactly like `knobs`; idempotent.

        vLLM cuts a prefill chunk to the threshold before it cuts it to the budget, and never below
        what is left of the prompt: at or above either, a threshold is off. Without a threshold
        there is nothing to adapt.
        """
        threshold = knobs.long_prefill_token_threshold
        if threshold >= min(knobs.token_budget, self.longest_prompt):
            threshold = 0
        return replace(knobs, long_prefill_token_threshold=threshold,
                       adaptive_long_prefill=knobs.adaptive_long_prefill and threshold > 0)

    def suggest(self, trial: Suggester) -> Knobs:
        """The normalised setting that `trial` picks, by one index per knob.

        Ranges of the indices never depend on one another, as a multivariate sampler needs. Where
        a budget cannot carry the picked sequences, the largest choice that it carries is taken.
        """
        return self.knobs_at({name: trial.suggest_int(name, 0, len(getattr(self, name)) - 1)
                              for name in _KNOB_CHOICES})

    def knobs_at(self, params: Mapping[str, int]) -> Knobs:
        """The normalised setting at these indices; the inverse of `params_of`."""
        picked = {name: getattr(self, name)[params[name]] for name in _KNOB_CHOICES}
        budget = picked["token_budgets"]
        return self.normalise(Knobs(
            token_budget=budget,
            max_seqs=min(picked["max_seqs"], self._seqs_within(budget)),
            long_prefill_token_threshold=picked["thresholds"],
            adaptive_long_prefill=picked["adaptive"],
            policy=self.policy,
        ))

    def params_of(self, knobs: Knobs) -> dict[str, int]:
        """Index per knob of a setting of this space; a UsageError names the value that is not in it."""
        simple = self.normalise(knobs)
        values = (simple.token_budget, simple.max_seqs, simple.long_prefill_token_threshold,
                  simple.adaptive_long_prefill)
        params = {}
        for name, value in zip(_KNOB_CHOICES, values, strict=True):
            choices: Sequence[int] = getattr(self, name)
            # A setting without a threshold has no adaptive flag; any index stands for it.
            if name == "adaptive" and not simple.long_prefill_token_threshold:
                params[name] = 0
            elif value in choices:
                params[name] = choices.index(value)
            else:
                raise UsageError(f"{simple.label()} is outside the search space: {name} has {choices}")
        if simple.policy != self.policy:
            raise UsageError(f"{simple.label()} is outside the search space: its policy is {self.policy}")
        return params

    @cached_property
    def settings(self) -> tuple[Knobs, ...]:
        """Every setting once, in order of budget, sequences, threshold, adaptive flag."""
        ranges = (range(len(getattr(self, name))) for name in _KNOB_CHOICES)
        every = (self.knobs_at(dict(zip(_KNOB_CHOICES, index, strict=True)))
                 for index in itertools.product(*ranges))
        return tuple(dict.fromkeys(every))

    def __len__(self) -> int:
        return len(self.settings)

    def distance(self, one: Knobs, other: Knobs) -> int:
        """Steps between neighbouring choices from one setting to the other, summed over the knobs."""
        there = self.params_of(other)
        return sum(abs(index - there[name]) for name, index in self.params_of(one).items())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; equal for equal spaces."""
        choices = {name: list(getattr(self, name)) for name in _KNOB_CHOICES}
        return choices | {"longest_prompt": self.longest_prompt, "policy": self.policy}

    def _seqs_within(self, budget: int) -> int:
        return max(seqs for seqs in self.max_seqs if seqs <= budget)


def _halvings(top: int, count: int) -> tuple[int, ...]:
    return tuple(max(top >> power, 1) for power in range(count))
