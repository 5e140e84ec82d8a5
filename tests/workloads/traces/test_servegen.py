"""ServeGen client models: requests drawn from rates, gaps and length distributions."""

import json
from pathlib import Path

import numpy as np
import pytest

from workloads import UsageError
from workloads.traces import ReadOptions, open_trace, read_trace

DATA = Path(__file__).resolve().parents[3] / "../shared/data"
WINDOWS = "0,0.5,1.2,Gamma,0.7,2.8\n600,0,0,,0,0\n1200,2,3.1,Weibull,0.45,0.2\n"
SPANS = {"0": {"input_tokens": "{10: 0.25, 30: 0.75}", "output_tokens": "{7: 0.5, 5: 0.5}",
               "reason_ratio": "{}"},
         "1200": {"input_tokens": "{}", "output_tokens": "{}"}}


@pytest.fixture
def client(tmp_path: Path) -> Path:
    (tmp_path / "chunk-1-trace.csv").write_text(WINDOWS)
    (tmp_path / "chunk-1-dataset.json").write_text(json.dumps(SPANS))
    return tmp_path / "chunk-1"


def test_rates_lengths_and_silence(client: Path) -> None:
    """Each window holds the requests of its rate, a rate of 0 none; lengths come with their probabilities,
    those of an empty span from the nearest one."""
    trace = read_trace(client)
    # The second window is silent; times count from the first request, itself within the first window.
    assert np.histogram(trace.arrival_ns / 1e9, [0, 600, 1190, 1800])[0].tolist() == [300, 0, 1200]
    assert set(trace.input_len.tolist()) == {10, 30}
    assert np.mean(trace.input_len == 10) == pytest.approx(0.25, abs=0.05)
    assert np.mean(trace.output_len == 5) == pytest.approx(0.5, abs=0.05)


def test_gaps_have_the_spread_of_their_law(client: Path) -> None:
    """The CV of the gaps is that of the window's shape: 2.5 for Weibull with shape 0.45."""
    trace = read_trace(client, options=ReadOptions(window_s=(1201, 1800)))
    gaps = np.diff(trace.arrival_ns)
    assert gaps.std() / gaps.mean() == pytest.approx(2.5, rel=0.2)


def test_the_seed_decides(client: Path) -> None:
    """Equal seeds give equal traces, other seeds others of the same size."""
    one, same, other = (read_trace(client, options=ReadOptions(seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.arrival_ns, same.arrival_ns)
    assert np.array_equal(one.input_len, same.input_len)
    assert len(one) == len(other)
    assert not np.array_equal(one.arrival_ns, other.arrival_ns)


@pytest.mark.parametrize("end", ["", "-trace.csv", "-dataset.json"])
def test_either_file_or_their_stem_names_the_client(client: Path, end: str) -> None:
    """The path of one file, or what both have in common, is enough."""
    assert open_trace(f"{client}{end}").format == "servegen"
    assert len(read_trace(f"{client}{end}")) == 1500


@pytest.mark.parametrize(("windows", "spans", "said"), [
    ("0,1,1,Poisson,1,1\n", SPANS, r"trace\.csv:1: no window of a ServeGen client.*'Poisson'"),
    ("0,1,1,Gamma\n", SPANS, r"trace\.csv:1: .*4 fields"),
    ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", SPANS, r"trace\.csv:2: .*not after that of the window above"),
    ("0,1,1,Gamma,nan,1\n", SPANS, "out of range"),
    ("0,1e9,1,Gamma,1,1\n", SPANS, "requests in one window"),
    (WINDOWS, [], "no data set of a ServeGen client"),
    (WINDOWS, {"0": {}}, "no data set of a ServeGen client"),
    (WINDOWS, {"0": {"input_tokens": "{}", "output_tokens": "{1: 1}"}}, "every span is empty"),
    (WINDOWS, {"0": {"input_tokens": "{1: x}", "output_tokens": "{1: 1}"}}, "from 0 s cannot be read"),
    ("600,0,0,,0,0\n", SPANS, "has no rows")])
def test_what_is_no_client_is_refused(client: Path, windows: str, spans: object, said: str) -> None:
    """Other laws, missing fields, times that do not rise and broken distributions are errors of one line."""
    client.with_name("chunk-1-trace.csv").write_text(windows)
    client.with_name("chunk-1-dataset.json").write_text(json.dumps(spans))
    with pytest.raises(UsageError, match=said) as error:
        read_trace(client, format="servegen")
    assert "\n" not in str(error.value)


def test_a_missing_half_is_named(client: Path) -> None:
    """Without the file of lengths the error names it."""
    client.with_name("chunk-1-dataset.json").unlink()
    with pytest.raises(UsageError, match=r"cannot open the trace .*chunk-1-dataset\.json"):
        read_trace(f"{client}-trace.csv", format="servegen")


@pytest.mark.skipif(not (DATA / "servegen").is_dir(), reason="the public traces are not here")
def test_a_published_client() -> None:
    """A client of DeepSeek-R1 gives as many requests as its rates say, and answers longer than prompts."""
    reader = open_trace(DATA / "servegen/deepseek-r1_chunk-66")
    (trace,) = reader.pieces()
    assert len(trace) + reader.rejected.get("failed", 0) == 41_230
    assert trace.output_len.mean() > trace.input_len.mean()
