"""`tune selfcheck`: the client's own error, found and judged."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bench.client_error import ClientError, Compared
from tuner.cli.main import main
from tuner.cli.selfcheck import screen
from tuner.selfcheck import SelfCheck, check_client
from workloads import Workload, build_plan

MS = 1_000_000
SMALL = ["--num-prompts", "30", "--request-rate", "300", "--input-len", "8", "--output-len", "5",
         "--ttft-ms", "20", "--interval-ms", "5"]


@pytest.fixture(scope="module")
def checked() -> SelfCheck:
    plan = build_plan(Workload.from_lengths(8, 5), rate_rps=300.0, num_prompts=30, seed=1)
    return asyncio.run(check_client(plan, ttft_ms=20, interval_ms=5))


def compared(true_ms: float, error_ms: float, typical_ms: float = 0.0) -> Compared:
    stats = ("p50", "p99", "max")
    return Compared(1000, dict.fromkeys(stats, true_ms * MS), dict.fromkeys(stats, (true_ms + error_ms) * MS),
                    dict.fromkeys(stats, typical_ms * MS))


def judged(checked: SelfCheck, *, ttft: Compared | None = None, tbt: Compared | None = None,
           early_ms: float = 0.0, mismatched: int = 0, late_ms: float = 0.1) -> SelfCheck:
    """The same check with other findings, and a run that was valid in itself."""
    valid = replace(checked.run, validity=replace(checked.run.validity, valid=True, reasons=(), notes=()))
    error = ClientError(ttft or compared(50, 0.2), tbt or compared(20, 0.1),
                        {"p1": -early_ms * MS, "p50": 0, "p99": 0, "max": 0}, 30, mismatched)
    server = {**checked.server, "saturated": late_ms > 2, "late_ms": {"p50": late_ms, "p99": 2 * late_ms}}
    return replace(checked, run=valid, error=error, server=server)


def test_every_token_is_found_again(checked: SelfCheck) -> None:
    """Whatever the machine's speed: all answers whole, none early, and the true figures are the server's."""
    assert checked.error.requests == 30
    assert checked.error.mismatched == 0
    assert checked.run.num_tokens.tolist() == [5] * 30
    assert checked.server["requests"] == 30  # what tried the server before is not in it
    assert checked.error.ttft.true["max"] == pytest.approx(checked.server["ttft_ms"]["max"] * MS, abs=100)
    assert checked.error.tbt.true["p99"] == pytest.approx(checked.server["tbt_ms"]["p99"] * MS, abs=100)
    assert checked.error.ttft.n == 30
    assert checked.error.tbt.n == 120
    assert checked.run.meta["token_count_source"] == "token_ids"


def test_small_errors_are_valid_and_say_what_they_leave(checked: SelfCheck) -> None:
    """The resolution is the error of the figure, or of a single sample if that is larger, rounded up."""
    good = judged(checked, ttft=compared(50, -0.204, typical_ms=0.1), tbt=compared(20, 0.0, typical_ms=0.3))
    assert good.reasons == ()
    assert good.exit_code == 0
    assert screen(good)[-1] == (
        "Valid. At this load differences below 0.21 ms in p50 TTFT, 0.21 ms in p99 TTFT, 0.30 ms in p50 TBT "
        "and 0.30 ms in p99 TBT are this client's.")


@pytest.mark.parametrize(("found", "says"), [
    ({"ttft": compared(50, 2.6)}, "p50 TTFT is +2.60 ms (limit 2.50 ms)"),
    ({"tbt": compared(20, -1.1)}, "p99 TBT is -1.10 ms (limit 1.00 ms)"),
    ({"early_ms": 0.2}, "0.20 ms before they were sent"),
    ({"mismatched": 3}, "3 answers have another number of messages"),
    ({"late_ms": 5.5}, "fell behind its own pace (5.5 ms late, p50)"),
])
def test_what_makes_it_invalid(checked: SelfCheck, found: dict[str, Any], says: str) -> None:
    """Errors above 5 % of the true figure (1 ms at least), lost or early tokens, a server left behind."""
    bad = judged(checked, **found)
    (reason,) = bad.reasons
    assert says in reason
    assert bad.exit_code == 3
    assert f"  - {reason}" in screen(bad)
    assert bad.as_dict()["invalid_reasons"] == [reason]


def test_an_uneven_server_is_noted(checked: SelfCheck) -> None:
    """Late by less than an interval it still knows the truth, and the client got its load."""
    uneven = judged(checked, late_ms=3)
    assert uneven.reasons == ()
    assert screen(uneven)[-1].startswith("Note: the paced server was 6.0 ms late itself (p99)")


def test_what_makes_the_run_invalid_makes_the_check_invalid(checked: SelfCheck) -> None:
    """A late client, for one; and failed requests are the client's fault here."""
    good = judged(checked)
    late = replace(good.run.validity, valid=False, reasons=("requests were sent late",))
    assert replace(good, run=replace(good.run, validity=late)).reasons == ("requests were sent late",)


@pytest.mark.parametrize("more", [[], ["--workers", "2"],
                                  ["--request-rate", "inf", "--max-concurrency", "10"]])
def test_the_command(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """JSON to standard output, the screen to standard error, exit code 0 or 3 as the machine is."""
    with pytest.raises(SystemExit) as left:
        main(["selfcheck", *SMALL, *more, "--json"])
    printed, told = capsys.readouterr()
    figures = json.loads(printed)
    assert left.value.code == (0 if figures["valid"] else 3)
    assert figures["client_error"]["requests"] == 30
    assert figures["server"]["requests"] == 30
    assert figures["load"]["workers"] == (2 if "--workers" in more else 1)
    assert ("Valid." if figures["valid"] else "Not valid") in told
    if "--max-concurrency" in more:
        assert figures["load"]["peak_in_flight"] <= 10


@pytest.mark.parametrize(("flags", "says"), [
    (["--interval-ms", "0"], "--interval-ms must be a finite number above 0"),
    (["--ttft-ms", "-1"], "--ttft-ms must be a finite number of at least 0"),
    (["--workers", "0"], "--workers"),
    (["--num-prompts", "5", "--duration", "5"], "either --num-prompts or --duration"),
    (["--preset", "chat", "--input-len", "5"], "exactly one of"),
])
def test_wrong_usage(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and exit code 64, before anything is started."""
    with pytest.raises(SystemExit) as left:
        main(["selfcheck", *flags])
    told = capsys.readouterr().err
    assert left.value.code == 64
    assert told.count("\n") == 1
    assert says in told
