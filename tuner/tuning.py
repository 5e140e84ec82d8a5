"""A whole tuning run: start, probe, search, confirm, hand over."""

import random
from dataclasses import asdict, replace
from typing import Any

from bench import OutputError
from engine_adapter.clock import Clock
from engine_adapter.knobs import Knobs
from engine_adapter.machine import machine_facts
from engine_adapter.seam import EngineInfo
from tuner.confirm import RUN_FACTOR, Confirmation, Confirmer, figures
from tuner.engines import EngineMaker
from tuner.measuring import SUSTAINABLE, Measurer, rare_stalls, thin_margin
from tuner.probe import probe, remember
from tuner.progress import StudyProgress
from tuner.recommendation import build, simulated_as
from tuner.run_length import wall_seconds
from tuner.sampler import Proposals
from tuner.search import FIXED_RATE_TIE, Search
from tuner.seeds import run_seed
from tuner.slo import Slo
from tuner.space import SearchSpace
from tuner.study import Study, StudyConfig
from tuner.trial import TrialRecord
from workloads import UsageError

_STARTUP_TRIALS = 4
_DRAIN_S, _STOP_S = 1.5, 3.0
"""What is set aside for the end of a run and for stopping an engine."""


async def tune_study(study: Study, maker: EngineMaker, slo: Slo, *, clock: Clock, progress: StudyProgress,
                     wall: Clock | None = None) -> dict[str, Any]:
    """Carry `study` to its end and return recommendation.json, which is also kept up to date on disk.

    `clock` is the engines', `wall` that of the time budget; left out it is the same. Interrupted at any
    point it leaves every finished trial behind, and no engine.
    """
    tuning = _Tuning(study, maker, slo, clock, wall or clock, progress)
    try:
        return await tuning.run()
    except OSError as error:
        # The journal of trials is written by a library; what we write ourselves is mapped where it is.
        raise OutputError(f"cannot go on with the study in {study.directory}: {error.strerror or error}; "
                          f"free space there and add --resume") from error
    finally:
        await tuning.close()


def _starting(config: StudyConfig) -> str:
    match config.server["kind"]:
        case "remote":
            return f"connecting to {config.server['target']['base_url']}"
        case "sim":
            return "simulating the engine: nothing is started"
    return "starting the engine"


