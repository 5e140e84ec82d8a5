"""From a trace that says what its prompts share to the model of `reuse`."""

import zlib
from functools import partial

import numpy as np
import numpy.typing as npt

from workloads.fitting.length_tables import length_table
from workloads.lengths import Quantiles
from workloads.prompt_parts import PromptBlocks
from workloads.reuse import PromptReuse, ReuseClass, SharedParts, reused_blocks
from workloads.traces.prefix_reuse import PrefixReuse
from workloads.traces.trace import Trace

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

_CLASS_ENDS = (0.25, 0.5, 0.75, 0.9, 0.97)
"""Shares of the requests, by prompt length, at which classes end: few prompts hold most tokens."""
_FEWEST_ROWS = 40
_POINTS = 17
_BACK_POINTS = 24
_MOST_KEYS = 20_000_000
"""Blocks of so many leading rows tell how far back prompts lie: sorting them takes memory."""
_MOST_TRIED = 100_000
"""Leading rows with whose lengths the model is tried."""
_SESSION_BLOCK = 16
"""Tokens of a block where the trace has none: those of vLLM's KV cache."""
_COMMON = 0.5
"""Blocks with which at least so many of the requests begin are common to all."""


def fitted_reuse(trace: Trace) -> PromptReuse | None:
    """What the prompts of `trace` repeat of earlier ones; None where it does not say, or nothing."""
    counted = PrefixReuse()
    reused = counted.add(trace)
    if not counted.known or not reused.any():
        return None
    size = trace.blocks.size if trace.blocks is not None else _session_block(trace)
    common, share = _common(trace.blocks)
    continuing = reused > common * size
    rows = np.flatnonzero(continuing)
    back = _blocks_back(trace.blocks, reused) if trace.blocks is not None else _rows_back(trace)
    known = rows[back[rows] > 0]
    model = PromptReuse(
        block_size=size, common_blocks=common, common_share=_digits(share),
        classes=_classes(trace.input_len.astype(np.int64), reused, continuing),
        back=_back_table(np.minimum(back[known], 1 << 20)))
    return _as_much(model, trace.input_len[:_MOST_TRIED], int(reused[:_MOST_TRIED].sum()))


def _session_block(trace: Trace) -> int:
    """Tokens of a block for a trace without any: so many more, in doublings, as keep the number of blocks of
    a whole plan within memory."""
    size = _SESSION_BLOCK
    while int(trace.input_len.sum(dtype=np.int64)) > _MOST_KEYS * size:
        size *= 2
    return size


def _as_much(model: PromptReuse, lengths: npt.NDArray[np.int32], wanted: int) -> PromptReuse:
    """`model` with so many more or fewer prompts that continue another that prompts of these lengths repeat
    `wanted` tokens: its first prompts find too little to copy, though the trace's own did too."""
    for seed in range(2):
        blocks = reused_blocks(model, lengths, partial(_stream, seed))
        made = int(PrefixReuse().add(Trace(arrival_ns=np.zeros(0, np.int64), input_len=lengths,
                                           output_len=np.ones_like(lengths), blocks=blocks)).sum())
        factor = wanted / made if made else 1.0
        model = model.model_copy(update={"classes": tuple(
            kind.model_copy(update={"continuing": _digits(min(kind.continuing * factor, 1.0))})
            for kind in model.classes)})
    return model


