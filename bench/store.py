"""Run directories: `run.json` and parquet tables, written so that a half-written run is never seen."""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import OutputError
from bench.run import ClientHealth, Int64, Run, Validity
from engine_adapter import errors as engine_errors
from engine_adapter.step_log import CHUNK_COLUMNS, STEP_COLUMNS, StepLog
from workloads.errors import EvidenceError

SCHEMA_VERSION = 1
_ROW_COLUMNS = ("index", "component", "input_len", "output_len", "warmup", "intended_ns", "sent_ns", "end_ns",
                "outcome", "num_tokens")
_LATER_COLUMNS = ("due_ns", "stage", "prompt_tokens", "status", "session", "turn", "error")
"""Added after the first runs were written: a file may lack them."""
_ROW_DTYPES = {"index": np.int32, "component": np.int16, "input_len": np.int32, "output_len": np.int32,
               "warmup": np.bool_, "outcome": np.int8, "num_tokens": np.int32,
               "stage": np.int16, "prompt_tokens": np.int32, "status": np.int16, "session": np.int32,
               "turn": np.int32}


def save_run(run: Run, path: str | Path, *, summary: Mapping[str, Any] | None = None) -> Path:
    """Write `run` as the directory `path`, complete or not at all, and return the path.

    `summary` (Summary.as_dict()) goes into run.json beside it. Refuses with OutputError a path
    that exists, and one that cannot be written.
    """
    target = Path(path)
    if target.exists():
        raise OutputError(f"{target} exists already: choose another directory; a run is never replaced")
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        unfinished.mkdir(parents=True)
        _write_tables(run, unfinished)
        text = json.dumps(_head(run, summary), indent=1, allow_nan=False)
        (unfinished / "run.json").write_text(text + "\n", encoding="utf-8")
        for file in unfinished.iterdir():
            _sync(file)
        _sync(unfinished)
        os.replace(unfinished, target)
        _sync(target.parent)
    except OSError as error:
        raise OutputError(f"cannot write the run to {target}: {error.strerror or error}; "
                          f"free space there or choose another directory") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def load_head(path: str | Path) -> dict[str, Any]:
    """run.json of a run directory: schema_version, meta, validity, summary, ... EvidenceError if unusable."""
    file = Path(path) / "run.json"
    try:
        head = json.loads(file.read_text(encoding="utf-8"))
        version = head["schema_version"]
    except FileNotFoundError as error:
        raise EvidenceError(f"{path} is no run directory: it has no run.json") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{file} cannot be read ({error}): measure the run again") from error
    if version != SCHEMA_VERSION:
        raise EvidenceError(f"{file} has schema version {version}, this stallfree reads {SCHEMA_VERSION}: "
                            f"read it with the version that wrote it")
    return dict(head)


def load_run(path: str | Path) -> Run:
    """The run that `save_run` wrote; EvidenceError, one line, when the directory is broken or incomplete."""
    head = load_head(path)
    try:
        return _read(Path(path), head)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise EvidenceError(f"{path} is a broken run directory ({reason}): measure the run again") from error


def _head(run: Run, summary: Mapping[str, Any] | None) -> dict[str, Any]:
    failure = None
    if (error := run.engine_failure) is not None:
        failure = {"kind": type(error).__name__, "message": str(error)}
    return {
        "schema_version": SCHEMA_VERSION,
        "meta": run.meta,
        "start_ns": run.start_ns,
        "client": asdict(run.client),
        "validity": asdict(run.validity),
        "engine_failure": failure,
        "steps_lost": run.steps.lost,
        "steps_overhead_ns": run.steps.overhead_ns,
        "summary": summary,
    }


def _write_tables(run: Run, folder: Path) -> None:
    rows = {name: getattr(run, name) for name in (*_ROW_COLUMNS, *_LATER_COLUMNS) if name != "error"}
    rows["error"] = [run.error.get(row) for row in run.index.tolist()]
    rows["num_reads"] = np.diff(run.reads_offset)
    _write(folder / "requests.parquet", rows)
    _write(folder / "reads.parquet", {"after_ns": _deltas(run), "tokens": run.read_tokens})
    _write(folder / "steps.parquet", run.steps.steps)
    _write(folder / "chunks.parquet", run.steps.chunks)


def _deltas(run: Run) -> Int64:
    """Time of each read since the one before it, or since its request was sent: small and compressible."""
    before = np.empty_like(run.read_ns)
    before[1:] = run.read_ns[:-1]
    has_reads = np.diff(run.reads_offset) > 0
    before[run.reads_offset[:-1][has_reads]] = run.sent_ns[has_reads]
    return run.read_ns - before


def _times(after_ns: Int64, sent_ns: Int64, offsets: Int64) -> Int64:
    counts = np.diff(offsets)
    total = np.concatenate([[0], np.cumsum(after_ns)])
    times: Int64 = total[1:] - np.repeat(total[offsets[:-1]], counts) + np.repeat(sent_ns, counts)
    return times


def _read(folder: Path, head: Mapping[str, Any]) -> Run:
    rows = _table(folder / "requests.parquet", (*_ROW_COLUMNS, "num_reads"), _LATER_COLUMNS)
    errors = rows.pop("error", ())
    reads = _table(folder / "reads.parquet", ("after_ns", "tokens"))
    offsets = np.concatenate([[0], np.cumsum(rows.pop("num_reads"))]).astype(np.int64)
    if offsets[-1] != len(reads["tokens"]):
        raise ValueError(f"{offsets[-1]} reads are counted, reads.parquet has {len(reads['tokens'])}")
    columns = {name: values.astype(_ROW_DTYPES.get(name, np.int64)) for name, values in rows.items()}
    steps = StepLog(
        _table(folder / "steps.parquet", STEP_COLUMNS), _table(folder / "chunks.parquet", CHUNK_COLUMNS),
        int(head["steps_lost"]), int(head["steps_overhead_ns"]),
    )
    validity = head["validity"]
    return Run(
        **columns, reads_offset=offsets, read_ns=_times(reads["after_ns"], columns["sent_ns"], offsets),
        read_tokens=reads["tokens"].astype(np.int32), start_ns=int(head["start_ns"]), steps=steps,
        client=ClientHealth(**head["client"]), meta=dict(head["meta"]),
        validity=Validity(validity["valid"], tuple(validity["reasons"]), tuple(validity["notes"])),
        engine_failure=_failure(head["engine_failure"]),
        error={row: text for row, text in zip(columns["index"].tolist(), errors, strict=False)
               if text is not None},
    )


def _failure(stored: Mapping[str, str] | None) -> engine_errors.EngineError | None:
    if stored is None:
        return None
    kind: Callable[[str], engine_errors.EngineError] = getattr(engine_errors, stored["kind"])
    return kind(stored["message"])


def _write(file: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({
        name: pa.array(values, type=pa.string() if name == "error" else None)
        for name, values in columns.items()
    })
    pq.write_table(table, file, compression="zstd")


def _table(file: Path, names: tuple[str, ...], if_there: tuple[str, ...] = ()) -> dict[str, Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    names = (*names, *(name for name in if_there if name in table.column_names))
    return {name: table.column(name).to_numpy() for name in names}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
