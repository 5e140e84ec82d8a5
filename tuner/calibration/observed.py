"""What the step logs of runs show of the cost of a step, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from bench import Run
from workloads.errors import EvidenceError

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

WARM_UP_STEPS = 10
"""So many steps at the start of a run are left out: a first sample that was 7 s long has spoilt a fit
(sglang#17198)."""
BLOCK_STEPS = 20
"""Steps that follow one another are alike, so they are held out in blocks."""
MOST_STEPS = 20_000
"""More add nothing but time; then every so many blocks are left out."""
LEAST_STEPS = 100
LEAST_OF_A_KIND = 10


@dataclass(frozen=True, slots=True, eq=False)
class ObservedSteps:
    """One entry a step, shape (n,), but for the columns of chunks, which have one a chunk."""

    took_ns: Float64
    """From its start, or the end of the step before if that was later, to its end."""
    tokens: Int64
    chunks: Int64
    decodes: Int64
    decode_context: Int64
    """Tokens that the decoding requests had before it, all of them together."""
    new_shape: Bool
    """No step of its run had so many tokens before: engines prepare kernels and buffers by shape."""
    overlapped: Bool
    """It was planned while the step before still ran."""
    after_idle: Bool
    """It began when the engine had been idle, so that nothing could hide its host part."""
    gap_ns: Float64
    """Since the end of the step before, where requests were there all the while and the steps do not
    overlap; else NaN."""
    run: Int64
    """Which of the runs it belongs to."""
    block: Int64
    """Number of its block."""
    chunk_step: Int64
    """The step of each chunk, as a row of this table, ascending."""
    chunk_tokens: Int64
    chunk_prefix: Int64

    def __len__(self) -> int:
        return len(self.took_ns)

    @property
    def asynchronous(self) -> bool:
        """Whether steps overlap, so that the host's part hides behind the step before."""
        return bool(self.overlapped.mean() > 0.5) if len(self) else False

    def where(self, wanted: Bool) -> Self:
        """These steps alone."""
        place = np.cumsum(wanted) - 1
        kept = wanted[self.chunk_step]
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return type(self)(**{
            name: column[kept] if name.startswith("chunk_") else column[wanted]
            for name, column in (columns | {"chunk_step": place[self.chunk_step]}).items()
        })

    def thinned(self, most: int) -> Self:
        """About `most` steps at the most: every so many blocks, numbered anew."""
        every = -(-len(self) // most)
        if every <= 1:
            return self
        fewer = self.where(self.block % every == 0)
        return replace(fewer, block=fewer.block // every)

    def per_step(self, of_chunks: Float64 | Int64) -> Float64:
        """Sum over the chunks of each step, shape (n,)."""
        sums = np.zeros(len(self))
        np.add.at(sums, self.chunk_step, of_chunks)
        return sums

    def most_per_step(self, of_chunks: Int64) -> Int64:
        """Largest value among the chunks of each step, shape (n,); -1 for a step without chunks."""
        most = np.full(len(self), -1, dtype=np.int64)
        np.maximum.at(most, self.chunk_step, of_chunks)
        return most


def observe(runs: Sequence[Run], names: Sequence[str]) -> ObservedSteps:
    """The steps of `runs`, warm-up left out; `names` are for the messages.

    EvidenceError, one line, for a run without a whole step log, and where there are too few steps, or
    hardly one with a part of a prompt or one that generates: nothing could be fitted to them.
    """
    for run, name in zip(runs, names, strict=True):
        refuse_unless_logged(run, name)
    parts = [_steps_of(run, number) for number, run in enumerate(runs)]
    observed = _joined(parts).thinned(MOST_STEPS)
    if len(observed) < LEAST_STEPS:
        raise EvidenceError(
            f"the runs have {len(observed)} steps after their first {WARM_UP_STEPS}; at least {LEAST_STEPS} "
            f"are needed: give longer runs")
    if int((observed.chunks > 0).sum()) < LEAST_OF_A_KIND:
        raise EvidenceError("hardly a step of the runs holds a part of a prompt: give runs with prompts")
    if int((observed.decodes > 0).sum()) < LEAST_OF_A_KIND:
        raise EvidenceError("hardly a step of the runs generates tokens: give runs with longer answers")
    return observed


def refuse_unless_logged(run: Run, name: str) -> None:
    """EvidenceError where the run has no whole step log of steps that follow one another."""
    if not len(run.steps):
        raise EvidenceError(f"{name} has no step log: only an engine that Stallfree starts itself writes "
                            f"one, so measure it with `tune bench --model`")
    if run.steps.lost:
        raise EvidenceError(f"{name} lost {run.steps.lost} engine steps before they were read: measure it "
                            f"again on an idle machine, or leave it out")
    fingerprint = (run.meta.get("engine") or {}).get("fingerprint") or {}
    if (stages := fingerprint.get("pipeline_parallel") or 1) > 1:
        raise EvidenceError(f"{name} has {stages} pipeline stages, whose steps overlap: calibrate from an "
                            f"engine with pipeline_parallel_size 1")


def _steps_of(run: Run, number: int) -> ObservedSteps:
    steps, chunks = run.steps.steps, run.steps.chunks
    place = np.searchsorted(steps["step"], chunks["step"])
    n = len(run.steps)
    known = (place < n) & (steps["step"][np.minimum(place, n - 1)] == chunks["step"])
    order = np.argsort(place[known], kind="stable")
    chunk_step, tokens, prefix = (
        column[known][order] for column in (place, chunks["tokens"], chunks["prefix"]))
    work = np.bincount(chunk_step, weights=tokens * (prefix + tokens / 2), minlength=n)
    # A decode's own work is its context and half a token.
    context = np.maximum(steps["attention_work"] - work - steps["num_decodes"] / 2, 0)
    new_shape = np.zeros(n, dtype=np.bool_)
    new_shape[np.unique(steps["num_tokens"], return_index=True)[1]] = True
    gap, had_work = _gaps(run)
    whole = ObservedSteps(
        took_ns=run.steps.duration_ns().astype(np.float64), tokens=steps["num_tokens"],
        chunks=np.bincount(chunk_step, minlength=n).astype(np.int64), decodes=steps["num_decodes"],
        decode_context=np.rint(context).astype(np.int64), new_shape=new_shape,
        overlapped=gap < 0, after_idle=(gap > 0) & ~had_work,
        gap_ns=np.where(had_work & (gap >= 0), gap, np.nan),
        run=np.full(n, number, dtype=np.int64), block=np.arange(n, dtype=np.int64) // BLOCK_STEPS,
        chunk_step=chunk_step, chunk_tokens=tokens, chunk_prefix=prefix)
    return whole.where((np.arange(n) >= WARM_UP_STEPS) & (whole.took_ns > 0))


def _gaps(run: Run) -> tuple[Float64, Bool]:
    """Time from the end of the step before to the start of each, below 0 where they overlap, and
    whether there was work all the while: a request that decodes now was there before."""
    steps = run.steps.steps
    gap = np.zeros(len(run.steps))
    gap[1:] = steps["start_ns"][1:] - steps["end_ns"][:-1]
    had_work = steps["num_decodes"] > 0
    had_work[1:] |= steps["num_waiting"][:-1] > 0
    had_work[0] = False
    return gap, had_work


def _joined(parts: Sequence[ObservedSteps]) -> ObservedSteps:
    columns: dict[str, list[npt.NDArray[np.generic]]] = {f.name: [] for f in fields(ObservedSteps)}
    rows = blocks = 0
    for part in parts:
        for name, column in columns.items():
            shift = {"chunk_step": rows, "block": blocks}.get(name, 0)
            values = getattr(part, name)
            column.append(values + shift if shift else values)
        rows += len(part)
        blocks += int(part.block.max(initial=-1)) + 1
    return ObservedSteps(**{name: np.concatenate(column) for name, column in columns.items()})