def _stream(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def _common(blocks: PromptBlocks | None) -> tuple[int, float]:
    """How many blocks most prompts begin with, and the share of prompts that do."""
    if blocks is None:
        return 0, 1.0
    rows = np.flatnonzero(np.diff(blocks.offset) > 0)
    begins = blocks.offset[:-1]
    number, found = 0, 1.0
    while len(rows):
        keys, counts = np.unique(blocks.keys[begins[rows] + number], return_counts=True)
        most = int(np.argmax(counts))
        if counts[most] < _COMMON * len(blocks):
            break
        if not number:
            found = float(counts[most] / len(blocks))
        rows = rows[blocks.keys[begins[rows] + number] == keys[most]]
        number += 1
        rows = rows[np.diff(blocks.offset)[rows] > number]
    return number, found


def _classes(length: Int64, reused: Int64, continuing: npt.NDArray[np.bool_]) -> tuple[ReuseClass, ...]:
    limits = sorted({int(limit) for limit in np.quantile(length, _CLASS_ENDS, method="lower")})
    limits = [_rounded_up(limit) for limit in limits if limit < length.max()]
    number = np.searchsorted(limits, length)
    # A class of few rows joins the one before it.
    while len(limits) and (counts := np.bincount(number, minlength=len(limits) + 1)).min() < _FEWEST_ROWS:
        limits.pop(max(int(np.argmin(counts)) - 1, 0))
        number = np.searchsorted(limits, length)
    classes = []
    for index, limit in enumerate([*limits, None]):
        rows = number == index
        parts = reused[rows & continuing] / length[rows & continuing]
        classes.append(ReuseClass(up_to=limit, continuing=_digits(float(continuing[rows].mean())),
                                  copied=_shares_table(parts)))
    return tuple(classes)


def _shares_table(parts: Float64) -> SharedParts:
    if not len(parts):
        return SharedParts(at=(0.0, 1.0), shares=(0.0, 0.0))
    at = np.linspace(0, 1, _POINTS)
    shares = np.quantile(parts, at)
    # Straight lines between the points lose or gain a little; the mean is what counts in tokens.
    drawn = float(np.trapezoid(shares, at))
    inside = np.clip(shares * (float(parts.mean()) / drawn if drawn > 0 else 1.0), 0, 1)
    return SharedParts(at=tuple(round(a, 4) for a in at.tolist()),
                       shares=tuple(_digits(s) for s in np.where(shares >= 1, 1.0, inside).tolist()))


def _blocks_back(blocks: PromptBlocks, reused: Int64) -> Int64:
    """How many rows ago the last block came that a row repeats; 0 where it repeats none, or unknown."""
    back = np.zeros(len(blocks), np.int64)
    rows = int(np.searchsorted(blocks.offset, _MOST_KEYS, side="right")) - 1
    rows = min(max(rows, 1), len(blocks))
    keys = blocks.keys[:blocks.offset[rows]]
    order = np.argsort(keys, kind="stable")
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys))
    row_of = np.repeat(np.arange(rows), np.diff(blocks.offset[:rows + 1]))
    hits = np.minimum(-(-reused[:rows] // blocks.size), np.diff(blocks.offset[:rows + 1]))
    with_hits = np.flatnonzero(hits > 0)
    before = place[blocks.offset[with_hits] + hits[with_hits] - 1] - 1
    known = before >= 0
    with_hits, before = with_hits[known], before[known]
    back[with_hits] = with_hits - row_of[order[before]]
    return back


def _rows_back(trace: Trace) -> Int64:
    """How many rows ago the turn before came, or the last row of the prefix group; 0 for neither."""
    back = np.zeros(len(trace), np.int64)
    for of_row in (trace.prefix_group, trace.session):
        rows = np.flatnonzero(of_row >= 0)
        order = rows[np.argsort(of_row[rows], kind="stable")]
        follows = np.flatnonzero(of_row[order[1:]] == of_row[order[:-1]]) + 1
        back[order[follows]] = order[follows] - order[follows - 1]
    return back


def _back_table(back: Int64) -> Quantiles:
    if not len(back):
        return Quantiles(at=(0, 1), tokens=(1, 1))
    table = length_table(back, points=_BACK_POINTS)
    return table if isinstance(table, Quantiles) else Quantiles(at=(0, 1), tokens=(table.tokens,) * 2)


def _rounded_up(limit: int) -> int:
    scale = int(10 ** max(len(str(limit)) - 3, 0))
    return -(-limit // scale) * scale


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
