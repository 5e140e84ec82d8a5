"""Our scheduler decides as the installed vLLM's own, step by step; see docs/studies for the long proof."""

import dataclasses
from pathlib import Path

import pytest

from engine_adapter.simulator.differential import in_time
from engine_adapter.simulator.differential.case import Case, CaseRequest
from engine_adapter.simulator.differential.comparison import compare
from engine_adapter.simulator.differential.features import FEATURES
from engine_adapter.simulator.differential.our_side import OurSide
from engine_adapter.simulator.differential.random_cases import random_case
from engine_adapter.simulator.differential.shrinking import shrink
from engine_adapter.simulator.differential.vllm_side import VllmSide
from engine_adapter.simulator.play import play
from engine_adapter.simulator.settings import SchedulerSettings
from tests.engine_adapter.engines import needs_vllm

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
SEEDS, SCALE, MOST_TURNS = range(60), 0.6, 1000


def _case(seed):
    return random_case(seed, scale=SCALE)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 10))
@needs_vllm
def test_every_decision_is_the_same_as_vllms(first):
    """Rows, tokens, prefixes, preemptions, queues, free blocks and deliveries are equal at each step."""
    for seed in SEEDS[first:first + 10]:
        seen = compare(_case(seed), most_turns=MOST_TURNS)
        assert seen.difference is None, f"case {seed}: {seen.difference}"
        assert seen.steps


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
@needs_vllm
def test_known_hard_cases_stay_the_same(path):
    """Cases in which a single rule decides, and those that once differed."""
    seen = compare(Case.from_json(path.read_text(encoding="utf-8")), most_turns=MOST_TURNS)
    assert seen.difference is None
    assert seen.steps


def test_random_cases_cover_every_feature():
    """The cases of this file are fit for an engine, are the same everywhere, and leave no feature out."""
    cases = [_case(seed) for seed in SEEDS]
    assert all(case.is_feasible() for case in cases)
    assert cases == [_case(seed) for seed in SEEDS]
    assert [name for name, has in FEATURES.items() if not any(map(has, cases))] == []


def test_a_case_is_the_same_after_json():
    """A case that was printed can be played again."""
    for seed in SEEDS:
        assert Case.from_json(_case(seed).to_json()) == _case(seed)


@needs_vllm
def test_the_oracle_schedules_as_a_real_engine_did():
    """Steps that vLLM 0.32's scheduler once decided for prompts of 583, 65 and 200 tokens."""
    settings = SchedulerSettings(token_budget=256, max_seqs=8, max_model_len=1024, num_kv_blocks=99)
    case = Case(settings=settings,
                requests=tuple(CaseRequest(input_len=n, output_len=9) for n in (583, 65, 200)))
    side = VllmSide(case)
    for row, request in enumerate(case.requests):
        side.add(row, request)
    steps = []
    for _ in range(3):
        decision = side.schedule()
        steps.append(dict(zip(decision.rows, decision.tokens, strict=True)))
        side.update()
    assert steps == [{0: 256}, {0: 256}, {0: 71, 1: 65, 2: 120}]


def _off(**changes):
    """A side of ours whose settings are changed behind its back."""
    def changed(settings):
        return dataclasses.replace(settings, **{
            name: change(getattr(settings, name)) for name, change in changes.items()})

    class Off(OurSide):
        def __init__(self, case):
            super().__init__(dataclasses.replace(case, settings=changed(case.settings)))

        def apply(self, settings):
            super().apply(changed(settings))

    return Off


SLIPS = {
    "budget": _off(token_budget=lambda n: n + 1),
    "input budget": _off(input_budget=lambda n: None),
    "seqs": _off(max_seqs=lambda n: n + 1),
    "blocks": _off(num_kv_blocks=lambda n: n + 1),
    "cap": _off(long_prefill_token_threshold=lambda n: n + 1 if n else 0),
    "adaptive": _off(adaptive_long_prefill=lambda on: not on),
    "priority": _off(priority=lambda on: not on),
    "full-prompt check": _off(reserve_full_isl=lambda on: not on),
    "watermark": _off(watermark=lambda share: share / 2),
    "prefix caching": _off(prefix_caching=lambda on: not on),
}


@pytest.mark.parametrize("slip", SLIPS)
@needs_vllm
def test_a_slip_in_any_setting_is_noticed(slip):
    """The comparison has teeth: one setting a little off, and a decision differs."""
    assert any(compare(_case(seed), our_side=SLIPS[slip], most_turns=200).difference for seed in SEEDS)


@needs_vllm
def test_a_difference_shrinks_to_a_small_case():
    """What is reported is a case that a person can follow, and it differs still."""
    def differs(case):
        return compare(case, our_side=SLIPS["budget"], most_turns=200).difference is not None

    small = shrink(_case(next(seed for seed in SEEDS if differs(_case(seed)))), differs, most_tries=300)
    assert differs(small)
    assert len(small.requests) <= 2


@pytest.mark.parametrize("turn_ns", [300_000, 4_000_000, 60_000_000])
@needs_vllm
def test_a_whole_load_plays_as_on_vllms_scheduler_in_the_same_time(turn_ns):
    """`play` gives each step and each read the time that vLLM's scheduler gives it in EngineCore's loop."""
    for seed in range(100, 112):
        seen = in_time.compare_in_time(_case(seed), turn_ns=turn_ns)
        assert seen.difference is None, f"case {seed}: {seen.difference}"
        assert seen.reads


@pytest.mark.parametrize(("seed", "scale"), [(107, 15), (102, 60)])
@needs_vllm
def test_a_long_load_plays_the_same_too(seed, scale):
    """More steps than the log of one slice of `play` holds, without and with async scheduling."""
    seen = in_time.compare_in_time(random_case(seed, scale=scale), turn_ns=60_000_000)
    assert seen.difference is None
    assert seen.steps > 2 * 8192


@needs_vllm
def test_a_nanosecond_is_noticed(monkeypatch):
    """The comparison in time has teeth: a cost that is one nanosecond off differs."""
    def slower(load, settings, cost):
        return play(load, settings, dataclasses.replace(cost, host_ns=cost.host_ns + 1))

    monkeypatch.setattr(in_time, "play", slower)
    assert in_time.compare_in_time(_case(100), turn_ns=4_000_000).difference
