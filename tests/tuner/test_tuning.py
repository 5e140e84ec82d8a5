"""Whole studies on scripted engines in virtual time: what is found, what is proven, what survives."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_adapter.clock import VirtualClock
from engine_adapter.errors import Crashed
from engine_adapter.scripted import Fault, ScriptedEngine
from engine_adapter.seam import GenerateRequest, TokenEvent
from tests.tuner.scripted_maker import LAUNCH, ScriptedMaker
from tuner.progress import StudyProgress
from tuner.slo import parse_slo
from tuner.study import Study, StudyConfig
from tuner.tuning import tune_study
from workloads import load_workload
from workloads.errors import EvidenceError, UsageError


def config(**changes: Any) -> StudyConfig:
    load = load_workload("cpu")
    standard = StudyConfig(
        workload=load, slo=("tbt:p99<=120ms", "fluidity:p10>=0.9"), launch=LAUNCH, decode_deadline_ms=60,
        prefill_slack_ms=300, run_seconds=20, warmup_seconds=2, max_trials=10, time_budget_s=None)
    return replace(standard, **changes)


def tune(directory: Path, asked: StudyConfig, *, resume: bool = False, progress: StudyProgress | None = None,
         **maker: Any) -> tuple[dict[str, Any], ScriptedMaker]:
    """Run a study from start to end; the engines it started are all stopped."""

    async def play() -> tuple[dict[str, Any], ScriptedMaker]:
        clock = VirtualClock()
        made = ScriptedMaker(clock, **maker)
        study = (Study.resume if resume else Study.create)(directory, asked, clock)
        try:
            return await tune_study(study, made, parse_slo(asked.slo), clock=clock,
                                    progress=progress or StudyProgress()), made
        finally:
            assert all(engine._loop is None for engine in made.started), "an engine was left running"

    return asyncio.run(play())


def test_a_study_finds_a_better_budget_and_proves_it_on_fresh_engines(tmp_path: Path) -> None:
    """The recommended setting holds in its fresh engine where the default does not, in three starts."""
    result, maker = tune(tmp_path / "s", config())
    assert result["verdict"] == "recommended"
    assert len(result["trials"]) == 10
    assert result["engine_starts"] == len(maker.started) == 3
    recommended, default = result["recommended"], result["default"]
    assert recommended["knobs"]["token_budget"] < 512
    assert recommended["effective_knobs"] == recommended["knobs"]
    assert recommended["confirmed"]["holds"]
    assert not default["confirmed"]["holds"]
    assert default["confirmed"]["rate_rps"] == recommended["confirmed"]["rate_rps"]
    shown = (default["confirmed"]["figures"]["p99_tbt_ms"], recommended["confirmed"]["figures"]["p99_tbt_ms"])
    assert shown[0] > 120 >= shown[1]
    assert recommended["search"]["capacity_rps"] > (default["search"]["capacity_rps"] or 0)
    assert json.loads((tmp_path / "s" / "recommendation.json").read_text()) == result
    assert (tmp_path / "s" / "recommended.yaml").exists()


def test_searched_and_confirmed_figures_come_from_different_arrivals(tmp_path: Path) -> None:
    """What is confirmed was measured on a plan that the search never saw."""
    result, _ = tune(tmp_path / "s", config())
    digests = {}
    for which in ("search", "confirmed"):
        run = tmp_path / "s" / result["recommended"][which]["run"] / "run.json"
        digests[which] = json.loads(run.read_text())["meta"]["seed"]
    assert digests["search"] != digests["confirmed"]


def test_an_impossible_slo_is_said_with_the_closest_setting(tmp_path: Path) -> None:
    """No setting is recommended, no file is handed over, and the closest miss is named."""
    result, _ = tune(tmp_path / "s", config(slo=("tbt:p99<=1ms",), max_trials=3))
    assert result["verdict"] == "slo_infeasible"
    assert result["recommended"] is None
    assert "closest" in result["verdict_text"]
    assert not (tmp_path / "s" / "recommended.yaml").exists()


class CrashesWithBigSteps(ScriptedEngine):
    """Dies when a step carries many tokens, as an engine does that runs out of memory under load."""

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        if self.knobs.token_budget > 1000 and len(request.prompt_token_ids) > 500:
            self._fail(Crashed("out of memory under load: scripted"))
        async for event in super().generate(request):
            yield event


def test_a_setting_that_crashes_the_engine_is_never_best_and_the_study_goes_on(tmp_path: Path) -> None:
    """The crash is the trial's outcome; the next trial runs on a new engine."""
    # The probe needs the default setting alive, so only settings of the search crash.
    class Fragile(CrashesWithBigSteps):
        async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
            kind = CrashesWithBigSteps if self._step > 200 else ScriptedEngine
            async for event in kind.generate(self, request):
                yield event

    result, maker = tune(tmp_path / "s", config(max_trials=6), engine_class=Fragile)
    outcomes = {trial["source"]: trial["outcome"] for trial in result["trials"]}
    assert outcomes["default"] == "crashed"
    assert outcomes["analytic"] == "ok"
    assert result["recommended"]["knobs"]["token_budget"] < 1000
    assert len(result["trials"]) == 6
    assert len(maker.started) > 3


