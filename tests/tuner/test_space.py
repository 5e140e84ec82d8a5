"""The search space: valid settings only, each once, and the ways to write choices."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.knobs import KnobLimits, Knobs
from tuner.space import SearchSpace, geometric_choices, parse_choices
from workloads.errors import UsageError

LIMITS = KnobLimits(token_budget=512, max_seqs=16, max_model_len=1024)
DEFAULT = Knobs(512, 16)


class Picks:
    """A trial that picks indices by chance and remembers the ranges it was asked for."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.ranges: dict[str, tuple[int, int]] = {}

    def suggest_int(self, name: str, low: int, high: int) -> int:
        self.ranges[name] = (low, high)
        return self._random.randint(low, high)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    limits = KnobLimits(draw(st.integers(1, 10_000)), draw(st.integers(1, 300)), draw(st.integers(1, 10_000)))
    budget = draw(st.integers(1, limits.token_budget))
    default = Knobs(
        budget,
        draw(st.integers(1, min(budget, limits.max_seqs))),
        draw(st.integers(0, limits.max_model_len)),
        draw(st.booleans()),
        draw(st.sampled_from(["fcfs", "priority"])),
    )
    return SearchSpace.for_engine(
        default,
        limits,
        longest_prompt=draw(st.integers(1, 10_000)),
        expected_concurrency=draw(st.none() | st.integers(0, 500)),
        min_budget=draw(st.integers(1, 600)),
        max_budget=draw(st.none() | st.integers(1, 20_000)),
        tile=draw(st.sampled_from([1, 16, 128])),
    ).including(default)


@settings(deadline=None)
@given(spaces(), st.integers())
def test_every_suggestion_is_valid_within_the_limits(space: SearchSpace, seed: int) -> None:
    """Whatever indices are picked, the setting is one that vLLM takes, in its simplest form."""
    knobs = space.suggest(Picks(seed))
    assert space.limits.refusal(knobs) is None
    assert knobs.max_seqs <= knobs.token_budget
    assert space.normalise(knobs) == knobs
    assert space.knobs_at(space.params_of(knobs)) == knobs
    assert knobs.policy == space.policy


@settings(deadline=None)
@given(spaces(), st.integers())
def test_ranges_are_the_same_for_every_trial(space: SearchSpace, seed: int) -> None:
    """No picked index changes the range of another one: multivariate sampling needs that."""
    one, other = Picks(seed), Picks(seed + 1)
    space.suggest(one)
    space.suggest(other)
    assert one.ranges == other.ranges


@settings(deadline=None)
@given(st.integers(1, 600), st.integers(0, 700), st.booleans())
def test_normalise_is_idempotent_and_off_is_one_setting(budget: int, threshold: int, adaptive: bool) -> None:
    """A threshold that cannot act is 0, nothing adapts without one, and simplifying twice changes nothing."""
    space = SearchSpace.for_engine(DEFAULT, LIMITS, longest_prompt=300)
    simple = space.normalise(Knobs(budget, 1, threshold, adaptive))
    assert space.normalise(simple) == simple
    acts = 0 < threshold < min(budget, 300)
    assert simple.long_prefill_token_threshold == (threshold if acts else 0)
    assert simple.adaptive_long_prefill == (adaptive and acts)


def test_settings_are_listed_once_and_all_reachable() -> None:
    """The settings are exactly what picks can reach; the count says how large the search is."""
    limits = KnobLimits(token_budget=64, max_seqs=48, max_model_len=1024)
    space = SearchSpace((32, 64), (8, 48), (48,), (False, True), limits, longest_prompt=300)
    assert [knobs.label() for knobs in space.settings] == [
        "budget 32, 8 seqs",
        "budget 64, 8 seqs", "budget 64, 8 seqs, cap 48", "budget 64, 8 seqs, cap 48 (adaptive)",
        "budget 64, 48 seqs", "budget 64, 48 seqs, cap 48", "budget 64, 48 seqs, cap 48 (adaptive)",
    ]
    assert len(space) == 7
    assert {space.suggest(Picks(seed)) for seed in range(300)} == set(space.settings)


