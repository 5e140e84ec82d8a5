"""The custom dataset of `vllm bench serve`: one JSON object a line with a prompt and the answer's length.

vLLM 0.32 (benchmarks/datasets, CustomDataset) puts each prompt into the model's chat template unless it is
told not to; here the text alone is counted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from workloads.traces.column_names import keys_by_field
from workloads.traces.formats import BadRows
from workloads.traces.json_rows import decoded_lines, first_objects, renamed
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import PIECE_ROWS, RawRows
from workloads.traces.text_lengths import TextLengths

KEYS = "prompt, output_tokens"
_COLUMNS = {"prompt": "prompt", "input_len": "input_len", "output_len": "output_tokens"}
_OF_LOGS = {"usage", "timestamp", "created", "prompt_tokens", "input_tokens", "completion_tokens"}


class _Row(msgspec.Struct, gc=False):
    prompt: str
    output_tokens: int | None = None


class _CountedRow(msgspec.Struct, gc=False):
    """Where `--column input_len=…` says which key has the prompt's length."""

    input_len: int
    output_tokens: int | None = None


def sniff(head: bytes, path: Path) -> bool:
    """Objects with a text `prompt`, and no counts of a gateway's log."""
    return any(isinstance(row.get("prompt"), str) and not row.keys() & _OF_LOGS
               for row in first_objects(head, most=1))


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """The rows in the file's order, in pieces; lengths as counted by the tokenizer, or as the key says that
    is named by `--column input_len=KEY`."""
    columns = keys_by_field(options.columns, _COLUMNS, "vllm-custom")
    counted = "input_len" in columns
    row_type: type[Any] = renamed(_CountedRow if counted else _Row, columns)
    lengths = None if counted else TextLengths(options.tokenizer, path)
    piece: list[tuple[int, int, int]] = []
    for line, row in decoded_lines(path, msgspec.json.Decoder(row_type).decode, bad, expected=KEYS):
        if row.output_tokens is None:
            bad.add(line, f"no {columns.get('output_tokens', 'output_tokens')}, and the answer's length is "
                    "not known: add it, or name the key that has it with --column output_len=KEY")
            continue
        input_len = row.input_len if lengths is None else lengths.count(row.prompt)
        if max(abs(input_len), abs(row.output_tokens)) >= 2**62:
            bad.add(line, "a length is beyond what can be meant")
            continue
        piece.append((line, input_len, row.output_tokens))
        if len(piece) == PIECE_ROWS:
            yield _columns(piece)
            piece = []
    if piece:
        yield _columns(piece)


def _columns(piece: list[tuple[int, int, int]]) -> RawRows:
    line, input_len, output_len = np.array(piece, dtype=np.int64).T.copy()
    return RawRows(line=line, input_len=input_len, output_len=output_len)
