"""A run that is computed at once is the run that bench.play would measure of the same simulated engine."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import Deadlines, load_run, measure_prefill_curve, play, save_run, summarise
from bench.run import NEVER, Outcome, Run
from bench.simulated import play_simulated, simulate_run, simulated_curve
from engine_adapter.clock import VirtualClock
from engine_adapter.simulator.engine import SimulatedEngine
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS
from workloads import Plan
from workloads.prompt_parts import PromptBlocks

MS = 1_000_000
SETTINGS = SchedulerSettings(token_budget=256, max_seqs=8, max_model_len=2048, num_kv_blocks=200)
COST = StepCost.linear(token_ns=21_000.3, fixed_ns=2.7 * MS, decode_ns=5_001.7, decode_kv_ns=3.3,
                       chunk_pair_ns=2.9, chunk_kv_ns=0.7, host_ns=100_000.4, host_request_ns=3_000.9,
                       arrival_ns=40_000.5, arrival_token_ns=70.1, delivery_ns=90_000.2, transfer_ns=11_000.6)
WAYLESS = replace(COST, host_ns=0, host_request_ns=0, arrival_ns=0, arrival_token_ns=0, delivery_ns=0)


def plan_of(intended_ns: list[int], lengths: list[tuple[int, int]], *, rate_rps: float = 10.0,
            warmups: int = 0, **shared: Any) -> Plan:
    """With what `shared` names: columns of Plan."""
    n = len(intended_ns)
    none = np.full(n, -1, dtype=np.int32)
    return Plan(
        intended_ns=np.array(intended_ns), input_len=np.array([i for i, _ in lengths]),
        output_len=np.array([o for _, o in lengths]), component=np.zeros(n), num_warmups=warmups, seed=3,
        rate_rps=rate_rps, component_names=("chat",),
        **{"prefix_group": none, "session": none, "turn": np.zeros(n), **shared})


def measured(plan: Plan, engine_settings: SchedulerSettings, cost: StepCost,
             max_concurrency: int | None = None) -> Run:
    """What the client of a live engine sees of the simulated one, in virtual time."""

    async def work() -> Run:
        clock = VirtualClock()
        engine = SimulatedEngine(clock, engine_settings, cost)
        info = await engine.start()
        try:
            return await play(plan, engine, info, clock=clock, salt="s", max_concurrency=max_concurrency)
        finally:
            await engine.stop()

    return asyncio.run(work())


def assert_same(one: Run, other: Run) -> None:
    """Equal from the start of the schedule on, step log included."""
    for name in ("intended_ns", "due_ns", "sent_ns", "end_ns", "read_ns"):
        times = [np.where((at := getattr(run, name)) == NEVER, NEVER, at - run.start_ns)
                 for run in (one, other)]
        np.testing.assert_array_equal(*times, err_msg=name)
    for name in ("index", "outcome", "num_tokens", "reads_offset", "read_tokens", "warmup", "stage",
                 "session", "turn"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in STEP_COLUMNS:
        shift = (one.start_ns, other.start_ns) if name.endswith("_ns") else (0, 0)
        np.testing.assert_array_equal(one.steps.steps[name] - shift[0], other.steps.steps[name] - shift[1],
                                      err_msg=name)
    for name in CHUNK_COLUMNS:
        np.testing.assert_array_equal(one.steps.chunks[name], other.steps.chunks[name], err_msg=name)


@st.composite
def scenes(draw: Any) -> tuple[Plan, SchedulerSettings, StepCost, int | None]:
    n = draw(st.integers(1, 14))
    gaps = draw(st.lists(st.sampled_from([0, 0, 1 * MS, 7 * MS, 40 * MS, 300 * MS]), min_size=n, max_size=n))
    lengths = draw(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 40)), min_size=n, max_size=n))
    closed = draw(st.booleans())
    shared: dict[str, Any] = {}
    match draw(st.sampled_from(["nothing", "prefixes", "blocks"])):
        case "prefixes":
            shared = {"prefix_group": draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)),
                      "prefix_lens": [100, 37]}
        case "blocks":
            keys = draw(st.lists(st.lists(st.sampled_from([1, 2]), max_size=9), min_size=n, max_size=n))
            joined = np.array([key for one in keys for key in one], dtype=np.int64)
            shared = {"blocks": PromptBlocks(24, joined, np.cumsum([0, *map(len, keys)]))}
    plan = plan_of([0] * n if closed else np.cumsum(gaps).tolist(), lengths,
                   rate_rps=float("inf") if closed else 10.0, **shared)
    budget, seqs = draw(st.sampled_from([(64, 4), (256, 8), (1024, 16)]))
    chosen = replace(
        SETTINGS, token_budget=budget, max_seqs=seqs, num_kv_blocks=draw(st.sampled_from([60, 90, 400])),
        prefix_caching=draw(st.booleans()), async_scheduling=draw(st.booleans()),
        pipeline_parallel=draw(st.sampled_from([1, 1, 3])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 48])),
        adaptive_long_prefill=draw(st.booleans()))
    cap = draw(st.sampled_from([1, 3])) if closed else draw(st.sampled_from([None, None, 2]))
    return plan, chosen, draw(st.sampled_from([COST, WAYLESS])), cap


@st.composite
def talks(draw: Any) -> tuple[Plan, SchedulerSettings, StepCost, int | None]:
    """The same settings for conversations: later turns hold what was said before them, more or less, and some
    are too long."""
    plan, chosen, cost, cap = draw(scenes())
    n = len(plan)
    session = draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    turn, last, input_len = [0] * n, {}, plan.input_len.astype(np.int64) // 4 + 1
    for row, talk in enumerate(session):
        if (before := last.get(talk)) is not None:
            turn[row] = turn[before] + 1
            said = int(input_len[before] + plan.output_len[before])
            input_len[row] = draw(st.sampled_from([said + 9, said + 9, said + 50, 30, said + 2000]))
        if talk >= 0:
            last[talk] = row
    thinking = st.sampled_from([0, 0, 3 * MS, 50 * MS])
    return replace(
        plan, session=np.array(session), turn=np.array(turn), input_len=input_len, blocks=None,
        think_ns=np.array(draw(st.lists(thinking, min_size=n, max_size=n)))), chosen, cost, cap


@settings(max_examples=60, deadline=None)
@given(talks())
def test_conversations_in_simulated_time_are_those_that_the_client_has(
    scene: tuple[Plan, SchedulerSettings, StepCost, int | None]
) -> None:
    """Every turn due, sent, answered, cached or dropped as by the client that waits for the answers."""
    plan, chosen, cost, cap = scene
    assert_same(simulate_run(plan, chosen, cost, max_concurrency=cap),
                measured(plan, chosen, cost, max_concurrency=cap))


@settings(max_examples=25, deadline=None)
@given(scenes())
def test_the_fast_path_equals_the_engine_to_the_nanosecond(
    scene: tuple[Plan, SchedulerSettings, StepCost, int | None]
) -> None:
    """Every send, read and step at the same time, open and closed loop, lock step, ahead and in stages,
    whatever the prompts share."""
    plan, chosen, cost, cap = scene
    assert_same(simulate_run(plan, chosen, cost, max_concurrency=cap),
                measured(plan, chosen, cost, max_concurrency=cap))


def test_what_can_never_fit_is_refused_and_counted() -> None:
    """Too long for the model, or for the cache: a row of its own with the reason, in no figure but the
    error rate; the others are served."""
    plan = plan_of([0, 1 * MS, 2 * MS, 3 * MS], [(50, 5), (2100, 5), (1500, 40), (60, 5)])
    run = simulate_run(plan, replace(SETTINGS, num_kv_blocks=40), COST)
    assert run.outcome.tolist() == [Outcome.OK, Outcome.REJECTED, Outcome.REJECTED, Outcome.OK]
    assert run.num_tokens.tolist() == [5, 0, 0, 5]
    assert set(run.error) == {1, 2}
    assert "takes 2048 tokens, the KV cache holds 624" in run.error[1]
    assert summarise(run).figure("error_rate").value == 0.5
    assert run.validity.valid


def test_the_cache_is_counted_as_vllm_counts() -> None:
    """Whole blocks of what was computed before; the last token of a prompt is always computed again, so of a
    prompt that is all there the last block is. What is refused was never looked up."""
    plan = plan_of([0, 900 * MS, 1800 * MS, 2700 * MS], [(100, 2), (64, 2), (100, 2), (3000, 2)],
                   prefix_group=[0, 0, 0, 0], prefix_lens=[64], warmups=1)
    run = simulate_run(plan, replace(SETTINGS, prefix_caching=True), COST)
    assert run.meta["prefix_cache"] == {"queries": 264, "hits": 48 + 64}
    told = summarise(run).as_dict()["prefix_cache"]
    assert told == {"queries": 264, "hits": 112, "hit_share": 112 / 264}
    assert summarise(simulate_run(plan, SETTINGS, COST)).as_dict()["prefix_cache"] is None


def conversation(**columns: Any) -> Plan:
    """Three turns of one, and a stranger in between."""
    return plan_of([0, 5 * MS, 6 * MS, 900 * MS], [(40, 24), (50, 8), (100, 28), (160, 4)],
                   **{"session": [0, -1, 0, 0], "turn": [0, 0, 1, 2], "think_ns": [0, 0, 70 * MS, 1 * MS],
                      **columns})


def test_later_turns_wait_for_the_answer_and_its_reader() -> None:
    """They are meant for the moment when both are through, or their time in the plan if that is later."""
    run = simulate_run(conversation(), SETTINGS, COST)
    assert run.validity.valid, run.validity.reasons
    assert run.intended_ns.tolist() == run.due_ns.tolist() == run.sent_ns.tolist() == [
        0, 5 * MS, run.end_ns[0] + 70 * MS, 900 * MS]
    capped = simulate_run(conversation(), SETTINGS, COST, max_concurrency=1)
    assert capped.intended_ns[2] == capped.end_ns[0] + 70 * MS
    assert np.all(np.sort(capped.sent_ns)[1:] >= np.sort(capped.end_ns)[:-1])


def test_later_turns_find_what_was_said_in_the_cache() -> None:
    """Prompt and answer of the turn before, in whole blocks: of 64 tokens 63 were computed, of 128 there
    are 127."""
    run = simulate_run(conversation(), replace(SETTINGS, prefix_caching=True), COST)
    assert run.meta["prefix_cache"] == {"queries": 350, "hits": 48 + 112}


def test_a_turn_whose_predecessor_failed_is_not_sent() -> None:
    """It is a failure of its own kind, and so are all turns behind it."""
    plan = plan_of([0, 5 * MS, 6 * MS, 9 * MS], [(40, 24), (2100, 8), (2200, 8), (2300, 4)],
                   session=[-1, 0, 0, 0], turn=[0, 0, 1, 2])
    run = simulate_run(plan, SETTINGS, COST, max_concurrency=1)
    assert run.outcome.tolist() == [Outcome.OK, Outcome.REJECTED, *[Outcome.PREDECESSOR_FAILED] * 2]
    assert run.sent_ns[2:].tolist() == run.end_ns[2:].tolist() == [-1, -1]
    assert run.intended_ns.tolist()[2:] == [6 * MS, 9 * MS]
    assert summarise(run).figure("error_rate").value == 0.75


def test_a_run_in_which_nothing_fits_is_invalid() -> None:
    """Every request refused is no measurement, and no endless loop."""
    run = simulate_run(plan_of([0, 0], [(3000, 5), (3000, 5)]), SETTINGS, COST)
    assert not run.validity.valid
    assert "not one request succeeded (2 rejected)" in run.validity.reasons[0]


def test_a_simulated_client_is_never_late() -> None:
    """However far the reader is, and however long a message lies: that is the cost, not the client."""
    far = replace(COST, delivery_ns=500 * MS)
    run = simulate_run(plan_of([0] * 8, [(40, 30)] * 8), SETTINGS, far)
    assert run.validity.valid, run.validity.reasons
    assert summarise(run).as_dict()["client_read_delay_p99_ms"] == 0


def test_a_run_knows_what_was_simulated(tmp_path: Any) -> None:
    """Engine, knobs, cost and plan are in its meta, which what is given is added to; the file keeps all."""
    plan = plan_of([0, 5 * MS], [(40, 3), (40, 3)], warmups=1)
    cost = replace(COST, provenance={"hardware": "h", "model": "m"})
    run = simulate_run(plan, SETTINGS, cost, meta={"label": "mine"}, max_concurrency=1)
    engine = run.meta["engine"]
    assert engine["name"] == "simulator"
    assert engine["fingerprint"]["simulated"] == {"hardware": "h", "model": "m", "rule": "vllm-v1"}
    assert run.meta["knobs"]["token_budget"] == 256
    assert (run.meta["label"], run.meta["max_concurrency"]) == ("mine", 1)
    assert run.meta["plan_digest"] == plan.digest()
    assert run.warmup.tolist() == [True, False]
    back = load_run(save_run(run, tmp_path / "run"))
    assert_same(run, back)
    assert (back.meta, back.client, back.validity) == (run.meta, run.client, run.validity)


def test_the_same_seed_gives_the_same_run_and_drafts_are_by_seed() -> None:
    """Draft tokens are accepted by chance, and by the plan's seed alone."""
    plan, drafting = plan_of([0, 0, 9 * MS], [(90, 60)] * 3), replace(SETTINGS, num_spec_tokens=3)
    runs = [simulate_run(plan, drafting, COST, draft_acceptance=share) for share in (0.6, 0.6, 0.0)]
    assert_same(runs[0], runs[1])
    assert runs[0].num_tokens.tolist() == runs[2].num_tokens.tolist() == [60] * 3
    assert len(runs[0].read_ns) < len(runs[2].read_ns) == 180


