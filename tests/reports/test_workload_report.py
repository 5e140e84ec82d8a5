"""The report of traffic: complete, byte-stable, escaped; and its screen at 80 columns."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from reports.html_page import html_page
from reports.markdown import markdown
from reports.workload_charts import arrival_chart, doubling_edges, prompt_chart
from reports.workload_report import arrival_doubts, workload_document, write_workload_report
from reports.workload_tables import Traffic, comparison_table, length_table, tenant_table
from reports.workload_terminal import workload_screen
from workloads import UsageError
from workloads.prompt_parts import PromptBlocks
from workloads.traces.statistics import measured_trace
from workloads.traces.trace import Trace

SECOND = 1_000_000_000


def column(*values: int) -> np.ndarray:
    return np.array(values)


def a_trace(count: int = 300, *, seed: int = 0, tenants: tuple[str, ...] = ("chat", "batch")) -> Trace:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 40, count * 3)
    return Trace(
        arrival_ns=np.cumsum(rng.integers(0, SECOND, count)), input_len=rng.integers(2000, 30_000, count),
        output_len=rng.integers(1, 900, count), tenant=rng.integers(0, len(tenants), count),
        tenant_names=tenants, blocks=PromptBlocks(512, keys, np.arange(count + 1) * 3))


def traffic(trace: Trace, name: str = "trace.jsonl", **named: dict[str, int]) -> Traffic:
    return Traffic.of(name, "read as mooncake", measured_trace(trace), **named)


def screen(shown: Traffic) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(workload_screen(shown, {}))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


TINY = {
    "empty": Trace(arrival_ns=column(), input_len=column(), output_len=column()),
    "one row": Trace(arrival_ns=column(0), input_len=column(1), output_len=column(1)),
    "no times": Trace(arrival_ns=column(), input_len=column(5000, 9), output_len=column(7, 1)),
    "at once": Trace(arrival_ns=column(0, 0), input_len=column(5000, 9), output_len=column(7, 1)),
    "two rows": Trace(arrival_ns=column(0, 3), input_len=column(5000, 9), output_len=column(7, 1)),
}


@pytest.mark.parametrize("name", TINY)
def test_tiny_traces_have_a_screen_and_a_report(name: str) -> None:
    """What cannot be said is left out or marked, nowhere nan, inf or None."""
    shown = traffic(TINY[name])
    for said in (screen(shown), markdown(workload_document([shown])), html_page(workload_document([shown]))):
        text = re.sub(r"<(script|style).*?</\1>", "", said, flags=re.DOTALL)
        assert not re.search(r"\b(nan|None|inf)\b", text)


def test_the_report_is_the_same_bytes_each_time() -> None:
    """Two readings of one trace write one report."""
    assert html_page(workload_document([traffic(a_trace())])) == html_page(
        workload_document([traffic(a_trace())]))


def test_text_from_outside_is_escaped() -> None:
    """Names of files, tenants and reasons cannot become markup."""
    evil = "<img src=x onerror=alert(1)>"
    shown = traffic(a_trace(tenants=(evil, "b")), evil, rejected={evil: 2})
    assert evil not in html_page(workload_document([shown]))
    assert evil not in markdown(workload_document([shown]))
    assert "[bold]" in screen(traffic(a_trace(), "[bold]x"))


def test_the_screen_fits_a_terminal() -> None:
    """No line is longer than 80 columns; it has lengths, arrivals, reuse, tenants, advice."""
    said = screen(traffic(a_trace(), rejected={"failed": 4}))
    assert max(map(len, said.splitlines())) <= 80
    for word in ("Prompt tokens", "after prefix", "Index of dispersion, 10 s", "Prefix reuse", "chat",
                 "batch", "rows left out", "failed", "Chunked prefill", "16384"):
        assert word in said


def test_rows_that_were_left_out_are_named_in_the_report() -> None:
    """By reason, with their numbers, and rows that were cut too."""
    said = markdown(workload_document([traffic(a_trace(), rejected={"failed": 4, "too long": 11})]))
    assert "| too long | 11 |" in said
    assert "| failed | 4 |" in said
    assert "7 rows were cut" in markdown(workload_document([
        Traffic.of("x", "y", measured_trace(a_trace()), clipped=7)]))


def test_two_stand_side_by_side() -> None:
    """Every figure of a trace beside its model's, with the difference, and both in every chart."""
    trace, model = traffic(a_trace(), "trace"), traffic(a_trace(seed=5), "model")
    compared = comparison_table([trace, model])
    assert compared.columns == ("figure", "trace", "model", "difference")
    named = {row[0].text: [cell.text for cell in row[1:]] for row in compared.rows}
    assert named["Requests"] == ["300", "300", "±0\u00a0%"]
    assert {"Prompt tokens, p99", "Index of dispersion, 10 s", "Prefix reuse"} <= set(named)
    assert prompt_chart([trace, model]).data.columns[1:] == (
        "trace, whole prompt", "model, whole prompt", "trace, after prefix hits", "model, after prefix hits")
    said = markdown(workload_document([trace, model], title="Fit"))
    assert said.startswith("# Fit")
    assert "Side by side" in said


