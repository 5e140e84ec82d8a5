"""The capacity of a server that stays as it is: what is found, what is proved, what survives."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_adapter.clock import VirtualClock
from engine_adapter.errors import Crashed
from engine_adapter.scripted import Fault, ScriptedEngine
from engine_adapter.seam import EngineInfo, GenerateRequest
from tests.tuner.scripted_maker import ScriptedMaker
from tests.tuner.test_tuning import config as tuned_config
from tuner.capacity import CAPACITY_FILE, find_capacity
from tuner.capacity_result import EXIT_CODES
from tuner.progress import StudyProgress
from tuner.slo import parse_slo
from tuner.study import Study, StudyConfig
from workloads.errors import EvidenceError, UsageError

SERVER = {"kind": "remote", "target": {"base_url": "http://127.0.0.1:8000", "model": None}}


class AsItIs(ScriptedEngine):
    """An engine that tells no settings and takes none, as a server that somebody else started."""

    version = "1"

    async def start(self) -> EngineInfo:
        info = await super().start()
        return replace(info, version=self.version, knobs=None, default_knobs=None, limits=None,
                       live_knobs=False, live_knobs_note="measured as it is")


def config(**changes: Any) -> StudyConfig:
    standard = {"launch": None, "server": SERVER, "slo": ("tbt:p99<=300ms",), "run_seconds": 8.0}
    return replace(tuned_config(), **standard | changes)


def seek(directory: Path, asked: StudyConfig, *, resume: bool = False, engine: type[ScriptedEngine] = AsItIs,
         on_change: Callable[[StudyProgress], None] | None = None,
         **maker: Any) -> tuple[dict[str, Any], ScriptedMaker]:
    """Find a capacity from start to end; whatever happens, no engine is left."""

    async def play() -> tuple[dict[str, Any], ScriptedMaker]:
        clock = VirtualClock()
        made = ScriptedMaker(clock, engine_class=engine, **maker)
        study = (Study.resume if resume else Study.create)(directory, asked, clock)
        try:
            return await find_capacity(study, made, parse_slo(asked.slo), clock=clock,
                                       progress=StudyProgress(on_change=on_change)), made
        finally:
            assert all(engine._loop is None for engine in made.started), "an engine was left running"

    return asyncio.run(play())


def written(directory: Path) -> dict[str, Any]:
    """capacity.json, which must be strict JSON."""
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    content: dict[str, Any] = json.loads((directory / CAPACITY_FILE).read_text(), parse_constant=refuse)
    return content


def meta_of(directory: Path, run: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((directory / run["run"] / "run.json").read_text())["meta"]
    return meta


def test_the_highest_rate_that_holds_is_found_and_proved(tmp_path: Path) -> None:
    """It holds on arrivals that the search had not seen, and the next higher rate did not hold."""
    result, maker = seek(tmp_path / "s", config())
    assert (result["verdict"], EXIT_CODES[result["verdict"]]) == ("confirmed", 0)
    proof = result["confirmed"]
    assert proof["holds"]
    assert result["capacity_rps"] == proof["rate_rps"] <= result["searched_rps"]
    above = [run["rate_rps"] for run in result["runs"] if not run["holds"]]
    assert min(above) == pytest.approx(1.1 * result["searched_rps"], rel=1e-3)
    seeds = {meta_of(tmp_path / "s", run)["seed"] for run in (proof, result["runs"][0])}
    assert len(seeds) == 2
    assert result["environment"]["engine"] == "scripted"
    assert any("only the capacity" in warning for warning in result["warnings"])
    assert len(maker.started) == 1
    assert written(tmp_path / "s") == result


def test_an_slo_that_no_rate_holds_is_infeasible(tmp_path: Path) -> None:
    """The lowest rate that was tried and what it missed are named; nothing is called a capacity."""
    result, _ = seek(tmp_path / "s", config(slo=("tbt:p99<=1ms",)))
    assert (result["verdict"], EXIT_CODES[result["verdict"]]) == ("slo_infeasible", 1)
    assert result["capacity_rps"] is result["confirmed"] is None
    lowest = min(run["rate_rps"] for run in result["runs"])
    assert f"down to {lowest:.3g} requests/s: tbt:p99<=1ms is missed" in result["verdict_text"]


def test_what_held_only_while_searching_is_not_confirmed(tmp_path: Path) -> None:
    """A few steps below are tried too; then the last proof is shown with what it missed."""
    tired: list[bool] = []

    class Tiring(AsItIs):
        async def generate(self, request: GenerateRequest) -> Any:
            if tired:
                self.step_cost = lambda *composition: 500_000_000
            async for event in super().generate(request):
                yield event

    def watch(progress: StudyProgress) -> None:
        if progress.phase.startswith("confirming"):
            tired.append(True)

    result, _ = seek(tmp_path / "s", config(), engine=Tiring, on_change=watch)
    assert (result["verdict"], EXIT_CODES[result["verdict"]]) == ("not_confirmed", 2)
    assert len(result["attempts"]) == 3
    assert result["attempts"][-1] == result["confirmed"]
    assert "fresh arrivals" in result["verdict_text"]
    assert result["capacity_rps"] is None


def test_a_rate_that_was_asked_for_is_judged_alone(tmp_path: Path) -> None:
    """One run and its proof; whether it is the highest nobody has looked, so no capacity is claimed."""
    result, _ = seek(tmp_path / "s", config(rate_rps=0.5))
    assert result["verdict"] == "confirmed"
    assert [run["rate_rps"] for run in (*result["runs"], *result["attempts"])] == [0.5, 0.5]
    assert (result["rate_rps"], result["capacity_rps"]) == (0.5, None)
    missed, _ = seek(tmp_path / "t", config(rate_rps=50.0))
    assert missed["verdict"] == "slo_infeasible"
    assert "holds not at 50 requests/s" in missed["verdict_text"]
    assert len(missed["runs"]) == 1


def test_no_time_for_a_run_is_no_verdict_about_the_slo(tmp_path: Path) -> None:
    """The time ended before anything held: exit code 2, and more time goes on where it stopped."""
    asked = config(slo=("tbt:p99<=1ms",), time_budget_s=80)
    result, _ = seek(tmp_path / "s", asked)
    assert (result["verdict"], EXIT_CODES[result["verdict"]]) == ("cut_short", 2)
    assert "--max-minutes" in result["verdict_text"]
    again, _ = seek(tmp_path / "s", replace(asked, time_budget_s=None), resume=True)
    assert again["runs"][: len(result["runs"])] == result["runs"]
    assert again["verdict"] == "slo_infeasible"


def test_a_search_that_time_cut_short_is_proved_all_the_same(tmp_path: Path) -> None:
    """What held until then is confirmed within the time, with a warning that more may be possible."""
    result, _ = seek(tmp_path / "s", config(time_budget_s=100))
    assert result["verdict"] == "confirmed"
    assert len(result["runs"]) == 4
    assert any("the capacity may be higher" in warning for warning in result["warnings"])
    assert result["wall_seconds"] < 100


def test_a_server_that_dies_for_good_gives_no_evidence(tmp_path: Path) -> None:
    """Exit code 3 with what went wrong; resumed once it is back, the study finds its answer."""
    class Dying(AsItIs):
        async def start(self) -> EngineInfo:
            if maker_starts:
                raise Crashed("no server answers there")
            maker_starts.append(1)
            return await super().start()

        async def generate(self, request: GenerateRequest) -> Any:
            if request.output_len > 1 and len(request.prompt_token_ids) != 32:
                self._fail(Crashed("the server died"))
            async for event in super().generate(request):
                yield event

    maker_starts: list[int] = []
    result, _ = seek(tmp_path / "s", config(), engine=Dying)
    assert (result["verdict"], EXIT_CODES[result["verdict"]]) == ("no_evidence", 3)
    assert "no server answers there" in result["verdict_text"]
    again, _ = seek(tmp_path / "s", config(), resume=True)
    assert again["verdict"] == "confirmed"


def test_a_server_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    """There is no result then, and no engine is left."""
    with pytest.raises(Exception, match="scripted"):
        seek(tmp_path / "s", config(), faults=lambda start: (Fault("start_failed"),))
    assert not (tmp_path / "s" / CAPACITY_FILE).exists()


def test_a_workload_that_does_not_fit_the_server_is_refused(tmp_path: Path) -> None:
    """Said after one look at the server, before anything is measured."""
    class Short(AsItIs):
        async def start(self) -> EngineInfo:
            return replace(await super().start(), max_model_len=256)

    with pytest.raises(UsageError, match="shorter lengths"):
        seek(tmp_path / "s", config(), engine=Short)


class Enough(Exception):
    """Ends a study from outside."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the standard search."""
    return seek(tmp_path_factory.mktemp("straight") / "s", config())[0]


