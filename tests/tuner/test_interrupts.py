"""A signal ends the work in order, whatever the work was doing."""

import asyncio
import os
import signal

import pytest

from tuner.cli.interrupts import Interrupted, run_interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_the_work_and_its_clean_up_is_finished(number: signal.Signals) -> None:
    """The work may clean up, a second signal does not cut that short, and the caller is told."""
    steps: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            steps.append("engine stopped")

    with pytest.raises(Interrupted, match=number.name):
        run_interruptible(work())
    assert steps == ["engine stopped"]


def test_what_the_dying_engine_says_after_a_signal_is_not_the_news() -> None:
    """An error that follows from the interruption is reported as the interruption."""
    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise RuntimeError("engine died") from None

    with pytest.raises(Interrupted):
        run_interruptible(work())


def test_without_a_signal_results_and_errors_pass_through() -> None:
    """Nothing is swallowed."""
    async def fails() -> None:
        raise RuntimeError("a defect")

    async def works() -> int:
        return 7

    assert run_interruptible(works()) == 7
    with pytest.raises(RuntimeError, match="a defect"):
        run_interruptible(fails())


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """Under nohup a closed terminal does not end a tuning."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work() -> str:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.01)
        return "finished"

    try:
        assert run_interruptible(work()) == "finished"
    finally:
        signal.signal(signal.SIGHUP, before)
