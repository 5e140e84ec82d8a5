"""Other traces from a trace: a window of it, faster, shorter prompts, fewer requests, several as one.

Every function returns a new trace. None copies a request, and none but `subsample` and `window` leaves
one out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError
from workloads.length_file import MAX_TOKENS
from workloads.prompt_parts import Origin, PromptBlocks, mixed64
from workloads.traces.trace import Trace

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

_LATEST_NS = 2.0**62
_DRAWS = 32
_RUN_ROWS = 100
"""A subsample takes so many requests in a row: enough for bursts, and few enough to come from everywhere."""


def window(trace: Trace, from_s: float, to_s: float) -> Trace:
    """The requests that come at `from_s` or later and before `to_s`; the first of them comes at 0."""
    _needs_times(trace, "a window")
    kept = np.flatnonzero((trace.arrival_ns >= from_s * 1e9) & (trace.arrival_ns < to_s * 1e9))
    if not len(kept):
        raise UsageError(f"no request of {trace.name or 'the trace'} comes between {from_s:g} and {to_s:g} s")
    cut = trace.take(kept)
    return replace(cut, arrival_ns=cut.arrival_ns - cut.arrival_ns[0])


def scale_time(trace: Trace, factor: float) -> Trace:
    """Every time, thinking times too, multiplied by `factor`: 0.5 is twice the rate. Order and the shape of
    bursts stay, and so does the coefficient of variation of the gaps."""
    _needs_times(trace, "another time scale")
    latest_ns = max(int(trace.arrival_ns[-1]), int(trace.think_ns.max()))
    if not 0 < factor < np.inf or latest_ns > _LATEST_NS / factor:
        raise UsageError(f"the time scale must be above 0 and keep the trace within a century; "
                         f"got {factor:g}")
    return replace(trace, arrival_ns=np.rint(trace.arrival_ns * factor).astype(np.int64),
                   think_ns=np.rint(trace.think_ns * factor).astype(np.int64))


def overlay(trace: Trace, times: int) -> Trace:
    """`times` successive parts of the trace laid over one another: so many times the rate in so much less
    time, while seconds stay seconds. A conversation stays with its first turn."""
    _needs_times(trace, "an overlay")
    if times < 1:
        raise UsageError(f"a trace is laid over itself at least once; got {times}")
    part_ns = max(1, -(-(int(trace.arrival_ns[-1]) + 1) // times))
    begin_ns = trace.arrival_ns[first_of_session(trace.session)] // part_ns * part_ns
    arrival_ns = trace.arrival_ns - begin_ns
    order = np.argsort(arrival_ns, kind="stable")
    folded = replace(trace, arrival_ns=np.zeros(len(trace), np.int64)).take(order)
    return replace(folded, arrival_ns=arrival_ns[order] - arrival_ns[order[0]])


def scale_lengths(trace: Trace, factor: float) -> Trace:
    """Prompts and answers of `factor` times the length, each to a token and at least one; their means stay.
    Blocks shrink with them, so that the same requests share the same part of their prompts.

    UsageError where the blocks of the trace would not be whole tokens any more.
    """
    if not 0 < factor < np.inf:
        raise UsageError(f"the scale of the lengths must be above 0 and finite; got {factor:g}")
    if max(trace.input_len.max(), trace.output_len.max()) > MAX_TOKENS / factor:
        raise UsageError(f"lengths scaled by {factor:g} would be above {MAX_TOKENS} tokens: scale by less")
    blocks = trace.blocks
    if blocks is not None:
        size = round(blocks.size * factor)
        if size < 1 or abs(size - blocks.size * factor) > 1e-9 * blocks.size:
            raise UsageError(f"blocks of {blocks.size} tokens cannot be scaled by {factor:g}: take a factor "
                             f"that leaves whole tokens, such as {_near_factors(blocks.size, factor)}")
        # Rounded up, a prompt keeps its number of blocks.
        input_len = -(-trace.input_len.astype(np.int64) * size // blocks.size)
        blocks = PromptBlocks(size, blocks.keys, blocks.offset)
    else:
        input_len = _scaled(trace.input_len, factor)
    output_len = _scaled(trace.output_len, factor)
    return replace(trace, input_len=np.maximum(input_len, 1), output_len=np.maximum(output_len, 1),
                   blocks=blocks,
                   prefix_lens=np.rint(trace.prefix_lens * factor).astype(np.int32))


def scale_to_fit(trace: Trace, max_model_len: int) -> float:
    """The largest factor for `scale_lengths`, at most 1, after which every request fits `max_model_len`."""
    longest = int((trace.input_len.astype(np.int64) + trace.output_len).max())
    if longest <= max_model_len:
        return 1.0
    wished = (max_model_len - 2) / longest   # two lengths, each rounded up by less than a token
    smallest = 0.0 if trace.blocks is None else 1 / trace.blocks.size
    if wished <= 0 or wished < smallest:
        raise UsageError(f"a request of {longest} tokens cannot be scaled to a model that takes "
                         f"{max_model_len}: leave long requests out, or clip them")
    return wished if trace.blocks is None else int(trace.blocks.size * wished) / trace.blocks.size


def subsample(trace: Trace, keep: float, rng: np.random.Generator) -> Trace:
    """The share `keep` of the requests over the same span of time, as bursty as before.

    Leaving out requests here and there makes any trace more like a Poisson process. In place of that,
    runs of successive requests are taken from everywhere in the trace, each at a random place of its
    part, and their gaps are stretched by one factor: the rate becomes `keep` times as high. Of several
    such draws the one is taken whose gaps have most nearly the trace's coefficient of variation and
    mean, as a few long silences may decide both. Of a trace with conversations whole conversations are
    taken; their beginnings are spread in this way, and what happens within them keeps its times.
    """
    _needs_times(trace, "a subsample")
    if not 0 < keep <= 1:
        raise UsageError(f"the share to keep must be above 0 and at most 1; got {keep:g}")
    if keep == 1:
        return trace
    first = first_of_session(trace.session)
    begins = np.unique(first)
    gaps = np.diff(trace.arrival_ns[begins]).astype(np.float64)   # number k is the one before begin k + 1
    chosen = min((_runs(len(begins), keep, rng) for _ in range(_DRAWS)),
                 key=lambda rows: _unlike(gaps[rows[1:] - 1], gaps))
    taken = gaps[chosen[1:] - 1]
    stretch = gaps.mean() / keep / taken.mean() if len(taken) and taken.mean() else 0.0
    new_begin_ns = np.cumsum(np.rint(np.append(0.0, taken * stretch))).astype(np.int64)
    moved = np.full(len(trace), -1, dtype=np.int64)
    moved[begins[chosen]] = new_begin_ns
    kept = np.flatnonzero(moved[first] >= 0)
    arrival_ns = moved[first[kept]] + trace.arrival_ns[kept] - trace.arrival_ns[first[kept]]
    order = np.argsort(arrival_ns, kind="stable")
    thinned = replace(trace, arrival_ns=np.zeros(len(trace), np.int64)).take(kept[order])
    return replace(thinned, arrival_ns=arrival_ns[order] - arrival_ns[order[0]])


def spread_ticks(trace: Trace, rng: np.random.Generator) -> Trace:
    """Requests that share one timestamp spread at random over the time until the next one, in their order:
    for traces whose clock ticks every few seconds. After the last tick the median tick is taken."""
    _needs_times(trace, "spreading")
    ticks, row_tick = np.unique(trace.arrival_ns, return_inverse=True)
    lengths = np.diff(ticks)
    last = int(np.median(lengths)) if len(lengths) else 0
    offset = rng.random(len(trace)) * np.append(lengths, last)[row_tick]
    # Sorted within each tick: all arrivals sorted are just that, as ticks do not overlap.
    return replace(trace, arrival_ns=np.sort(trace.arrival_ns + offset.astype(np.int64)))


def fit_lengths(trace: Trace, max_model_len: int | None, too_long: Literal["reject", "clip"]) -> Trace:
    """Only requests whose prompt and answer fit: longer ones are left out, or their prompt is cut down to
    one token, then their answer; counted either way. UsageError where none is left."""
    if max_model_len is None:
        return trace
    total = trace.input_len.astype(np.int64) + trace.output_len
    long = int((total > max_model_len).sum())
    if not long:
        return trace
    if too_long == "clip":
        if max_model_len < 2:
            raise UsageError(f"a prompt and its answer have at least 2 tokens, above {max_model_len}")
        output_len = np.minimum(trace.output_len, max_model_len - 1)
        input_len = np.minimum(trace.input_len, max_model_len - output_len)
        return replace(trace, input_len=input_len, output_len=output_len, clipped=trace.clipped + long)
    kept = trace.take(np.flatnonzero(total <= max_model_len))
    if not len(kept):
        raise UsageError(f"every request of {trace.name or 'the trace'} is longer than {max_model_len} "
                         f"tokens: raise --max-model-len, scale the lengths or clip them")
    begins_ns = kept.arrival_ns[:1] if kept.timed else 0
    return replace(kept, arrival_ns=kept.arrival_ns - begins_ns,
                   rejected={**trace.rejected, "too long": trace.rejected.get("too long", 0) + long})


def all_at_once(trace: Trace) -> Trace:
    """Every request at the start; later turns still wait for their answers."""
    return replace(trace, arrival_ns=np.zeros(len(trace), dtype=np.int64))


def merge(traces: Sequence[Trace]) -> Trace:
    """One trace of all, by time; nothing that two of them hold is shared. Each keeps its tenants: equal
    names are one tenant. Blocks of different sizes are cut to their greatest common divisor."""
    if len(traces) == 1:
        return traces[0]
    for trace in traces:
        _needs_times(trace, "merging")
    names = tuple(dict.fromkeys(name for trace in traces for name in trace.tenant_names))
    sizes = [trace.blocks.size for trace in traces if trace.blocks is not None]
    size = int(np.gcd.reduce(sizes)) if sizes else 0
    parts, sessions, groups = [], 0, 0
    for number, trace in enumerate(traces):
        tenant = np.array([names.index(name) for name in trace.tenant_names], dtype=np.int16)
        parts.append(replace(
            trace, tenant=tenant[trace.tenant], tenant_names=names,
            session=np.where(trace.session >= 0, trace.session + sessions, -1),
            prefix_group=np.where(trace.prefix_group >= 0, trace.prefix_group + groups, -1),
            blocks=_apart(trace, size, number) if size else None))
        sessions += int(trace.session.max(initial=-1)) + 1
        groups += max(len(trace.prefix_lens), int(trace.prefix_group.max(initial=-1)) + 1)
    arrival_ns = np.concatenate([part.arrival_ns for part in parts])
    order = np.argsort(arrival_ns, kind="stable")
    untimed = [replace(part, arrival_ns=np.zeros(len(part), np.int64)) for part in parts]
    whole = replace(Trace.joined(untimed), prefix_lens=_prefix_lens(traces)).take(order)
    rejected: dict[str, int] = {}
    for trace in traces:
        for why, count in trace.rejected.items():
            rejected[why] = rejected.get(why, 0) + count
    return replace(whole, arrival_ns=arrival_ns[order], name=" + ".join(trace.name for trace in traces),
                   rejected=rejected, clipped=sum(trace.clipped for trace in traces))


def first_of_session(session: Int32) -> Int64:
    """For each row the first row of its session, or itself; shape (rows,)."""
    first = np.arange(len(session))
    rows = np.flatnonzero(session >= 0)
    _, begins, which = np.unique(session[rows], return_index=True, return_inverse=True)
    first[rows] = rows[begins[which]]
    return first


def _prefix_lens(traces: Sequence[Trace]) -> Int32:
    lengths = []
    for trace in traces:
        groups = max(len(trace.prefix_lens), int(trace.prefix_group.max(initial=-1)) + 1)
        lengths.append(np.pad(trace.prefix_lens, (0, groups - len(trace.prefix_lens))))
    joined: Int32 = np.concatenate(lengths)
    return joined if joined.any() else joined[:0]


def _apart(trace: Trace, size: int, number: int) -> PromptBlocks:
    """The blocks of `trace` in pieces of `size` tokens, with keys that no other trace has."""
    blocks = trace.blocks
    if blocks is None:
        return PromptBlocks(size, np.zeros(0, np.int64), np.zeros(len(trace) + 1, np.int64))
    pieces = blocks.size // size
    keys = mixed64(blocks.keys, Origin.TRACE, number)
    if pieces > 1:
        keys = np.stack([mixed64(keys, Origin.PIECE, piece) for piece in range(pieces)], axis=1).ravel()
    return PromptBlocks(size, keys, blocks.offset * pieces)


def _runs(count: int, keep: float, rng: np.random.Generator) -> Int64:
    """Places of the requests that are kept: from each part of the trace one run, at a random place."""
    part = max(1, round(_RUN_ROWS / keep))
    starts = np.arange(0, count, part)
    sizes = np.minimum(part, count - starts)
    # Whole numbers whose running sum stays within one of the exact one.
    ends = np.rint(np.cumsum(sizes) * keep).astype(np.int64)
    taken = np.diff(ends, prepend=0)
    if not ends[-1]:
        taken[0] = 1
    shift = rng.integers(0, sizes - taken, endpoint=True)
    chosen = [np.arange(begin, begin + n) for begin, n in zip(starts + shift, taken, strict=True)]
    return np.concatenate(chosen).astype(np.int64)


def _unlike(taken: Float64, gaps: Float64) -> float:
    """How far the coefficient of variation and, half as important, the mean of `taken` are from those of
    `gaps`, in logarithms; infinite where there is none."""
    if len(taken) < 2 or not (taken.mean() and gaps.mean() and taken.std() and gaps.std()):
        return np.inf
    mean, spread = taken.mean() / gaps.mean(), taken.std() / gaps.std()
    return float(abs(np.log(spread / mean)) + 0.5 * abs(np.log(mean)))


def _scaled(lengths: Int32, factor: float) -> Int64:
    """`lengths` times `factor` in whole tokens, such that the sum stays to a token: what rounding takes from
    one request it gives to the next."""
    return np.diff(np.floor(np.cumsum(lengths * factor) + 0.5), prepend=0).astype(np.int64)


def _near_factors(size: int, factor: float) -> str:
    wished = size * factor
    whole = sorted({max(1, int(np.floor(wished))), max(1, int(np.ceil(wished)))})
    return " or ".join(f"{tokens}/{size} = {tokens / size:g}" for tokens in whole)


def _needs_times(trace: Trace, what: str) -> None:
    if not trace.timed:
        raise UsageError(f"{trace.name or 'the trace'} does not say when its requests came: "
                         f"{what} needs times")
