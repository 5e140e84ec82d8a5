"""What `vllm bench serve --dataset-name timed_trace` reads: Mooncake's rows in other units.

vLLM 0.32 (benchmarks/datasets, TimedTrace) takes timestamps for seconds and a hash id for 16 tokens
unless it is told otherwise; a Mooncake file that is read so has prompts 32 times too short. Here the
size of a block is told from the rows.
"""

from collections.abc import Iterator
from pathlib import Path

from workloads.errors import UsageError
from workloads.traces.formats import BadRows
from workloads.traces.json_rows import first_objects
from workloads.traces.mooncake import BLOCK_SIZE, block_size_of, hashed_rows
from workloads.traces.opening import file_head
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import RawRows


def sniff(head: bytes, path: Path) -> bool:
    """Objects of Mooncake's keys, with a hash id for every 16 tokens, or without any."""
    objects = first_objects(head)
    keys = {"timestamp", "input_length", "output_length"}
    if not objects or any(not keys <= set(row) or "chat_id" in row for row in objects):
        return False
    return block_size_of(head) == 16 or not any(row.get("hash_ids") for row in objects)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and value > 0


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order, in pieces. Without --block-size the blocks have 512 or 16 tokens, told
    by their number; with 512 the timestamps are milliseconds, as Mooncake's, else seconds, as vLLM's."""
    head = file_head(path)
    size = options.block_size or block_size_of(head)
    if size is None:
        if any(row.get("hash_ids") and _is_length(row.get("input_length")) for row in first_objects(head)):
            raise UsageError(f"{path}: how many tokens a hash id stands for cannot be told: give "
                             f"--block-size (512 in Mooncake's traces, 16 in Bailian's and vLLM's)")
        size = 16
    unit = options.time_unit or ("ms" if size == BLOCK_SIZE else "s")
    return hashed_rows(path, options, bad, size, unit)
