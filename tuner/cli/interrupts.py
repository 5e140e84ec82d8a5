"""Run asynchronous work so that Ctrl-C, SIGTERM and a closed terminal end it in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The work was cancelled by a signal and has cleaned up after itself."""


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; on a signal it is cancelled once, may clean up, and Interrupted is raised.

    Further signals are ignored: the clean-up is bounded in time, and half of it helps nobody.
    """
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    asked: list[int] = []

    def ask(number: int) -> None:
        if not asked:
            asked.append(number)
            task.cancel()

    # What was set to be ignored (nohup, a background job) stays ignored.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, ask, number)
    try:
        return await task
    except asyncio.CancelledError:
        if asked:
            raise Interrupted(signal.Signals(asked[0]).name) from None
        raise
    except Exception:
        # What a dying engine says after a Ctrl-C is a consequence of it.
        if asked:
            raise Interrupted(signal.Signals(asked[0]).name) from None
        raise
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
