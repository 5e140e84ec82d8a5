"""What `tune run` refuses before anything is started, and what a resumed study may be told again."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.tuner.test_tuning import config
from tuner.cli.run_config import check_numbers, resumed_config
from workloads import UsageError


@pytest.mark.parametrize(("flag", "value"), [
    ("rate", math.nan), ("rate", math.inf), ("rate", 0.0), ("run_seconds", math.nan), ("run_seconds", 1e12),
    ("max_minutes", -1.0), ("max_minutes", 0.0), ("request_timeout", -1.0), ("request_timeout", math.nan),
    ("server_ready_timeout", math.nan), ("decode_deadline_ms", math.inf), ("prefill_slack_ms", -5.0),
    ("burstiness", 0.0), ("seed", -1), ("tensor_parallel_size", 0), ("gpu_memory_utilization", 5.0),
    ("kv_cache_memory_bytes", -1), ("max_model_len", -5),
])
def test_numbers_that_cannot_be_meant_are_refused(flag: str, value: float) -> None:
    """A NaN, a negative timeout or a share above 1 would cost an engine start, or hang."""
    with pytest.raises(UsageError, match=f"--{flag.replace('_', '-')} must be between"):
        check_numbers({flag: value})


def test_the_usual_numbers_pass() -> None:
    """Constant arrivals are a burstiness of infinity."""
    check_numbers({"rate": 2.5, "burstiness": math.inf, "seed": 0, "prefill_slack_ms": 0.0})


@pytest.mark.parametrize("again", [
    {"seed": 0}, {"slo": ["tbt:p99<=120ms", "fluidity:p10>=0.9"]}, {"preset": "cpu"}, {"run_seconds": 20},
])
def test_flags_repeated_with_the_same_value_are_fine(again: dict[str, Any]) -> None:
    """Whoever repeats his command with --resume is not refused, and loses nothing of the rest."""
    saved = config(max_trials=7, time_budget_s=99.0)
    assert resumed_config(saved, again) == saved


@pytest.mark.parametrize(("flag", "value"), [("seed", 5), ("slo", ["tbt:p99<=1s"]), ("rate", 2.0),
                                             ("token_budget", "64,128"), ("preset", "chat")])
def test_a_flag_with_another_value_is_named(flag: str, value: Any) -> None:
    """The message blames what differs, not something else."""
    with pytest.raises(UsageError, match=f"another --{flag.replace('_', '-')}:"):
        resumed_config(config(), {flag: value})


def test_how_far_to_go_may_change() -> None:
    """More trials and more time are what resuming is for."""
    further = resumed_config(config(), {"num_trials": 20, "max_minutes": 3.0, "request_timeout": 9.0})
    assert further == replace(config(), max_trials=20, time_budget_s=180.0, request_timeout_s=9.0)
