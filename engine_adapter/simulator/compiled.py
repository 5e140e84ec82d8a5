"""The compiled functions that are called from Python, with their machine code kept on disk.

numba notices a change of the file that holds a function, not of the files whose functions it calls.
So only the entry points below are kept, and each carries a number that changes with the source of all
the kernels.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from engine_adapter.simulator import kernel_blocks, kernel_loop, kernel_steps


def _sources_number() -> int:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name.startswith(("kernel_", "cost_")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:7])


def _kept(function: Callable[..., Any]) -> Any:
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no directory to keep it in
        return njit(function)


def _entry_points(sources: int) -> tuple[Any, ...]:
    def add(state, row):  # type: ignore[no-untyped-def]
        kernel_steps.add(state, row)
        return sources

    def decide(state, other_rule):  # type: ignore[no-untyped-def]
        return kernel_steps.decide(state, other_rule) + 0 * sources

    def finish_oldest(state):  # type: ignore[no-untyped-def]
        return kernel_steps.finish_oldest(state) + 0 * sources

    def end_early(state, row):  # type: ignore[no-untyped-def]
        kernel_steps.end_early(state, row)
        return sources

    def reset_blocks(state):  # type: ignore[no-untyped-def]
        kernel_blocks.reset_blocks(state)
        return sources

    def play_slice(state, timeline, cost, other_rule, turns):  # type: ignore[no-untyped-def]
        return kernel_loop.play_slice(state, timeline, cost, other_rule, turns) + 0 * sources

    functions = (add, decide, finish_oldest, end_early, reset_blocks, play_slice)
    return tuple(_kept(function) for function in functions)


add, decide, finish_oldest, end_early, reset_blocks, play_slice = _entry_points(_sources_number())