def test_without_steps_the_times_are_the_same() -> None:
    """The step log is what is left out, and with it the scheduling delays."""
    plan = plan_of([0, 0, 9 * MS], [(90, 60)] * 3)
    lean = simulate_run(plan, SETTINGS, COST, keep_steps=False)
    assert len(lean.steps) == 0
    assert lean.read_ns.tolist() == simulate_run(plan, SETTINGS, COST).read_ns.tolist()


def test_lone_prefills_are_those_that_would_be_measured() -> None:
    """The simulated curve is the measured one of the same engine; lengths that never fit are left out."""
    lengths = [16, 64, 100, 1000]

    async def curve_of_the_engine() -> Any:
        clock = VirtualClock()
        engine = SimulatedEngine(clock, SETTINGS, COST)
        info = await engine.start()
        try:
            return info, await measure_prefill_curve(engine, info, lengths, clock=clock, salt="s", repeats=2)
        finally:
            await engine.stop()

    info, curve = asyncio.run(curve_of_the_engine())
    found = simulated_curve(SETTINGS, COST, [*lengths, 5000], info=info)
    assert found is not None
    assert (found.tokens, found.times_ns, found.fingerprint) == (curve.tokens, curve.times_ns,
                                                                 curve.fingerprint)
    assert simulated_curve(SETTINGS, COST, [5000]) is None


