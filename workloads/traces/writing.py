"""Plans as trace files, for other tools and for ourselves."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.prompt_parts import PromptBlocks
from workloads.shared_blocks import shared_blocks

Int64 = npt.NDArray[np.int64]

OutputFormat = Literal["timed-trace", "mooncake", "csv"]
OUTPUT_FORMATS: tuple[OutputFormat, ...] = get_args(OutputFormat)
BLOCK_SIZE: dict[OutputFormat, int] = {"timed-trace": 16, "mooncake": 512}
"""Tokens of a hash block where the format has them: vLLM's default, and what Mooncake's traces have."""

_DIGITS: dict[OutputFormat, int] = {"timed-trace": 9, "mooncake": 6, "csv": 9}
"""Of nanoseconds after the point: timestamps in seconds, but in milliseconds in Mooncake's traces."""
_IDS_AT_ONCE = 1 << 18
_MOST_BLOCKS = 40_000_000
"""So many are numbered in 2 GB."""
_ROWS_AT_ONCE = 1 << 13


def trace_lines(plan: Plan, form: OutputFormat, times_ns: Int64) -> Iterator[bytes]:
    """The file in pieces of whole lines: a row for each request of `plan`, the warm-up's too, in order of
    `times_ns`, which are `written_times` of the same format; they are written to the nanosecond.

    The JSON lines of `timed-trace` and `mooncake` say with hash ids which blocks prompts share. The rows
    of `csv` say which turn waits for which and which prompts begin alike, but nothing about blocks.
    """
    if form == "csv":
        return _csv_lines(plan, times_ns)
    return _json_lines(plan, times_ns, BLOCK_SIZE[form], _DIGITS[form])


def written_times(plan: Plan, form: OutputFormat, *, answer_token_ns: int) -> Int64:
    """When each row is sent, in nanoseconds from the start, shape (rows,): as planned where a file can say
    that a turn waits for another.

    Elsewhere a later turn that is planned for no later than its thinking time after the turn before has no
    time of its own. It comes when that turn has been answered, at `answer_token_ns` for every token, and
    thought about.
    """
    if form == "csv":
        return plan.intended_ns
    times: list[int] = plan.intended_ns.tolist()
    needed_ns = (plan.output_len.astype(np.int64) * answer_token_ns).tolist()
    rows = np.flatnonzero(plan.predecessor >= 0)
    before = plan.predecessor[rows]
    no_own_time = plan.intended_ns[rows] <= plan.intended_ns[before] + plan.think_ns[rows]
    for row, turn_before, waits, think_ns in zip(rows.tolist(), before.tolist(), no_own_time.tolist(),
                                                 plan.think_ns[rows].tolist(), strict=True):
        after_ns = needed_ns[turn_before] + think_ns if waits else 0
        times[row] = max(times[row], times[turn_before] + after_ns)
    return np.array(times, dtype=np.int64)


