"""The result file of `vllm bench serve`: one JSON object a run, on request with lists of every request."""

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench import NEVER, Run
from bench.files import jsonable, write_json, write_pieces
from bench.run import Outcome


def result_name(run: Run, now: datetime) -> str:
    """vLLM's own name for it: `<label or backend>-<rate>qps-<model>-<time>.json`."""
    engine = run.meta["engine"]
    model = Path(engine["model"]).name
    rate = "unknown" if run.rate_rps is None else f"{run.rate_rps:g}"
    name = f"{run.meta.get('label') or engine['name']}-{rate}qps-{model}-{now:%Y%m%d-%H%M%S}.json"
    return name.replace("/", "_")


def write_result(path: Path, content: Mapping[str, Any], run: Run | None = None) -> None:
    """`content` as JSON; with `run`, the lists of its requests too, row by row: a long run has millions of
    gaps. Whole or not at all; OutputError where it cannot be written."""
    if run is None:
        write_json(path, content)
        return
    lists = request_lists(run, gaps=False)
    begun = msgspec.json.encode(jsonable({**content, **lists})).removesuffix(b"}")
    gaps = (msgspec.json.encode(_message_gaps(run, row)) for row in np.flatnonzero(run.measured).tolist())
    write_pieces(path, itertools.chain([begun, b',"itls":['], _between(b",", gaps), [b"]}\n"]))


def _between(comma: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for number, piece in enumerate(pieces):
        yield comma + piece if number else piece


def request_lists(run: Run, *, gaps: bool = True) -> dict[str, list[Any]]:
    """One entry for each measured request, in the plan's order, under vLLM's names; times in seconds.

    `start_times` are on the client's monotonic clock, `latencies` last from sending to the last
    token, `itls` are the gaps between token-bearing messages. What has no value is null, where
    vLLM writes 0; `errors` holds the kind of failure, "" for a success.
    """
    rows = np.flatnonzero(run.measured).tolist()
    first, last = run.first_token_ns(), run.last_token_ns()
    return {
        "input_lens": run.input_len[rows].tolist(),
        "output_lens": run.num_tokens[rows].tolist(),
        "success": run.ok[rows].tolist(),
        "start_times": [_seconds(run.sent_ns[row], 0) for row in rows],
        "ttfts": [_seconds(first[row], run.sent_ns[row]) for row in rows],
        "latencies": [_seconds(last[row], run.sent_ns[row]) if run.ok[row] else None for row in rows],
        **({"itls": [_message_gaps(run, row) for row in rows]} if gaps else {}),
        "queue_times": [_seconds(run.sent_ns[row], run.intended_ns[row]) for row in rows],
        "errors": ["" if run.ok[row] else _error(run, row) for row in rows],
    }


def _error(run: Run, row: int) -> str:
    kind, text = Outcome(run.outcome[row]).name.lower(), run.error.get(int(run.index[row]))
    return f"{kind}: {text}" if text else kind


def _seconds(time_ns: int, since_ns: int) -> float | None:
    return None if time_ns == NEVER else float(time_ns - since_ns) / 1e9


def _message_gaps(run: Run, row: int) -> list[float]:
    reads = run.read_ns[run.reads_offset[row]:run.reads_offset[row + 1]]
    gaps: list[float] = (np.diff(reads) / 1e9).tolist()
    return gaps
