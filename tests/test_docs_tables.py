"""The lists and tables of docs/ equal the code's."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench import CATALOG, Outcome, load_run, summarise, validity
from bench.recorder import COUNT_SOURCES
from engine_adapter.answer import FailureKind
from engine_adapter.servers.command_template import KNOB_FIELDS
from engine_adapter.simulator.settings import RULES
from tests.test_docs import PAGES, first_column, quoted, rows
from tests.tuner.test_calibration import calibrated
from tests.tuner.test_capacity import config as capacity_config
from tests.tuner.test_capacity import seek
from tests.tuner.test_tuning import config, tune
from tuner import capacity_result, one_run, recommendation
from tuner.cli import main
from tuner.dry_run import plan_lines
from tuner.one_run import OneRun
from tuner.result_file import request_lists
from tuner.simulation import target_from
from tuner.slo import parse_objective
from tuner.study import StudyConfig
from tuner.trial import Outcome as TrialOutcome
from workloads import PRESETS, UsageError, load_workload

UNITS = {"ns": "time", "fraction": "share", "per_s": "per second", "count": "count"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a finished study."""
    home = tmp_path_factory.mktemp("tables")
    tune(home / "results" / "my-study", config(max_trials=2))
    return home


def test_kinds_of_failure_and_of_counting_are_the_codes() -> None:
    """Every kind has its row, in the order of the code, and no other has one."""
    assert first_column("docs/servers.md", "When a request fails") == [kind.value for kind in FailureKind]
    assert first_column("docs/servers.md", "How tokens are counted") == list(COUNT_SOURCES)


def test_the_keys_of_a_result_are_all_explained(home: Path) -> None:
    """The table has every key of a result file, and the sentence below it those of --save-detailed."""
    run = load_run(home / "results/my-study/runs/001-scout")
    spec: Any = type("Spec", (), {"metadata": {}, "directory": home})
    result = OneRun(spec, run, summarise(run), None, (), interrupted=False).as_dict()
    assert set(first_column("docs/files.md", "The result file")) == set(result)
    assert all(f"`{name}`" in PAGES["docs/files.md"] for name in request_lists(run))


def test_the_keys_of_a_calibration_are_all_explained() -> None:
    """The table has every key of the file."""
    assert set(first_column("docs/files.md", "`calibration.json`")) == set(calibrated().as_dict())


def test_rules_and_defaults_of_the_simulator_are_the_codes() -> None:
    """Every rule has its row, and the settings that nobody named are those that are simulated."""
    assert first_column("docs/simulator.md", "Which tokens go into a step") == list(RULES)
    told = [(int(budget), int(seqs)) for _, budget, seqs in rows("docs/simulator.md",
                                                                 "Settings that nobody named")]
    found = [target_from(hardware=name, model="smollm2-135m").default_knobs
             for name in ("b200", "h100-sxm", "a100-sxm-80gb", "cpu-avx512-2")]
    assert told == [(knobs.token_budget, knobs.max_seqs) for knobs in found]


def test_presets_and_their_durations_are_the_codes() -> None:
    """Both tables list every preset; SLO, deadline, run length and expected duration are as computed."""
    assert set(first_column("docs/workloads.md", "Presets")) == set(PRESETS)
    for name, *_, slo, deadline, seconds in rows("docs/workloads.md", "Presets"):
        load = load_workload(name.strip("`"))
        assert (slo, deadline, seconds) == (
            ", ".join(load.slo), f"{load.decode_deadline_ms:g} ms", f"{load.run_seconds:g} s")
    expected = rows("docs/your-own-model.md", "How long it takes")
    assert {name.strip("`") for name, _ in expected} == set(PRESETS)
    for name, minutes in expected:
        load = load_workload(name.strip("`"))
        asked = StudyConfig(
            workload=load, slo=load.slo, launch=config().launch, decode_deadline_ms=load.decode_deadline_ms,
            prefill_slack_ms=load.prefill_slack_ms, run_seconds=load.run_seconds,
            warmup_seconds=load.warmup_seconds)
        assert f"duration   about {minutes}" in plan_lines(asked, Path("x"))


def test_the_table_of_metrics_is_the_catalog() -> None:
    """Name, unit, direction, population, statistics and definition of every metric."""
    assert rows("docs/metrics.md", "All metrics") == [
        [f"`{m.name}`", UNITS[m.unit], m.better, m.population, ", ".join(m.statistics) or "none",
         m.definition] for m in CATALOG.values()]