def _json_lines(plan: Plan, times_ns: Int64, block_size: int, digits: int) -> Iterator[bytes]:
    shared, known = _known_ids(plan, block_size)
    needed = -(-plan.input_len.astype(np.int64) // block_size)
    new_id = int(shared.keys.max(initial=-1)) + 1
    for rows in _pieces(np.argsort(times_ns, kind="stable"), needed):
        lines = []
        for row, at_ns, input_len, output_len in zip(
                rows.tolist(), times_ns[rows].tolist(), plan.input_len[rows].tolist(),
                plan.output_len[rows].tolist(), strict=True):
            ids = shared.of(row)[:known[row]].tolist()
            more = int(needed[row]) - len(ids)
            ids += range(new_id, new_id + more)
            new_id += more
            lines.append(f'{{"timestamp": {_decimal(at_ns, digits)}, "input_length": {input_len}, '
                         f'"output_length": {output_len}, "hash_ids": {ids}}}\n')
        yield "".join(lines).encode()


def _known_ids(plan: Plan, block_size: int) -> tuple[PromptBlocks, Int64]:
    """Ids of the blocks that several prompts may share, numbered by first appearance, and how many of a
    row's count. What follows them in a prompt is new."""
    blocks = plan.blocks
    if blocks is not None and blocks.size == block_size and _blocks_say_all(plan, blocks):
        wanted = -(-plan.input_len.astype(np.int64) // block_size)
    else:
        # Only whole blocks: their keys stand for all that is before them too.
        wanted = plan.input_len.astype(np.int64) // block_size
        if wanted.sum() > _MOST_BLOCKS:
            raise UsageError(f"{int(wanted.sum())} blocks of {block_size} tokens are too many to number at "
                             f"once: write fewer rows, or use --output-format mooncake or csv")
        blocks = shared_blocks(plan, block_size)
    _, first, number = np.unique(blocks.keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return (PromptBlocks(block_size, rank[number], blocks.offset),
            np.minimum(np.diff(blocks.offset), wanted))


def _blocks_say_all(plan: Plan, blocks: PromptBlocks) -> bool:
    """Whether rows without blocks share nothing in another way."""
    without = np.diff(blocks.offset) == 0
    return not np.any(without & ((plan.predecessor >= 0) | (plan.prefix_group >= 0)))


def _csv_lines(plan: Plan, times_ns: Int64) -> Iterator[bytes]:
    columns = _csv_columns(plan, times_ns)
    yield _csv_text([list(columns)])
    for rows in _pieces(np.arange(len(plan)), np.zeros(len(plan), dtype=np.int64)):
        yield _csv_text(zip(*(column(rows) for column in columns.values()), strict=True))


def _csv_columns(plan: Plan, times_ns: Int64) -> dict[str, Callable[[Int64], list[object]]]:
    """By name, what gives the values of some rows; columns that would say nothing are left out."""
    digits = _DIGITS["csv"]
    columns: dict[str, Callable[[Int64], list[object]]] = {
        "timestamp_s": lambda rows: [_decimal(at_ns, digits) for at_ns in times_ns[rows].tolist()],
        "input_len": lambda rows: plan.input_len[rows].tolist(),
        "output_len": lambda rows: plan.output_len[rows].tolist(),
    }
    if names := plan.component_tenants or (plan.component_names if len(plan.component_names) > 1 else ()):
        columns["tenant"] = lambda rows: [names[number] for number in plan.component[rows].tolist()]
    if (plan.session >= 0).any():
        columns["session"] = lambda rows: _numbers(plan.session[rows])
        columns["turn"] = lambda rows: plan.turn[rows].tolist()
        columns["think_time_s"] = lambda rows: [
            _decimal(think_ns, digits) for think_ns in plan.think_ns[rows].tolist()]
    if len(plan.prefix_lens):
        shares = (plan.prefix_group >= 0) & (plan.prefix_group < len(plan.prefix_lens))
        group = np.where(shares, plan.prefix_group, -1)
        tokens = np.where(shares, plan.prefix_lens[group], 0)
        columns["prefix_group"] = lambda rows: _numbers(group[rows])
        columns["prefix_len"] = lambda rows: tokens[rows].tolist()
    return columns


def _numbers(values: npt.NDArray[np.integer]) -> list[object]:
    """Nothing in place of -1."""
    return ["" if number < 0 else number for number in values.tolist()]


def _csv_text(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _pieces(rows: Int64, ids: Int64) -> Iterator[Int64]:
    """`rows` in pieces of about as many rows and hash ids as are held in memory at once."""
    size = np.cumsum(ids[rows]) // _IDS_AT_ONCE + np.arange(len(rows)) // _ROWS_AT_ONCE
    yield from np.split(rows, np.flatnonzero(np.diff(size)) + 1)


def _decimal(value_ns: int, digits: int) -> str:
    """Whole nanoseconds as an exact decimal number with `digits` digits after the point, without its last
    zeros."""
    whole, part = divmod(value_ns, 10**digits)
    return f"{whole}.{part:0{digits}d}".rstrip("0").rstrip(".")
