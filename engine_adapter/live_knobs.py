"""Scheduler settings of a running engine, changed through its control block and read back."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine_adapter.control_block import ControlBlock
from engine_adapter.errors import Hung, NeedsRestart
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Applied, EngineInfo
from workloads.errors import UsageError

PROBE_NUMBER = 1 << 40
"""Request numbers from here on are the adapter's own."""
PROBE_DEADLINE_S = 60.0


class LiveKnobs:
    """`ask` sends one prompt of so many tokens, wants one token, and returns when it has come.

    Works on every engine whose scheduler is our plug-in, however its requests reach it.
    """

    def __init__(self, block: ControlBlock, ask: Callable[[int], Awaitable[None]]) -> None:
        self.block = block
        self._ask = ask

    async def why_not(self, started: Knobs, max_model_len: int) -> str:
        """Why this engine's knobs are not live, or "" when a smaller budget really shortens its steps.

        `started` are the knobs in force; they are in force again afterwards.
        """
        if self.block.plugin_pid == 0:
            return "the scheduler plug-in was not loaded by this vLLM"
        if self.block.plugin_broken:
            return "this vLLM's scheduler is not one that the plug-in knows"
        small = Knobs(min(32, started.token_budget), min(4, started.max_seqs), policy=started.policy)
        try:
            await self._change(small)
        except NeedsRestart as error:
            return str(error)
        await self._probe(min(3 * small.token_budget, max_model_len - 2))
        largest = self.block.read_steps().steps["num_tokens"].max(initial=0)
        await self._change(started)
        if not 0 < largest <= small.token_budget:
            return (f"a live budget of {small.token_budget} did not take effect: "
                    f"a step carried {largest} tokens")
        return ""

    async def apply(self, knobs: Knobs, info: EngineInfo) -> Applied:
        """Change the engine that `info` describes. NeedsRestart when it cannot, or did not, take `knobs`."""
        if (why := info.settings.limits.refusal(knobs)) is not None:
            raise NeedsRestart(why)
        if knobs.policy != info.settings.knobs.policy:
            raise NeedsRestart("the scheduling policy is fixed when the engine starts")
        if not info.live_knobs:
            raise NeedsRestart(info.live_knobs_note)
        await self._change(knobs)
        return Applied(self.block.effective())

    async def _change(self, knobs: Knobs) -> None:
        version = self.block.ask(knobs)
        # Knobs are taken over when the next step is planned, so one is caused.
        await self._probe(1)
        if self.block.applied_version != version or self.block.effective() != knobs:
            raise NeedsRestart(f"the engine reports {self.block.effective().label()} "
                               f"after {knobs.label()} was asked")
        self.block.read_steps()

    async def _probe(self, length: int) -> None:
        try:
            await asyncio.wait_for(self._ask(length), PROBE_DEADLINE_S)
        except TimeoutError:
            raise Hung(f"the engine did not answer a probe within {PROBE_DEADLINE_S:.0f} s") from None


def probe_prompt(number: int, length: int) -> list[int]:
    """Token ids for the probe of this number: another beginning each, so that a prefix cache never
    shortens one."""
    return [10 + (number * 7919 + i * 31) % 1000 for i in range(length)]


def open_control_block(path: Path) -> ControlBlock:
    """The control block of an engine that somebody else started, its older steps left out.

    UsageError when `path` is none, or when no engine has taken it up.
    """
    try:
        block = ControlBlock.attach(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--control-block {path} cannot be used ({error}): {_HOW_TO_START}") from None
    if block.plugin_pid == 0:
        raise UsageError(f"--control-block {path} is not in use by any engine: {_HOW_TO_START}")
    block.read_steps()
    return block


_HOW_TO_START = ("start the server with `python -m engine_adapter.vllm_server FILE -- MODEL` "
                 "and give that FILE")
