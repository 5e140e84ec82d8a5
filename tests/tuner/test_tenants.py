"""Tenants end to end: promises in a workload file, their own figures, and verdicts by them."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench import load_run, summarise
from bench.prefill_curve import Deadlines, PrefillCurve
from bench.select import select_rows
from bench.tenants import rows_of
from tuner.cli.main import app
from tuner.slo import parse_objective
from workloads import UsageError, load_workload

_TWO = """
name: two
description: Chat beside batch work.
components:
  - {name: short, tenant: chat, weight: 70, input: {kind: uniform, low: 16, high: 200},
     output: {kind: uniform, low: 8, high: 40}}
  - {name: long, tenant: batch, weight: 30, input: {kind: uniform, low: 2000, high: 6000},
     output: {kind: fixed, tokens: 20}}
tenants:
  chat: {slo: ["ttft:p90<=1ms"], goodput: ["ttft:500"], decode_deadline_ms: 5}
  batch: {slo: ["ttft:p90<=60s"], goodput: ["ttft:0.001"]}
max_model_len: 8192
slo: ["tbt:p99<=10s"]
decode_deadline_ms: 50
run_seconds: 30
warmup_seconds: 2
"""
_ENGINE = ["--hardware", "H100-SXM", "--model", "Llama-3.1-8B", "--request-rate", "8", "--seed", "3"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A simulated run of two tenants and what `tune simulate --json` says of it."""
    home = tmp_path_factory.mktemp("tenants")
    (home / "two.yaml").write_text(_TWO)
    result = CliRunner().invoke(app, ["simulate", "--workload", str(home / "two.yaml"), *_ENGINE, "--json",
                                      "-o", str(home), "-e", "run"])
    assert result.exit_code == 0, result.output
    return home, json.loads(result.stdout)


def test_a_tenants_objective_is_judged_on_its_requests_alone(kept: tuple[Path, dict]) -> None:
    """The overall objective holds, batch's holds, chat's is missed: the SLO is missed."""
    verdicts = {each["objective"]: each["holds"] for each in kept[1]["slo"]["objectives"]}
    assert verdicts["tbt:p99<=10s"]
    assert verdicts["batch/ttft:p90<=60s"]
    assert not verdicts["chat/ttft:p90<=1ms"]
    assert not kept[1]["slo"]["holds"]


def test_a_tenants_figures_are_those_of_a_run_with_only_its_requests(kept: tuple[Path, dict]) -> None:
    """What --json says of chat equals the figures of the saved run's chat requests."""
    run = load_run(kept[0] / "run")
    alone = summarise(select_rows(run, rows_of(run, "chat"))).figure("ttft", "p90")
    assert kept[1]["tenants"]["chat"]["p90_ttft_ms"] == pytest.approx(alone.value / 1e6)
    total = sum(tenant["num_prompts"] for tenant in kept[1]["tenants"].values())
    assert total == kept[1]["num_prompts"]


def test_goodput_counts_each_request_by_its_own_tenants_rules(kept: tuple[Path, dict]) -> None:
    """Batch promises the impossible and chat the possible: good are chat's requests, overall too."""
    told = kept[1]
    assert told["tenants"]["batch"]["goodput_attainment"] == 0
    assert told["tenants"]["chat"]["goodput_attainment"] == 1
    share = told["tenants"]["chat"]["num_prompts"] / told["num_prompts"]
    assert told["goodput_attainment"] == pytest.approx(share)


def test_fluidity_overall_pools_each_request_by_its_own_deadline(kept: tuple[Path, dict]) -> None:
    """Missed and total deadlines of the tenants add up to those of the run."""
    run = load_run(kept[0] / "run")
    summary = summarise(run, deadlines=Deadlines(PrefillCurve((1,), (1,)), 10**9, 50 * 10**6))
    parts = [summary.tenant(name).fluidity for name in ("chat", "batch")]
    assert summary.fluidity is not None
    assert summary.fluidity.total.sum() == sum(part.total.sum() for part in parts)
    assert summary.fluidity.missed.sum() == sum(part.missed.sum() for part in parts)
    by_one = summarise(run, deadlines=Deadlines(PrefillCurve((1,), (1,)), 10**9, 5 * 10**6)).tenant("chat")
    np.testing.assert_array_equal(by_one.fluidity.missed, parts[0].missed)


def test_reports_show_every_tenant(kept: tuple[Path, dict]) -> None:
    """The run report in Markdown has a table with a row for each tenant."""
    out = kept[0] / "report.md"
    result = CliRunner().invoke(app, ["report", str(kept[0] / "run"), "--format", "md", "--output", str(out)])
    assert result.exit_code == 0, result.output
    section = out.read_text().split("## Tenants")[1]
    assert "| chat |" in section
    assert "| batch |" in section


@pytest.mark.parametrize(("asked", "complaint"), [
    ("nobody/tbt:p99<=1s", "unknown tenant 'nobody'.*chat, batch"),
    ("chat/nothing:p99<=1s", "nothing"),
])
def test_an_unknown_tenant_is_refused_with_those_there_are(
        kept: tuple[Path, dict], asked: str, complaint: str) -> None:
    """Before anything is simulated."""
    result = CliRunner().invoke(
        app, ["simulate", "--workload", str(kept[0] / "two.yaml"), *_ENGINE, "--slo", asked])
    assert isinstance(result.exception, UsageError)
    with pytest.raises(UsageError, match=complaint):
        raise result.exception


@pytest.mark.parametrize(("old", "new", "complaint"), [
    ("tenant: chat, ", "tenant: chit, ", "unknown tenant 'chit'"),
    ("  batch: {slo", "  idle: {}\n  batch: {slo", "tenant 'idle' has no component"),
    ("  batch: {slo", "  'a/b': {}\n  batch: {slo", "tenants"),
])
def test_tenants_and_components_must_fit(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    """A workload file whose tenants and components contradict one another is refused."""
    (tmp_path / "w.yaml").write_text(_TWO.replace(old, new))
    with pytest.raises(UsageError, match=complaint):
        load_workload(tmp_path / "w.yaml")


@given(tenant=st.from_regex(r"[^\s/:<>=]{1,12}", fullmatch=True),
       text=st.sampled_from(["tbt:p99<=100ms", "fluidity:p1>=0.9", "ttft:p99:le:200", "p99_itl_ms<=50"]))
def test_objectives_on_tenants_survive_the_way_to_text_and_back(tenant: str, text: str) -> None:
    """`str` of an objective parses back to an equal one, on the same tenant; its key names it."""
    objective = parse_objective(f"{tenant}/{text}")
    assert parse_objective(str(objective)) == objective
    assert objective.tenant == tenant
    assert objective.key == f"{tenant}/{parse_objective(text).key}"