class _Tuning:
    def __init__(self, study: Study, maker: EngineMaker, slo: Slo, clock: Clock, wall: Clock,
                 progress: StudyProgress) -> None:
        self._study, self._maker, self._slo, self._clock, self._wall = study, maker, slo, clock, wall
        self._progress = progress
        self._measurer = Measurer(study, maker, slo, clock=clock, wall=wall, on_progress=progress.on_run)
        self._proposals: Proposals | None = None
        self._began_ns = wall.now_ns()

    async def run(self) -> dict[str, Any]:
        study, progress = self._study, self._progress
        progress.max_trials = study.config.max_trials
        if study.state.confirmation is not None:
            return study.result()
        progress.say(_starting(study.config))
        info = await self._measurer.open_capacity()
        self._check(info)
        if study.state.deadlines is None:
            await self._probe(info)
        proposals = self._open_proposals(info)
        search = Search(study, self._measurer, proposals, progress=progress,
                        clock=self._wall, deadline_ns=self._search_deadline_ns(),
                        first=self._first_settings(info.settings.defaults), on_trial=self._after_trial)
        await search.run()
        best = proposals.best()
        if best is not None:
            await self._confirm(best)
        study.save()
        return self._write(finished=True)

    async def close(self) -> None:
        """Stop the engine, let go of the journal, and leave the state on disk."""
        try:
            await self._measurer.close()
        finally:
            if self._proposals is not None:
                self._proposals.close()
            self._study.save()
            self._study.close()

    def _check(self, info: EngineInfo) -> None:
        """What an engine must be for this study, and what its reader must know about it."""
        state, workload = self._study.state, self._study.config.workload
        if info.max_model_len is not None and workload.longest_request > info.max_model_len:
            raise UsageError(
                f"the workload's longest request is {workload.longest_request} tokens, the model takes "
                f"{info.max_model_len}: raise --max-model-len or use shorter lengths")
        settings = info.settings
        state.default = settings.defaults.as_dict()
        state.environment = {
            "engine": info.name, "engine_version": info.version, "model": info.model,
            "max_model_len": info.max_model_len, "live_knobs": info.live_knobs,
            "live_knobs_note": info.live_knobs_note, "num_kv_blocks": info.num_kv_blocks,
            "kv_block_size": info.kv_block_size, "start_seconds": round(info.start_seconds, 1),
            "fingerprint": info.fingerprint, "limits": asdict(settings.limits), "machine": machine_facts(),
            "fresh_engines": self._study.config.server["kind"] != "remote",
        }
        if workload.trace is not None and workload.trace.left_out:
            state.warn(workload.trace.left_out)
        if not state.environment["fresh_engines"]:
            state.warn("the settings were proved on the server that was searched, not on freshly started "
                       "ones; recommended.yaml holds them and the name of the model as it is served: add the "
                       "path of the model and the server's other flags")
        if self._study.config.server["kind"] == "command":
            state.warn("the largest values that were to be tried stand for the engine's default: what its "
                       "command would choose by itself is not known")
        if self._study.config.is_simulated:
            state.warn(f"no run of this study was measured, all were simulated ({simulated_as(state)}): "
                       f"confirm recommended.yaml on the engine, with tune bench --config")
        if not info.live_knobs:
            state.warn(f"knobs are not live, every setting gets an engine of its own: {info.live_knobs_note}")

    async def _probe(self, info: EngineInfo) -> None:
        study = self._study
        self._progress.say("probing: lone prefills and decode steps")
        applied = info
        defaults = info.settings.defaults
        if info.live_knobs and info.knobs != defaults:
            knobs = (await self._measurer.engine.apply(defaults)).knobs
            applied = replace(info, knobs=knobs)
        config = study.config
        found = await probe(
            self._measurer.engine, applied, config.workload, self._slo, clock=self._clock,
            decode_deadline_ms=config.decode_deadline_ms, prefill_slack_ms=config.prefill_slack_ms,
            salt=f"{config.seed}/probe")
        remember(study, found)

    def _open_proposals(self, info: EngineInfo) -> Proposals:
        study, config = self._study, self._study.config
        default = study.state.default_knobs
        assert default is not None
        self._proposals = proposals = Proposals(
            study.journal, study="stallfree", space=self._space(default, info), slo=self._slo,
            default=default, seed=run_seed(config.seed, "sampler"), extra_constraints=(SUSTAINABLE,),
            startup_trials=_STARTUP_TRIALS,
            tie_tolerance=0.01 if config.rate_rps is None else FIXED_RATE_TIE)
        proposals.abandon_running()
        self._progress.records = proposals.finished()
        self._progress.incumbent = proposals.best()
        return proposals

    def _space(self, default: Knobs, info: EngineInfo) -> SearchSpace:
        config = self._study.config
        space = SearchSpace.for_engine(default, info.settings.limits,
                                       longest_prompt=config.workload.longest_prompt)
        budgets = config.token_budgets or space.token_budgets
        # A budget smaller than every choice of sequences comes with as many sequences as it carries.
        seqs = config.max_seqs or tuple({*space.max_seqs, min(*budgets, *space.max_seqs)})
        space = replace(
            space,
            token_budgets=budgets,
            max_seqs=seqs,
            thresholds=space.thresholds if config.thresholds is None else config.thresholds,
            # No field of a command says it.
            adaptive=(False,) if config.server["kind"] == "command" else space.adaptive,
        )
        return space.including(*(knobs for knobs, _ in self._first_settings(default)))

    def _first_settings(self, default: Knobs) -> list[tuple[Knobs, str]]:
        """The analytic setting and its kin, the engine's default, then budgets around, shuffled."""
        config, analytic = self._study.config, self._study.state.analytic_budget
        if analytic is None or config.token_budgets or config.max_seqs or config.thresholds:
            return [(default, "default")]

        def budget_of(share: float) -> Knobs:
            budget = min(max(16, round(analytic * share / 16) * 16), default.token_budget)
            return Knobs(budget, min(default.max_seqs, budget))

        cap = replace(default, long_prefill_token_threshold=min(analytic, default.token_budget))
        around = [(budget_of(share), "neighbour") for share in (0.5, 0.75, 1.5, 2.0)]
        random.Random(run_seed(config.seed, "order")).shuffle(around)
        return [(budget_of(1.0), "analytic"), (cap, "analytic cap"), (default, "default"), *around]

    def _search_deadline_ns(self) -> int | None:
        """When the search must end so that the confirmation still fits the time budget."""
        config = self._study.config
        if config.time_budget_s is None:
            return None
        start: float = self._study.state.environment["start_seconds"]
        run = wall_seconds(config, config.run_seconds * RUN_FACTOR + config.warmup_seconds + _DRAIN_S)
        stop = 0.0 if config.is_simulated else _STOP_S
        # Two fresh engines with a run each, and one step down for the recommended one.
        confirming = 2 * (start + stop + run) + run
        return self._began_ns + round((config.time_budget_s - confirming) * 1e9)

    async def _confirm(self, best: TrialRecord) -> None:
        study = self._study
        default = study.state.default_knobs
        assert default is not None
        confirmer = Confirmer(study, self._measurer, self._maker, self._progress)
        rate = best.capacity_rps if study.config.rate_rps is None else study.config.rate_rps
        assert rate is not None
        first = await confirmer.recommended(best.knobs, rate)
        result = {"recommended": self._shown(first)}
        shown = first.decisive
        if best.knobs == default:
            result["default"] = result["recommended"]
        else:
            second = await confirmer.default(default, shown.run.rate_rps if shown is not None else rate)
            result["default"] = self._shown(second)
        await self._measurer.close()
        study.state.confirmation = result
        self._note_doubts(best, first)

    def _shown(self, confirmation: Confirmation) -> dict[str, Any]:
        run = confirmation.decisive
        capacity = run.run.rate_rps if run is not None and confirmation.holds else None
        if self._study.config.rate_rps is not None:
            capacity = None
        return {"confirmed": figures(run, capacity),
                "attempts": [figures(attempt, None) for attempt in confirmation.runs],
                "note": confirmation.note,
                "effective_knobs": confirmation.effective.as_dict() if confirmation.effective else None}

    def _note_doubts(self, best: TrialRecord, confirmation: Confirmation) -> None:
        """What the reader of the recommendation must know: optimism of the search, rare long stalls."""
        shown = confirmation.decisive
        if confirmation.note:
            self._study.state.warn(confirmation.note)
        for doubt in (rare_stalls(shown, self._slo), thin_margin(shown)) if shown is not None else ():
            if doubt:
                self._study.state.warn(doubt)
        if shown is not None and shown.holds and best.capacity_rps is not None:
            optimism = best.capacity_rps / shown.run.rate_rps - 1
            if optimism > 0.001:
                self._study.state.warn(f"the search had promised {best.capacity_rps:.3g} requests/s, "
                                       f"{100 * optimism:.0f} % more than was confirmed")

    def _after_trial(self) -> None:
        self._write(finished=False)

    def _write(self, *, finished: bool) -> dict[str, Any]:
        assert self._proposals is not None
        content = build(self._study, self._proposals.finished(), self._proposals.best(), self._slo,
                        self._maker, finished=finished)
        self._study.write_json("recommendation.json", content)
        return content