def test_the_default_is_always_in_the_space() -> None:
    """The engine's own setting can be tried even where it is off the grid."""
    odd = Knobs(333, 7, 21, True)
    space = SearchSpace.for_engine(odd, LIMITS, longest_prompt=600, max_budget=128)
    assert odd in space.settings
    assert space.knobs_at(space.params_of(odd)) == odd


def test_a_space_grows_by_a_setting_off_its_grid() -> None:
    """An analytic budget becomes a choice; the space it was added to stays as it was."""
    space = SearchSpace.for_engine(DEFAULT, LIMITS, longest_prompt=600)
    analytic = Knobs(208, 16)
    with pytest.raises(UsageError, match="outside the search space: token_budgets has"):
        space.params_of(analytic)
    assert analytic in space.including(analytic).settings
    assert analytic not in space.settings


def test_budgets_are_tile_multiples_and_sequences_follow_the_load() -> None:
    """Budgets are multiples of the tile up to the limit; more sequences than ever run are not tried."""
    space = SearchSpace.for_engine(Knobs(512, 8), LIMITS, longest_prompt=600, expected_concurrency=6)
    assert space.token_budgets == (32, 48, 64, 96, 128, 176, 256, 368, 512)
    assert space.max_seqs == (1, 2, 4, 8)
    assert space.thresholds == (0, 32, 64, 128, 256)
    assert space.adaptive == (False, True)


def test_another_policy_is_outside_the_space() -> None:
    """A study compares settings under one scheduling policy."""
    space = SearchSpace.for_engine(DEFAULT, LIMITS, longest_prompt=600)
    with pytest.raises(UsageError, match="its policy is fcfs"):
        space.params_of(Knobs(512, 16, policy="priority"))


@pytest.mark.parametrize(("budgets", "seqs", "thresholds", "advice"), [
    ((), (8,), (), "empty"),
    ((64,), (), (), "empty"),
    ((32, 64), (48,), (), "token budget of 32 is below the smallest --max-seqs choice of 48"),
    ((64,), (0, 8), (), "start at 1"),
    ((1024,), (8,), (), "max_num_batched_tokens of 512"),
    ((64,), (8, 32), (), "max_num_seqs of 16"),
    ((64,), (8,), (2048,), "max_model_len of 1024"),
])
def test_unstartable_spaces_are_refused(
    budgets: tuple[int, ...], seqs: tuple[int, ...], thresholds: tuple[int, ...], advice: str
) -> None:
    """Choices that no engine with these limits takes are refused before anything starts."""
    with pytest.raises(UsageError, match=advice):
        SearchSpace(budgets, seqs, thresholds, (False,), LIMITS, longest_prompt=300)


@pytest.mark.parametrize(("text", "choices"), [
    ("64,128,256", (64, 128, 256)),
    (" 256 , 64,64 ", (64, 256)),
    ("32..512", (32, 48, 64, 96, 128, 176, 256, 368, 512)),
    ("0,32 .. 64", (0, 32, 48, 64)),
    ("40..40", (40,)),
    ("0", (0,)),
])
def test_choices_as_a_user_writes_them(text: str, choices: tuple[int, ...]) -> None:
    """Lists are taken as they are, ranges as a geometric grid of tiles between their ends."""
    assert parse_choices(text, tile=16) == choices


@pytest.mark.parametrize(
    "text", ["", "a", "64,", "1.5", "-4", "64..", "512..32", "0..64", "1..2..3", "9999999999"]
)
def test_unreadable_choices_are_refused(text: str) -> None:
    """Anything that is no list or rising range is a usage error in one line."""
    with pytest.raises(UsageError) as refused:
        parse_choices(text)
    assert "\n" not in str(refused.value)


@settings(deadline=None)
@given(st.integers(1, 10**9), st.integers(0, 10**9), st.sampled_from([1, 16, 128]))
def test_geometric_choices_span_their_range(low: int, width: int, tile: int) -> None:
    """A grid holds both ends, stays between them, rises, and is tiled in between."""
    grid = geometric_choices(low, low + width, tile)
    assert (grid[0], grid[-1]) == (low, low + width)
    assert list(grid) == sorted(set(grid))
    assert all(value % tile == 0 for value in grid[1:-1])


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_written_choices_parse_back(values: list[int]) -> None:
    """A list of numbers parses to that set, sorted."""
    assert parse_choices(",".join(map(str, values))) == tuple(sorted(set(values)))