@pytest.mark.parametrize("phases", range(1, 10))
def test_an_interrupted_search_goes_on_after_its_last_run(
    tmp_path: Path, phases: int, uninterrupted: dict[str, Any]
) -> None:
    """Whenever it is stopped, capacity.json is whole and unfinished, and no run is played twice."""
    said: list[str] = []

    def stop(progress: StudyProgress) -> None:
        if not said or said[-1] != progress.phase:
            said.append(progress.phase)
            if (tmp_path / "s" / CAPACITY_FILE).exists():
                assert written(tmp_path / "s")["verdict"] == "unfinished"
        if len(said) > phases:
            raise Enough

    with pytest.raises(Enough):
        seek(tmp_path / "s", config(), on_change=stop)
    before = written(tmp_path / "s")
    assert before["verdict"] == "unfinished"
    result, _ = seek(tmp_path / "s", config(), resume=True)
    assert [*result["runs"], *result["attempts"]][: len(before["runs"])] == before["runs"]
    rates = [[run["rate_rps"] for run in (*study["runs"], *study["attempts"])]
             for study in (result, uninterrupted)]
    assert rates[0] == rates[1]
    assert result["verdict"] == uninterrupted["verdict"]


def test_resuming_a_finished_search_asks_nothing_of_the_server(tmp_path: Path) -> None:
    """What is finished is only shown again."""
    first, _ = seek(tmp_path / "s", config())
    again, maker = seek(tmp_path / "s", config(), resume=True)
    assert maker.started == []
    assert {**again, "created": ""} == {**first, "created": ""}


def test_another_server_at_the_same_address_is_noticed(tmp_path: Path) -> None:
    """Runs of two servers would make one wrong answer."""
    class Newer(AsItIs):
        version = "2"

    seek(tmp_path / "s", config(slo=("tbt:p99<=1ms",), time_budget_s=80))
    with pytest.raises(EvidenceError, match="engine version was 1 and is 2 now"):
        seek(tmp_path / "s", config(slo=("tbt:p99<=1ms",)), resume=True, engine=Newer)
