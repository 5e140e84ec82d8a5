"""Runs that nobody measured: a plan played against a simulated engine, at once and without a clock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard

import numpy as np

from bench.prefill_curve import PrefillCurve, non_decreasing
from bench.run import NEVER, ClientHealth, Int32, Int64, Outcome, Run
from bench.run_meta import run_meta
from bench.validity import judge_validity
from engine_adapter.seam import EngineInfo
from engine_adapter.simulator.info import simulated_info
from engine_adapter.simulator.load import Played, SimulatedLoad
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.step_cost import StepCost
from workloads import Plan
from workloads.shared_blocks import shared_blocks

_NEVER_LATE = ClientHealth(read_delay_p50_ns=0, read_delay_p99_ns=0, read_delay_max_ns=0, merged_share=0.0)


def simulate_run(
    plan: Plan, settings: SchedulerSettings, cost: StepCost, *, meta: Mapping[str, Any] | None = None,
    max_concurrency: int | None = None, keep_steps: bool = True, draft_acceptance: float = 0.0,
) -> Run:
    """What `bench.play` would measure of such an engine with a client that is never late, computed at once.

    `meta` is added to what the run knows about itself (see Run.meta). A request that could never fit
    is refused. `max_concurrency` as in `bench.play`; without steps there are no scheduling delays.
    `draft_acceptance` is the chance that a draft token is kept, given that those before it were.
    """
    from engine_adapter.simulator.quick_play import quick_play  # only now, as it loads the compiler

    load = load_of(plan, settings.block_size if settings.prefix_caching else None,
                   draft_acceptance=draft_acceptance)
    played = quick_play(load, settings, cost, max_concurrency=max_concurrency, keep_steps=keep_steps)
    about = dict(meta or {})
    if "engine" not in about:
        about = run_meta(plan, simulated_info(settings, cost), "", about)
    return run_of(plan, played, {"max_concurrency": max_concurrency, **about})


class CanSimulate(Protocol):
    """An engine that answers a whole load at once, without a clock."""

    def simulate(self, load: SimulatedLoad, *, max_concurrency: int | None = None) -> Played:
        """What the requests get from it with the knobs in force and an empty cache."""
        ...


def can_simulate(engine: object) -> TypeGuard[CanSimulate]:
    """Whether `play_simulated` can be used in place of `bench.play`."""
    return hasattr(engine, "simulate")


def play_simulated(plan: Plan, engine: CanSimulate, info: EngineInfo, *, salt: str,
                   meta: Mapping[str, Any]) -> Run:
    """The run that `bench.play` would measure of `engine`; `info.knobs` must be those in force."""
    caching = info.fingerprint.get("prefix_caching", True)
    load = load_of(plan, info.kv_block_size if caching else None)
    return run_of(plan, engine.simulate(load), run_meta(plan, info, salt, meta))


def load_of(plan: Plan, block_size: int | None = None, *, draft_acceptance: float = 0.0) -> SimulatedLoad:
    """The requests of `plan`, later turns behind the turns before them.

    With the size of the engine's KV blocks, what prompts share, later turns the answers before them too;
    without it, for an engine that caches no prefixes, nothing.
    """
    shared = {}
    if block_size is not None:
        blocks = shared_blocks(plan, block_size)
        shared = {"prefix_keys": blocks.keys, "prefix_offset": blocks.offset}
    return SimulatedLoad(
        arrival_ns=plan.intended_ns, input_len=plan.input_len.astype(np.int64),
        output_len=plan.output_len.astype(np.int64), after=plan.predecessor.astype(np.int64),
        think_ns=plan.think_ns, draft_acceptance=draft_acceptance, seed=plan.seed, **shared)


def run_of(plan: Plan, played: Played, meta: Mapping[str, Any]) -> Run:
    """The run that `played` is, judged; `meta` as in Run.meta, with the engine."""
    rows, refused, never = len(plan), played.refused, played.not_sent
    intended_ns = np.where(never, plan.intended_ns, played.due_ns)
    due_ns = np.where(never, plan.intended_ns, played.sent_ns)
    cap = meta.get("max_concurrency")
    if cap and np.isinf(plan.rate_rps):  # a closed loop: meant for the moment its place became free
        intended_ns = due_ns
    run = Run(
        index=np.arange(rows, dtype=np.int32), component=plan.component.astype(np.int16),
        input_len=plan.input_len.astype(np.int32), output_len=plan.output_len.astype(np.int32),
        warmup=np.arange(rows) < plan.num_warmups, intended_ns=intended_ns,
        due_ns=due_ns if cap else intended_ns, stage=plan.stage.astype(np.int16), sent_ns=played.sent_ns,
        end_ns=np.where(played.end_ns == NEVER, played.sent_ns, played.end_ns),
        outcome=np.select([refused, never], [Outcome.REJECTED, Outcome.PREDECESSOR_FAILED],
                          Outcome.OK).astype(np.int8),
        num_tokens=_tokens(played), reads_offset=played.reads_offset, read_ns=played.read_ns,
        read_tokens=played.read_tokens, steps=played.steps, client=_NEVER_LATE,
        session=plan.session.astype(np.int32), turn=plan.turn.astype(np.int32),
        meta={**meta, **_prefix_cache(plan, played, meta["engine"])},
        error=dict.fromkeys(np.flatnonzero(refused).tolist(), _refusal(meta["engine"])),
    )
    return replace(run, validity=judge_validity(run))


def _prefix_cache(plan: Plan, played: Played, engine: Mapping[str, Any]) -> dict[str, Any]:
    """`prefix_cache`: prompt tokens looked up and found, as vLLM counts them, warm-up included and what was
    preempted once; nothing where there is no cache."""
    if not (engine.get("fingerprint") or {}).get("prefix_caching"):
        return {}
    asked = plan.input_len[~(played.refused | played.not_sent)]
    return {"prefix_cache": {"queries": int(asked.sum()), "hits": int(played.cached_tokens.sum())}}


def simulated_curve(settings: SchedulerSettings, cost: StepCost, lengths: Sequence[int], *,
                    info: EngineInfo | None = None) -> PrefillCurve | None:
    """What `measure_prefill_curve` would measure of lone prompts of these lengths; `info` is the engine
    whose fingerprint it gets. Lengths that never fit are left out; None where none fits."""
    from engine_adapter.simulator.play import play

    one, samples = np.ones(1, dtype=np.int64), {}
    for length in sorted(set(lengths)):
        lone = SimulatedLoad(arrival_ns=0 * one, input_len=length * one, output_len=one)
        played = play(lone, settings, cost, keep_steps=False)
        if not played.refused[0]:
            samples[length] = int(played.read_ns[0])
    if not samples:
        return None
    about = info or simulated_info(settings, cost)
    return PrefillCurve(
        tuple(samples), tuple(non_decreasing(np.array(list(samples.values()), dtype=np.float64))),
        tuple((sample,) for sample in samples.values()),
        {**about.fingerprint, "model": about.model,
         "knobs": None if about.knobs is None else about.knobs.as_dict()})


def _refusal(engine: Mapping[str, Any]) -> str:
    room = (engine["num_kv_blocks"] - 1) * engine["kv_block_size"]
    return f"it can never fit: the model takes {engine['max_model_len']} tokens, the KV cache holds {room}"


def _tokens(played: Played) -> Int32:
    """Tokens of each request, shape (requests,)."""
    offsets: Int64 = played.reads_offset
    if played.read_tokens.max(initial=1) > 1:
        before = np.concatenate([[0], np.cumsum(played.read_tokens, dtype=np.int64)])
        return np.diff(before[offsets]).astype(np.int32)
    return np.diff(offsets).astype(np.int32)
