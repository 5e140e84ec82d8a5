"""Synthetic runs and studies, as a tuning would have left them on disk."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import NEVER, Outcome, Run, TokenArrivals, Validity, save_run

MakeRun = Callable[..., Run]
DEFAULT = {
    "token_budget": 2048,
    "max_seqs": 64,
    "long_prefill_token_threshold": 0,
    "adaptive_long_prefill": False,
    "policy": "fcfs",
}
BEST = {**DEFAULT, "token_budget": 128, "max_seqs": 32, "long_prefill_token_threshold": 64}


def make_run(
    *,
    budget: int = 128,
    rate_rps: float = 1.2,
    requests: int = 160,
    tokens: int = 120,
    failed: int = 0,
    seed: int = 1,
    **meta: Any,
) -> Run:
    """A run whose gaps are mostly short; larger budgets stall rarer and longer, as on a real engine."""
    rng = np.random.default_rng([seed, budget])
    ok = np.arange(requests) >= failed
    intended = np.cumsum(rng.exponential(1e9 / rate_rps, requests)).astype(np.int64)
    sent = intended + rng.integers(10_000, 400_000, requests)
    counts = np.where(ok, tokens, 0)
    total = int(counts.sum())
    gaps = rng.lognormal(np.log(26e6), 0.18, total)
    stalls = rng.random(total) < min(0.25, 70 / budget)
    gaps[stalls] += rng.gamma(6.0, budget * 3e4, int(stalls.sum()))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    starts = offsets[:-1][counts > 0]
    gaps[starts] = rng.lognormal(np.log(0.4e9 + 6e7 * 128 / budget), 0.4, len(starts))
    reads = np.concatenate([np.cumsum(part) for part in np.split(gaps, offsets[1:-1])]) if total else gaps
    read_ns = reads.astype(np.int64) + np.repeat(sent, counts)
    last = np.where(ok, 0, NEVER)
    last[counts > 0] = read_ns[offsets[1:][counts > 0] - 1]
    return Run(
        index=np.arange(requests, dtype=np.int32),
        component=np.zeros(requests, dtype=np.int16),
        input_len=np.full(requests, 300, dtype=np.int32),
        output_len=np.full(requests, tokens, dtype=np.int32),
        warmup=np.zeros(requests, dtype=np.bool_),
        intended_ns=intended,
        sent_ns=sent,
        end_ns=last.astype(np.int64),
        outcome=np.where(ok, Outcome.OK, Outcome.ERROR).astype(np.int8),
        num_tokens=counts.astype(np.int32),
        reads_offset=offsets,
        read_ns=read_ns,
        read_tokens=np.ones(total, dtype=np.int32),
        meta={
            "rate_rps": rate_rps,
            "knobs": {**DEFAULT, "token_budget": budget},
            "seed": seed,
            "workload": {"name": "mixed", "digest": "ab12"},
            "engine": {"name": "scripted", "version": "1", "model": "tiny"},
            **meta,
        },
        validity=Validity(),
    )


def figures_of(run: Run) -> dict[str, float | None]:
    """The flat figures that a tuning stores of a run."""
    gaps = TokenArrivals.from_run(run, run.ok).token_gaps_ns() / 1e6
    ttft = (run.first_token_ns() - run.sent_ns)[run.ok] / 1e6
    some = bool(len(gaps))
    return {
        "p99_tbt_ms": float(np.percentile(gaps, 99)) if some else None,
        "max_tbt_ms": float(gaps.max()) if some else None,
        "median_ttft_ms": float(np.median(ttft)) if some else None,
        "p99_ttft_ms": float(np.percentile(ttft, 99)) if len(ttft) >= 100 else None,
        "fluidity_p10": float(np.clip(1 - np.mean(gaps > 120) * 9, 0, 1)) if some else None,
        "fluidity_pooled": float(np.clip(1 - np.mean(gaps > 120) * 3, 0, 1)) if some else None,
        "output_throughput": float(run.num_tokens.sum() / (run.end_ns.max() - run.sent_ns[0]) * 1e9)
        if some
        else None,
        "request_throughput": run.rate_rps if some else None,
        "completed": float(run.ok.sum()),
        "failed": float((~run.ok).sum()),
    }


def judged(figures: Mapping[str, float | None]) -> dict[str, Any]:
    """The SLO of `StudyBuilder.data` applied to figures."""
    tbt, fluid = figures["p99_tbt_ms"], figures["fluidity_p10"]
    objectives = [
        {
            "text": "tbt:p99<=120ms",
            "observed": tbt,
            "limit": 120.0,
            "unit": "ms",
            "n": 19040,
            "holds": tbt is not None and tbt <= 120,
            "violation": None,
            "why": "" if tbt else "no samples",
        },
        {
            "text": "fluidity:p10>=90%",
            "objective": "fluidity:p10>=0.9",
            "observed": fluid,
            "limit": 0.9,
            "unit": "fraction",
            "n": 160,
            "holds": fluid is not None and fluid >= 0.9,
            "violation": None,
            "why": "" if fluid else "no samples",
        },
    ]
    return {"holds": all(o["holds"] for o in objectives), "objectives": objectives}


class StudyBuilder:
    """Writes runs and a recommendation.json under a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def entry(self, name: str, run: Run) -> dict[str, Any]:
        save_run(run, self.directory / "runs" / name)
        figures = figures_of(run)
        judgement = judged(figures)
        return {
            "rate_rps": run.rate_rps,
            "run": f"runs/{name}",
            "holds": judgement["holds"],
            "judgement": judgement,
            "figures": figures,
            "seconds": 41.5,
        }

    def trial(
        self, number: int, knobs: Mapping[str, Any], rates: tuple[float, ...], source: str
    ) -> dict[str, Any]:
        runs = [
            self.entry(
                f"trial-{number:02}-{i}", make_run(budget=knobs["token_budget"], rate_rps=rate, seed=i)
            )
            for i, rate in enumerate(rates)
        ]
        held = [run["rate_rps"] for run in runs if run["holds"]]
        return {
            "number": number,
            "knobs": dict(knobs),
            "source": source,
            "outcome": "ok" if held else "slo_violated",
            "capacity_rps": max(held, default=None),
            "runs": runs,
            "constraints": {},
            "seconds": 92.0,
            "note": "",
        }

    def setting(self, knobs: Mapping[str, Any], trial: Mapping[str, Any], confirmed: str) -> dict[str, Any]:
        run = make_run(budget=knobs["token_budget"], rate_rps=1.2, requests=200, seed=77)
        search = {**trial["runs"][0], "capacity_rps": trial["capacity_rps"]}
        command = (
            f"vllm serve tiny --max-num-batched-tokens {knobs['token_budget']} "
            f"--max-num-seqs {knobs['max_seqs']}"
        )
        return {
            "knobs": dict(knobs),
            "serve_command": command,
            "config_file": "recommended.yaml",
            "search": search,
            "confirmed": {**self.entry(confirmed, run), "capacity_rps": trial["capacity_rps"]},
            "effective_knobs": dict(knobs),
        }

    def data(self) -> dict[str, Any]:
        """A finished study of nine trials, its runs saved."""
        budgets = (2048, 128, 64, 256, 512, 1024, 192, 96)
        trials = [
            self.trial(
                i,
                BEST if budget == 128 else {**DEFAULT, "token_budget": budget},
                (0.8, 1.2),
                "default" if i == 0 else "analytic" if i == 1 else "search",
            )
            for i, budget in enumerate(budgets)
        ]
        trials.append(
            {
                "number": 8,
                "knobs": {**DEFAULT, "token_budget": 4096},
                "source": "search",
                "outcome": "out_of_memory",
                "capacity_rps": None,
                "runs": [],
                "constraints": {},
                "seconds": 12.0,
                "note": "the engine found no memory for the KV cache",
            }
        )
        return {
            "schema_version": 1,
            "stallfree_version": "0.1.0",
            "created": "2026-11-30T12:00:00Z",
            "verdict": "recommended",
            "objective": "capacity",
            "rate_rps": None,
            "verdict_text": "Serve with a token budget of 128: it meets the SLO, the default does not.",
            "recommended": self.setting(BEST, trials[1], "confirm-recommended"),
            "default": self.setting(DEFAULT, trials[0], "confirm-default"),
            "slo": [
                {
                    "text": "tbt:p99<=120ms",
                    "metric": "tbt",
                    "stat": "p99",
                    "op": "<=",
                    "limit": 120,
                    "unit": "ms",
                },
                {
                    "text": "fluidity:p10>=0.9",
                    "metric": "fluidity",
                    "stat": "p10",
                    "op": ">=",
                    "limit": 0.9,
                    "unit": "",
                },
            ],
            "deadlines": {
                "decode_ms": 120,
                "prefill_slack_ms": 300,
                "curve": [{"tokens": 64, "ms": 60}, {"tokens": 1024, "ms": 800}],
            },
            "workload": {
                "name": "mixed-cpu",
                "description": "chat with long documents",
                "burstiness": 1.0,
                "components": [
                    {"name": "chat", "weight": 0.8, "input": "lognormal 60", "output": "120"},
                    {"name": "document", "weight": 0.2, "input": "1000", "output": "60"},
                ],
                "mean_input": 248,
                "mean_output": 108,
                "digest": "5e1f",
            },
            "trials": trials,
            "engine_starts": 3,
            "engine_seconds": 401.0,
            "wall_seconds": 446.0,
            "environment": {
                "engine": "vllm",
                "engine_version": "0.32.0",
                "model": "SmolLM2-135M",
                "machine": {"cores": 2, "memory_gib": 16},
                "live_knobs": True,
            },
            "warnings": ["The machine had other work: the load was 1.4 before the study."],
        }

    def write(self, data: Mapping[str, Any]) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "recommendation.json").write_text(json.dumps(data))
        return self.directory


@pytest.fixture(name="make_run")
def _make_run() -> MakeRun:
    return make_run


@pytest.fixture
def builder(tmp_path: Path) -> StudyBuilder:
    return StudyBuilder(tmp_path / "study")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished study; tests only read it."""
    made = StudyBuilder(tmp_path_factory.mktemp("finished") / "study")
    return made.write(made.data())