@given(st.integers(1, 1500), st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_more_prompt_tokens_never_lower_the_ttft(tokens: int, more: int) -> None:
    """Of a lone prompt, whatever the chunks."""
    times = [simulate_run(plan_of([0], [(length, 1)]), SETTINGS, COST).read_ns[0]
             for length in (tokens, tokens + more)]
    assert times[0] <= times[1]


def test_every_figure_can_be_made_of_it() -> None:
    """Fluidity, scheduling delays, delivery: nothing is missing where there are samples enough."""
    rng = np.random.default_rng(1)
    intended = np.cumsum(rng.exponential(30 * MS, 400)).astype(np.int64).tolist()
    plan = plan_of(intended, [(int(i), 20) for i in rng.integers(20, 300, 400)], rate_rps=33.0)
    curve = simulated_curve(SETTINGS, COST, [16, 256])
    assert curve is not None
    run = simulate_run(plan, SETTINGS, COST)
    told = summarise(run, deadlines=Deadlines(curve, 300 * MS, 50 * MS)).as_dict()
    assert told["valid"]
    assert told["p50_delivery_delay_ms"] == pytest.approx(0.09, abs=1e-3)
    for key in ("fluidity_index_p10", "fluid_token_rate", "median_scheduling_delay_ms", "p99_tbt_ms"):
        assert told[key] is not None, key


def test_an_engine_plays_with_the_knobs_in_force() -> None:
    """After `apply`, what it simulates at once obeys the new budget."""
    plan = plan_of([0, 0], [(900, 2), (30, 40)])

    async def longest_gap_ms(budget: int) -> float:
        engine = SimulatedEngine(VirtualClock(), replace(SETTINGS, token_budget=1024), COST)
        info = await engine.start()
        assert info.knobs is not None
        knobs = (await engine.apply(replace(info.knobs, token_budget=budget))).knobs
        run = play_simulated(plan, engine, replace(info, knobs=knobs), salt="s", meta={})
        await engine.stop()
        assert run.meta["knobs"]["token_budget"] == run.steps.steps["num_tokens"].max() == budget
        return float(np.diff(run.read_ns).max() / MS)

    assert asyncio.run(longest_gap_ms(64)) < asyncio.run(longest_gap_ms(512)) / 2
