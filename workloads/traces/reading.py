"""Trace files as traces: told by format, read piece by piece, sieved."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from workloads.errors import UsageError
from workloads.traces.formats import FORMATS, OTHER_NAMES, SNIFF_ORDER, BadRows, TraceFormat
from workloads.traces.opening import file_head
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import PIECE_ROWS, RawRows
from workloads.traces.sieve import Sieve, rows_of
from workloads.traces.trace import Trace


def open_trace(path: str | Path, *, format: str | None = None,
               options: ReadOptions | None = None) -> "TraceReader":
    """A reader of the trace in `path`, which may be packed with gzip or zstd. Without `format` it is told
    from the first lines. UsageError where the file cannot be opened or its format is not known."""
    if not Path(path).name:
        raise UsageError("no trace file is named")
    path = Path(path)
    client = path.with_name(f"{path.name}-trace.csv")   # the stem of a ServeGen client model
    if not path.exists() and client.exists():
        path = client
    return TraceReader(path, _told(path) if format is None else _named(format), options or ReadOptions())


def read_trace(path: str | Path, *, format: str | None = None, options: ReadOptions | None = None) -> Trace:
    """The whole trace of `path` in memory; see open_trace. UsageError where no row can be taken."""
    reader = open_trace(path, format=format, options=options)
    trace = Trace.joined(list(reader.pieces()))
    return replace(trace, rejected=dict(reader.rejected), clipped=reader.clipped)


class TraceReader:
    """Reads one file; what it counts holds for the latest call of `pieces`, as far as it has come."""

    def __init__(self, path: Path, form: TraceFormat, options: ReadOptions) -> None:
        self.path = path
        self.format = form.name
        self.read = 0
        """Rows seen."""
        self.rejected: dict[str, int] = {}
        """Rows left out, by reason."""
        self.clipped = 0
        """Rows whose lengths were cut to fit."""
        self._form = form
        self._options = replace(
            options, time_unit=options.time_unit or form.time_unit,
            block_size=options.block_size or form.block_size, lengths=options.lengths or form.lengths)

    def pieces(self) -> Iterator[Trace]:
        """The trace in pieces of at most PIECE_ROWS requests, from the beginning at every call. UsageError
        for a row that is refused, and at the end where no row was taken."""
        bad = BadRows(self.path, self._options.bad_rows == "skip")
        sieve = Sieve(self._options, bad, self.path.name)
        self.read, self.rejected, self.clipped = 0, bad.rejected, 0
        seen = 0
        for raw in _of_bounded_size(self._form.rows(self.path, self._options, bad)):
            seen += len(raw)
            piece = sieve.take(raw)
            self.read, self.clipped = seen + _unseen(bad, sieve), sieve.clipped
            if piece is not None:
                yield piece
            if sieve.done:
                break
        self.read = seen + _unseen(bad, sieve)
        if not sieve.taken:
            raise UsageError(_nothing(self.path, self._options, bad, seen))


def _of_bounded_size(raws: Iterator[RawRows]) -> Iterator[RawRows]:
    for raw in raws:
        if len(raw) <= PIECE_ROWS:
            yield raw
        else:
            for begin in range(0, len(raw), PIECE_ROWS):
                yield rows_of(raw, slice(begin, begin + PIECE_ROWS))


def _unseen(bad: BadRows, sieve: Sieve) -> int:
    """Rows that the format's reader left out itself."""
    return sum(bad.rejected.values()) - sieve.left_out


def _nothing(path: Path, options: ReadOptions, bad: BadRows, seen: int) -> str:
    if bad.rejected:
        reasons = ", ".join(f"{rows} {kind}" for kind, rows in bad.rejected.items())
        return f"no row of {path} can be used: {reasons}"
    if seen and options.window_s is not None:
        begin, end = options.window_s
        return f"no row of {path} lies between {begin:g} s and {end:g} s from its first row"
    return f"the trace {path} has no rows"


def _named(name: str) -> TraceFormat:
    plain = name.strip().lower().replace("_", "-")
    form = FORMATS.get(OTHER_NAMES.get(plain, plain))
    if form is None:
        raise UsageError(f"unknown trace format {name!r}; known: {', '.join(FORMATS)}")
    return form


def _told(path: Path) -> TraceFormat:
    head = file_head(path)
    for name in SNIFF_ORDER:
        if FORMATS[name].sniff(head, path):
            return FORMATS[name]
    from workloads.traces.json_rows import first_objects

    objects = first_objects(head, 1)
    begins = (f"has the keys {', '.join(key[:40] for key in objects[0])}" if objects else
              f"begins with {_first_line(head)!r}")
    raise UsageError(f"cannot tell the format of {path}, which {begins}; "
                     f"see `tune workload formats` and name it with --format: {', '.join(FORMATS)}")


def _first_line(head: bytes) -> str:
    return head.split(b"\n", 1)[0].strip()[:60].decode(errors="replace")
