"""The statistics reproduce what is published of public traces; skipped where their files are not at hand."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.prompt_parts import PromptBlocks
from workloads.traces.chunking_advice import Load, chunking_advice
from workloads.traces.statistics import measured_trace, trace_statistics
from workloads.traces.trace import Trace

DATA = Path(__file__).resolve().parents[3] / "../shared/data"
pytestmark = pytest.mark.skipif(not (DATA / "mooncake").is_dir(), reason="the public traces are not here")


def azure(name: str) -> Trace:
    """Read plainly, so that a wrong reader cannot hide a wrong statistic."""
    lines = (DATA / f"azure2023/AzureLLMInferenceTrace_{name}.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    seconds = [datetime.fromisoformat(f"{time.partition('.')[0]}+00:00").timestamp() for time, *_ in rows]
    parts = [int(time.partition(".")[2].ljust(9, "0")) for time, *_ in rows]
    times = np.array(seconds, dtype=np.int64) * 1_000_000_000 + np.array(parts)
    return Trace(arrival_ns=times - times[0], input_len=[int(row[1]) for row in rows],
                 output_len=[int(row[2]) for row in rows])


def mooncake(name: str) -> Trace:
    rows = [json.loads(line) for line in (DATA / f"mooncake/{name}_trace.jsonl").read_text().splitlines()]
    keys = [row["hash_ids"] for row in rows]
    blocks = PromptBlocks(512, np.concatenate([np.array(each) for each in keys]),
                          np.cumsum([0, *map(len, keys)]))
    return Trace(arrival_ns=[row["timestamp"] * 1_000_000 for row in rows], blocks=blocks,
                 input_len=[row["input_length"] for row in rows],
                 output_len=[row["output_length"] for row in rows])


def lengths(found: dict[str, Any], name: str) -> list[int]:
    return [round(found[name][stat]) for stat in ("mean", "p50", "p90", "p95", "p99", "max")]


@pytest.mark.parametrize(("trace", "rate", "cv", "dispersion", "inputs", "outputs"), [
    (lambda: azure("code"), 2.57, 13.15, (13.2, 71, 161),
     [2048, 1469, 5188, 7303, 7436, 7437], [28, 13, 55, 90, 251, 1899]),
    (lambda: azure("conv"), 5.53, 1.09, (1.4, 4.0, 20.6),
     [1155, 1020, 2734, 4083, 4142, 14050], [211, 129, 424, 451, 601, 1000]),
    (lambda: mooncake("conversation"), 3.40, 3.03, (7.9, 2.1, 2.9),
     [12035, 6909, 27367, 39550, 85400, 126195], [343, 350, 597, 698, 1119, 2000]),
    (lambda: mooncake("synthetic"), 3.91, 1.01, (1.1, 1.4, 13),
     [15325, 11587, 38611, 48905, 66456, 191378], [149, 69, 389, 519, 768, 893]),
], ids=["azure code", "azure conversation", "mooncake conversation", "mooncake synthetic"])
def test_published_table(trace: Any, rate: float, cv: float, dispersion: tuple[float, ...],
                         inputs: list[int], outputs: list[int]) -> None:
    """Rates, CV, indices of dispersion and percentiles are those of the table, to its rounding."""
    found = trace_statistics(trace())
    assert found["rate_rps"] == pytest.approx(rate, abs=0.005)
    assert found["arrival_cv"] == pytest.approx(cv, abs=0.005)
    assert list(found["index_of_dispersion"].values()) == pytest.approx(dispersion, rel=0.03, abs=0.05)
    assert lengths(found, "input_len") == pytest.approx(inputs, abs=1)
    assert lengths(found, "output_len") == pytest.approx(outputs, abs=1)


@pytest.mark.parametrize(("name", "tokens", "in_blocks"), [
    ("conversation", 0.374, 0.366), ("synthetic", 0.651, 0.640)])
def test_published_prefix_reuse(name: str, tokens: float, in_blocks: float) -> None:
    """An endless cache of leading blocks holds so many tokens and blocks of Mooncake's prompts."""
    found = trace_statistics(mooncake(name))
    assert found["prefix_reuse"] == pytest.approx(tokens, abs=0.0005)
    assert found["prefix_reuse_detail"]["share_of_blocks"] == pytest.approx(in_blocks, abs=0.0005)


def test_published_uncached_lengths() -> None:
    """After prefix hits the median prompt of the conversations has 2,470 tokens, p99 71,888; 6.9 % of the
    whole prompts are above 32K."""
    found = trace_statistics(mooncake("conversation"))
    assert found["uncached_input_len"]["p50"] == 2470
    assert round(found["uncached_input_len"]["p99"]) == 71_888
    assert found["share_of_prompts_above"]["32768"] == pytest.approx(0.069, abs=0.0005)


@pytest.mark.parametrize(("trace", "verdict"), [
    (lambda: azure("code"), "first_token_bound"), (lambda: azure("conv"), "good_fit"),
    (lambda: mooncake("conversation"), "good_fit")])
def test_verdicts_on_public_traces(trace: Any, verdict: str) -> None:
    """Completions of code wait for their first token; conversations with long prompts are a good fit."""
    assert chunking_advice(Load.of(measured_trace(trace()))).verdict == verdict