def test_an_engine_that_stops_answering_is_recorded_as_hung(tmp_path: Path) -> None:
    """A deadline notices it; the study goes on with another engine."""
    result, maker = tune(tmp_path / "s", config(max_trials=2, request_timeout_s=30),
                         faults=lambda start: (Fault("hang", at_step=300),) if start == 0 else ())
    hung = [trial for trial in result["trials"] if "hung" in (trial["outcome"] + trial["note"])]
    assert [trial["source"] for trial in hung] == ["analytic"]
    assert len(maker.started) == 4
    assert result["verdict"] == "recommended"


def test_a_recommendation_that_does_not_start_is_not_confirmed(tmp_path: Path) -> None:
    """The search alone proves nothing: without its fresh engine the verdict says so, with the reason."""
    result, _ = tune(tmp_path / "s", config(max_trials=3),
                     faults=lambda start: (Fault("out_of_memory"),) if start == 1 else ())
    assert result["verdict"] == "not_confirmed"
    assert any("KV cache" in warning for warning in result["warnings"])


def test_without_live_knobs_every_setting_gets_its_own_engine(tmp_path: Path) -> None:
    """The study works on an engine that cannot change while it runs, and says what that costs."""
    result, maker = tune(tmp_path / "s", config(max_trials=4), live_knobs=False)
    assert result["verdict"] == "recommended"
    assert len(maker.started) >= 5
    assert any("not live" in warning for warning in result["warnings"])
    for trial in result["trials"]:
        for run in trial["runs"]:
            head = json.loads((tmp_path / "s" / run["run"] / "run.json").read_text())
            assert head["meta"]["knobs"] == trial["knobs"]


class Enough(Exception):
    """Ends a study from outside."""


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_study_goes_on_without_repeating_finished_trials(tmp_path: Path, after: int) -> None:
    """Killed after some trials and resumed, it comes to the same trials as one that ran through."""
    def stop(progress: StudyProgress) -> None:
        if len(progress.records) > after:
            raise Enough

    with pytest.raises(Enough):
        tune(tmp_path / "s", config(max_trials=7), progress=StudyProgress(on_change=stop))
    before = json.loads((tmp_path / "s" / "recommendation.json").read_text())["trials"] if after else []
    result, _ = tune(tmp_path / "s", config(max_trials=7), resume=True)
    straight, _ = tune(tmp_path / "t", config(max_trials=7))
    assert result["trials"][: len(before)] == before
    tried = [[str(trial["knobs"]) for trial in study["trials"]] for study in (result, straight)]
    assert sorted(tried[0]) == sorted(tried[1])
    assert result["verdict"] == "recommended"


def test_resuming_a_finished_study_starts_no_engine(tmp_path: Path) -> None:
    """What is finished is only shown again."""
    first, _ = tune(tmp_path / "s", config(max_trials=3))
    again, maker = tune(tmp_path / "s", config(max_trials=3), resume=True)
    assert maker.started == []
    assert again["trials"] == first["trials"]
    assert again["recommended"] == first["recommended"]


def test_a_resumed_study_must_ask_for_the_same(tmp_path: Path) -> None:
    """Another SLO would mix two questions in one answer."""
    tune(tmp_path / "s", config(max_trials=2))
    with pytest.raises(UsageError, match="slo"):
        tune(tmp_path / "s", config(max_trials=2, slo=("tbt:p99<=50ms",)), resume=True)
    with pytest.raises(UsageError, match="--resume"):
        tune(tmp_path / "s", config(max_trials=2))


def test_at_a_fixed_rate_the_shortest_ttft_within_the_slo_wins(tmp_path: Path) -> None:
    """Every setting is played once at the asked rate; no capacity is claimed."""
    result, _ = tune(tmp_path / "s", config(rate_rps=2.0, max_trials=8))
    assert result["objective"] == "fixed_rate"
    assert {run["rate_rps"] for trial in result["trials"] for run in trial["runs"]} == {2.0}
    assert result["recommended"]["confirmed"]["capacity_rps"] is None
    holding = [trial for trial in result["trials"] if trial["outcome"] == "ok"]
    ttfts = [trial["runs"][0]["figures"]["median_ttft_ms"] for trial in holding]
    chosen = result["recommended"]["search"]["figures"]["median_ttft_ms"]
    assert chosen <= min(ttfts) + 100