def test_the_limits_of_validity_are_the_codes() -> None:
    """The figures that make a run invalid, or are noted, are those that are applied."""
    def percent(value: float) -> str:
        return f"{value * 100:g} %"

    def ms(value: int) -> str:
        return f"{value / 1e6:g} ms"

    share = percent(validity.LAG_SHARE)
    limits = [row[1] for row in rows("docs/metrics.md", "When a run is invalid")]
    assert limits[:6] == [
        f"the largest of {ms(validity.LAG_FLOOR_NS)}, {share} of the median TTFT, {share} of the mean "
        f"time between arrivals",
        f"the larger of {ms(validity.LATE_READ_FLOOR_NS)} and "
        f"{percent(validity.LATE_READ_SHARE_OF_TTFT)} of the median TTFT",
        f"at least {percent(validity.MIN_ACHIEVED_RATE)} of the planned rate",
        f"at least {percent(validity.MIN_ACHIEVED_RATE)} of the time",
        f"{ms(validity.READ_DELAY_FLOOR_NS)}, if more than {percent(validity.MERGED_SHARE)} of them, and "
        f"{validity.MERGED_MESSAGES} or more, were read together with a later one",
        f"at most {percent(validity.SATURATED_CPU)} of a core",
    ]
    assert (f"fewer than {validity.FEW_REQUESTS} requests; more than {percent(validity.SHORT_ANSWERS_SHARE)} "
            f"of the answers shorter than planned; prompts that the server counts more than "
            f"{percent(validity.SHORT_PROMPTS_SHARE)} off") in PAGES["docs/metrics.md"]


def test_objectives_in_the_documents_are_read_and_refused_as_they_say() -> None:
    """Accepted forms have the canonical spelling shown; refused ones answer with the sentence shown."""
    for written, canonical in rows("docs/slo.md", "Accepted"):
        assert str(parse_objective(written.strip("`"))) == canonical.strip("`")
    for written, answer in rows("docs/slo.md", "Refused"):
        with pytest.raises(UsageError) as refused:
            parse_objective(written.strip("`"))
        assert str(refused.value) == answer


def test_exit_codes_are_the_codes() -> None:
    """Every exit code has its row and every verdict its code."""
    known = {*recommendation.EXIT_CODES.values(), *capacity_result.EXIT_CODES.values(),
             one_run.MISSED, one_run.INVALID, one_run.INTERRUPTED,
             main.WRONG_USAGE, main.INTERNAL_ERROR, main.INTERRUPTED, main.BROKEN_PIPE}
    assert [int(row[0]) for row in rows("docs/exit-codes.md", "Exit codes")] == sorted(known)
    verdicts = rows("docs/exit-codes.md", "Verdicts of `tune run`")
    assert {name.strip("`"): int(code) for name, code, _ in verdicts} == recommendation.EXIT_CODES
    verdicts = rows("docs/exit-codes.md", "Verdicts about a capacity")
    assert {name.strip("`"): int(code) for name, code, _ in verdicts} == capacity_result.EXIT_CODES


def test_the_keys_of_a_capacity_are_all_explained(tmp_path: Path) -> None:
    """The table has every key of capacity.json; a run in it is described as it is."""
    result, _ = seek(tmp_path / "s", capacity_config(rate_rps=0.5))
    assert set(first_column("docs/files.md", "`capacity.json`")) == set(result)
    (run,) = (row[1] for row in rows("docs/files.md", "`capacity.json`") if row[0] == "`confirmed`")
    assert {*quoted([run]), "capacity_rps"} == set(result["confirmed"])


def test_the_fields_of_a_command_are_all_explained() -> None:
    """Those that are filled in, in the order of the code."""
    told = first_column("docs/servers.md", "Servers that Stallfree starts")
    assert told == [f"{{{name}}}" for name in ("port", "model", *KNOB_FIELDS)]


def test_the_files_of_a_study_are_all_described(home: Path) -> None:
    """What a study leaves is in the table; the command line adds the report and the logs."""
    present = {path.name for path in (home / "results" / "my-study").iterdir() if path.name != "report.html"}
    page = "docs/files.md"
    assert set(first_column(page, "A study: `results/NAME/`")) == present | {"report.html", "logs"}
    result = json.loads((home / "results/my-study/recommendation.json").read_text())
    assert set(first_column(page, "`recommendation.json`")) == set(result)
    assert set(first_column(page, "A setting")) == set(result["recommended"])
    assert set(first_column(page, "A trial")) == set(result["trials"][0])
    named = next(row[1] for row in rows(page, "A trial") if row[0] == "`outcome`")
    assert quoted([named]) == [outcome.value for outcome in TrialOutcome]


def test_the_files_of_a_run_are_all_described(home: Path) -> None:
    """Files, columns of the tables and codes of outcomes are those that are written."""
    run = home / "results/my-study/runs/001-scout"
    assert set(first_column("docs/files.md", "A run")) == {path.name for path in run.iterdir()}
    for table in sorted(run.glob("*.parquet")):
        assert first_column("docs/files.md", f"`{table.name}`") == pq.read_schema(table).names
    (codes,) = (row[1] for row in rows("docs/files.md", "`requests.parquet`") if row[0] == "`outcome`")
    assert codes == ", ".join(f"{code.value} {code.name.lower()}" for code in Outcome)
