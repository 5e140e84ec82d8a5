"""The traffic of fitted workloads: how near to its trace, and what the file tells."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.fitting.own_trace import bursty_trace, sharing_trace
from workloads import UsageError, Workload, load_workload
from workloads.fitting import TraceFacts, agreements, fit_workload, missed, regenerated, workload_yaml
from workloads.fitting.agreement import Agreement
from workloads.traces import Trace, read_trace

DATA = Path(__file__).resolve().parents[3] / "../shared/data"
FACTS = TraceFacts(10, 5.0, date(2026, 12, 1))
SEEDS = range(5)


def _recorded(name: str) -> Trace:
    if not (DATA / name).exists():
        pytest.skip("needs the public traces beside the repository")
    return read_trace(DATA / name)


def _compared(trace: Trace, workload: Workload | None = None) -> dict[str, Agreement]:
    model = workload or fit_workload(trace, name="model")
    found = agreements(trace, [regenerated(model, trace, seed) for seed in SEEDS])
    assert [f"{one.name} {one.worst:+.3f}" for one in missed(found)] == []
    return {one.name: one for one in found}


@pytest.mark.parametrize("kind", ["code", "conv"])
def test_azure_2023_comes_back(kind: str) -> None:
    """With every one of five seeds: percentiles of lengths within 5 %, rate within 1 %, dispersion at 10 s
    within 15 %; in a file of less than 30 kB."""
    trace = _recorded(f"azure2023/AzureLLMInferenceTrace_{kind}.csv")
    workload = fit_workload(trace, name="azure")
    _compared(trace, workload)
    assert len(workload_yaml(workload, FACTS)) < 30_000


@pytest.mark.parametrize("kind", ["conversation", "synthetic"])
def test_mooncake_comes_back(kind: str) -> None:
    """The same, and the share of prompt tokens that came before is within 5 %."""
    found = _compared(_recorded(f"mooncake/{kind}_trace.jsonl"))
    assert "prefix reuse" in found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_trace_of_our_own_comes_back(seed: int) -> None:
    """The same, and how answers depend on prompts stays."""
    found = _compared(bursty_trace(seed))
    assert found["index of dispersion, 10 s"].trace > 10
    assert found["rank correlation of prompt and answer"].trace > 0.5


def test_shared_prompts_come_back() -> None:
    """What prompts repeat is fitted from blocks: the common beginning, and what continues what."""
    trace = sharing_trace()
    workload = fit_workload(trace, name="sharing")
    assert workload.reuse is not None
    assert (workload.reuse.block_size, workload.reuse.common_blocks) == (16, 4)
    _compared(trace, workload)


def test_sessions_come_back_as_reuse() -> None:
    """Turns that repeat the prompt and the answer before them are prompts that copy so much."""
    rng = np.random.default_rng(3)
    rows, sessions = 3000, 300
    session = rng.integers(0, sessions, rows)
    turn, length = np.zeros(rows, int), np.zeros(rows, int)
    last = np.zeros(sessions, int)
    answers = rng.integers(5, 60, rows)
    for row, number in enumerate(session):
        turn[row] = (session[:row] == number).sum()
        length[row] = last[number] + rng.integers(20, 90)
        last[number] = length[row] + answers[row]
    trace = Trace(arrival_ns=np.arange(rows) * 10**9, input_len=length, output_len=answers,
                  session=session, turn=turn)
    found = _compared(trace)
    assert found["prefix reuse"].trace > 0.5


def test_the_file_is_the_workload(tmp_path: Path) -> None:
    """Read from its file it is the same workload; the comments tell rows, span and date, and no path."""
    trace = sharing_trace(rows=500)
    workload = fit_workload(trace, name="shared")
    (tmp_path / "w.yaml").write_text(text := workload_yaml(workload, FACTS))
    again = load_workload(tmp_path / "w.yaml")
    assert again == workload
    assert again.digest() == workload.digest()
    assert text.startswith("# A workload fitted on 2026-12-01 to a trace of 10 requests over 5 s.\n")
    assert again.recorded_rate_rps == pytest.approx(trace.rate_rps)


def test_tenants_are_components_without_their_names() -> None:
    """The largest is t1, and all have components of their own; names are kept on request."""
    trace = bursty_trace(slots=40)
    tenant = (np.arange(len(trace)) % 4 == 0).astype(int)
    named = Trace(arrival_ns=trace.arrival_ns, input_len=trace.input_len, output_len=trace.output_len,
                  tenant=tenant, tenant_names=("big-corp", "small-shop"))
    workload = fit_workload(named, name="two")
    assert list(workload.tenants) == ["t1", "t2"]
    assert "corp" not in workload_yaml(workload, FACTS)
    shares = {name: sum(c.weight for c in workload.components if c.tenant == name) for name in ("t1", "t2")}
    assert shares == pytest.approx({"t1": 0.75, "t2": 0.25}, abs=0.01)
    kept = fit_workload(named, name="two", keep_names=True)
    assert list(kept.tenants) == ["big-corp", "small-shop"]
    for names, told in ((("a: b", "a- b"), ["a-b", "a--b"]), (("", "unnamed"), ["unnamed", "unnamed-2"])):
        assert list(fit_workload(replace(named, tenant_names=names), name="two",
                                 keep_names=True).tenants) == told


def test_many_tenants_are_few_components() -> None:
    """The largest eight stay, the others are one together; the file stays small."""
    trace = bursty_trace(slots=60)
    tenant = np.minimum(np.random.default_rng(0).geometric(0.25, len(trace)) - 1, 29)
    many = replace(trace, tenant=tenant, tenant_names=tuple(f"customer {n}" for n in range(30)))
    workload = fit_workload(many, name="many")
    assert list(workload.tenants) == [*(f"t{n}" for n in range(1, 9)), "other"]
    assert sum(workload.shares) == pytest.approx(1)
    assert len(workload_yaml(workload, FACTS)) < 30_000


def test_prefix_groups_come_back_as_reuse() -> None:
    """Prompts of a group begin with its prefix."""
    rng = np.random.default_rng(1)
    rows = 3000
    trace = Trace(arrival_ns=np.arange(rows) * 10**8, input_len=rng.integers(1000, 2000, rows),
                  output_len=rng.integers(1, 100, rows), prefix_group=rng.integers(0, 10, rows),
                  prefix_lens=np.linspace(300, 900, 10).astype(int))
    found = _compared(trace)
    assert found["prefix reuse"].trace == pytest.approx(0.4, abs=0.05)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 5000), st.integers(1, 900)), min_size=1,
                max_size=30), st.booleans())
def test_any_trace_has_a_model(rows: list[tuple[int, int, int]], timed: bool) -> None:
    """One row, two rows, all equal, all at once, no times, giant gaps: it can be fitted, read and drawn."""
    gaps, prompts, answers = map(np.array, zip(*rows, strict=True))
    trace = Trace(arrival_ns=np.cumsum(gaps) - gaps[0] if timed else np.zeros(0), input_len=prompts,
                  output_len=answers)
    workload = fit_workload(trace, name="any")
    plans = [regenerated(workload, trace, seed) for seed in (0, 1)]
    assert len(workload_yaml(workload, FACTS)) < 30_000
    for one in agreements(trace, plans):
        assert np.isfinite(one.worst)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(3000, 9000))
def test_requests_fit_the_model_length_that_is_given(seed: int, longest: int) -> None:
    """Whatever is drawn stays within it, and only few requests are cut where the trace was within it."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(1, longest - 1, 400)
    answers = np.minimum(rng.integers(1, 300, 400), longest - prompts)
    trace = Trace(arrival_ns=np.arange(400) * 10**8, input_len=prompts, output_len=answers)
    workload = fit_workload(trace, name="fits", max_model_len=longest)
    assert workload.max_model_len == longest
    plan = regenerated(workload, trace, 0)
    plan.check_fits(longest)
    assert np.median(plan.input_len) == pytest.approx(np.median(prompts), rel=0.1, abs=2)


def test_a_trace_without_rows_is_refused() -> None:
    """There is nothing to fit to."""
    nothing = Trace(arrival_ns=np.zeros(0), input_len=np.zeros(0), output_len=np.zeros(0))
    with pytest.raises(UsageError, match="no requests"):
        fit_workload(nothing, name="nothing")