def test_the_time_budget_ends_the_search_in_time_for_the_proof(tmp_path: Path) -> None:
    """With little time fewer settings are tried, but what is recommended is still confirmed."""
    result, _ = tune(tmp_path / "s", config(max_trials=50, time_budget_s=500))
    assert len(result["trials"]) < 50
    assert result["recommended"]["confirmed"] is not None
    assert result["wall_seconds"] < 520


def test_the_engine_refusing_longer_prompts_ends_the_study_at_once(tmp_path: Path) -> None:
    """A workload that cannot fit the model is wrong usage, said before anything is measured."""
    class Short(ScriptedEngine):
        async def start(self) -> Any:
            return replace(await super().start(), max_model_len=256)

    with pytest.raises(UsageError, match="--max-model-len"):
        tune(tmp_path / "s", config(), engine_class=Short)


def test_a_study_that_could_measure_nothing_says_nothing_about_the_slo(tmp_path: Path) -> None:
    """Engines that die in every trial give no evidence: the verdict says so and names the failure."""
    class DiesAfterTheProbe(ScriptedEngine):
        async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
            if request.output_len > 1 and len(request.prompt_token_ids) != 32:
                self._fail(Crashed("scripted death"))
            async for event in super().generate(request):
                yield event

    result, _ = tune(tmp_path / "s", config(max_trials=2), engine_class=DiesAfterTheProbe)
    assert result["verdict"] == "no_evidence"
    assert "scripted death" in result["verdict_text"]
    assert result["recommended"] is None


def test_percentiles_over_requests_get_runs_long_enough_for_them(tmp_path: Path) -> None:
    """A p1 over requests needs 100 of them, or its objective could never hold."""
    result, _ = tune(tmp_path / "s", config(slo=("tbt:p99<=120ms", "fluidity:p1>=0.8"), max_trials=2))
    judged = [objective for trial in result["trials"] for run in trial["runs"]
              for objective in run["judgement"]["objectives"] if "fluidity" in objective["objective"]]
    assert judged
    assert all(objective["n"] >= 100 for objective in judged)


def test_a_percentile_that_holds_over_rare_long_stalls_is_warned_of(tmp_path: Path) -> None:
    """p99 of the gaps cannot see stalls in fewer than 1 % of them; the reader is told the longest."""
    result, _ = tune(tmp_path / "s", config(slo=("tbt:p90<=45ms",), max_trials=3))
    confirmed = result["recommended"]["confirmed"]
    if confirmed["holds"] and confirmed["figures"]["max_tbt_ms"] > 3 * 45:
        assert any("longest gap" in warning for warning in result["warnings"])
    else:
        pytest.fail("this scripted engine no longer shows the case")


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_finished_result_survives_whatever_happens_to_the_journal(tmp_path: Path, harm: str) -> None:
    """Resuming a finished study shows what is written; it is never rebuilt from less."""
    result, _ = tune(tmp_path / "s", config(max_trials=2))
    journal = tmp_path / "s" / "trials.journal"
    if harm == "gone":
        journal.unlink()
    else:
        journal.write_bytes(journal.read_bytes()[:200])
    before = (tmp_path / "s" / "recommendation.json").read_bytes()
    again, maker = tune(tmp_path / "s", config(max_trials=2), resume=True)
    assert again == result
    assert maker.started == []
    assert (tmp_path / "s" / "recommendation.json").read_bytes() == before


def test_two_processes_never_work_on_one_study(tmp_path: Path) -> None:
    """The second one is told so before it starts an engine; the end of the first frees the study."""
    clock = VirtualClock()
    first = Study.create(tmp_path / "s", config(), clock)
    for open_again in (Study.create, Study.resume):
        with pytest.raises(UsageError, match="in use by another process"):
            open_again(tmp_path / "s", config(), clock)
    first.close()
    Study.resume(tmp_path / "s", config(), clock).close()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1, "config": {}, "state": {}}'])
def test_a_damaged_study_is_said_to_be_damaged(tmp_path: Path, text: str) -> None:
    """One line that says what to do, whatever is wrong with the file."""
    Study.create(tmp_path / "s", config(), VirtualClock()).close()
    (tmp_path / "s" / "study.json").write_text(text)
    with pytest.raises(EvidenceError, match="start a new study"):
        Study.saved_config(tmp_path / "s")


def test_a_search_that_ran_out_of_time_does_not_call_the_slo_infeasible(tmp_path: Path) -> None:
    """Nothing held in the little time there was: that is no verdict about the SLO."""
    result, _ = tune(tmp_path / "s", config(slo=("tbt:p99<=1ms",), max_trials=40, time_budget_s=300))
    assert result["verdict"] == "cut_short"
    assert "--max-minutes" in result["verdict_text"]