def test_the_arrival_chart_has_the_rate_of_each_window() -> None:
    """Requests over the seconds of their window; nothing is drawn without times."""
    times = np.concatenate([np.arange(20), 10_000 + np.arange(100)]) * SECOND
    chart = arrival_chart([traffic(Trace(arrival_ns=times, input_len=np.ones(120), output_len=np.ones(120)))])
    assert [cell.text for cell in chart.data.rows[0]] == ["arrivals", "0", "0.333"]
    assert arrival_chart([traffic(TINY["no times"])]).figure is None


def test_lengths_are_binned_once() -> None:
    """Edges double every two steps, and every length lies between two of them."""
    edges = doubling_edges(200)
    assert edges[0] == 1
    assert edges[-1] > 200
    assert np.all(np.diff(edges) > 0)
    chart = prompt_chart([traffic(TINY["no times"])])
    assert [row[1].text for row in (chart.data.rows[0], chart.data.rows[-1])] == ["50\u00a0%", "100\u00a0%"]


def test_a_last_window_that_decides_the_dispersion_is_named() -> None:
    """A trace that ends just after a full minute looks bursty by its last window alone."""
    times = np.append(np.arange(0, 120, 0.5), 120.0) * SECOND
    even = traffic(Trace(arrival_ns=times, input_len=np.ones(241), output_len=np.ones(241)))
    (doubt,) = arrival_doubts(even)
    assert "60 s" in doubt
    shorter = traffic(Trace(arrival_ns=times[:-1], input_len=np.ones(240), output_len=np.ones(240)))
    assert arrival_doubts(shorter) == []


def test_rounded_times_are_named() -> None:
    """Where most requests share their time with another, their bursts are those of the clock."""
    times = np.repeat(np.arange(100), 10) * SECOND
    (doubt,) = arrival_doubts(traffic(Trace(arrival_ns=times, input_len=np.ones(1000),
                                            output_len=np.ones(1000))))
    assert doubt.startswith("90.1")


def test_one_tenant_needs_no_table() -> None:
    """It would repeat the whole; prompts without prefix hits are not listed twice."""
    alone = traffic(a_trace(tenants=("only",)))
    assert tenant_table(alone).rows == ()
    assert len(length_table([traffic(TINY["two rows"])]).rows) == 2


def test_the_ending_says_which_report(tmp_path: Path) -> None:
    """.html and .md are written; another ending is refused before anything is."""
    for name, begin in (("a.html", "<!"), ("a.md", "# ")):
        written = write_workload_report([traffic(a_trace())], tmp_path / name)
        assert written.read_text(encoding="utf-8").startswith(begin)
    with pytest.raises(UsageError, match=r"\.html or \.md"):
        write_workload_report([traffic(a_trace())], tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()
