"""Client models of ServeGen: rates and gaps per window, distributions of lengths, from which requests are
drawn as ServeGen itself draws them."""

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.errors import UsageError
from workloads.traces.formats import BadRows
from workloads.traces.opening import file_head, open_bytes, text_lines
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import PIECE_ROWS, RawRows

_TRACE, _DATASET = "-trace.csv", "-dataset.json"
_WINDOW_S = 600.0
"""How long a window is where no other one says it."""
_LAWS = ("Gamma", "Weibull")
_MOST_REQUESTS = 1 << 24
"""Of one window; all its gaps are in memory at once."""
_MOST_BYTES = 1 << 28
_ROW = re.compile(rb"[0-9.]+(,[0-9.eE+-]*){2},(Gamma|Weibull|),[0-9.eE+-]*,[0-9.eE+-]*\s*")


class _Window(NamedTuple):
    line: int
    begin_s: float
    rate_rps: float
    law: str
    shape: float


class _Lengths(NamedTuple):
    values: npt.NDArray[np.int64]
    up_to: npt.NDArray[np.float64]
    """The probability of a length up to each value; the last one is 1."""

    def at(self, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        place = np.searchsorted(self.up_to, shares, side="right").clip(max=len(self.values) - 1)
        lengths: npt.NDArray[np.int64] = self.values[place]
        return lengths


def sniff(head: bytes, path: Path) -> bool:
    """A file of a pair `*-trace.csv` and `*-dataset.json`, the former with rows of the six fields."""
    trace, dataset = _pair(path)
    if path == dataset:
        return trace.exists()
    return path == trace and bool(_ROW.fullmatch(head.split(b"\n", 1)[0]))


def rows(path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
    """Requests of one client, window by window, by `options.seed`. A drawn answer of 0 tokens is a failed
    request, as in the service that was modelled.

    Gaps have the shape of the window's law and are stretched so that the window holds as many requests as its
    rate says; both lengths of a request are drawn at the same share of their distributions. Both are
    ServeGen's own rules (its `construct.py`), but for one: its last request falls on the end of the window.
    """
    if options.columns:
        raise UsageError("a ServeGen client model has no columns to be named")
    trace, dataset = _pair(path)
    spans = _Spans(dataset)
    windows = _windows(trace, bad)
    waiting: list[RawRows] = []
    for number, window in enumerate(windows):
        width = (windows[number + 1].begin_s - window.begin_s if number + 1 < len(windows)
                 else window.begin_s - windows[number - 1].begin_s if number else _WINDOW_S)
        # Rates are counts over the width: rounding noise must not make one more of them.
        count = math.ceil(window.rate_rps * width - 1e-6)
        if count > _MOST_REQUESTS:
            bad.add(window.line, f"{count} requests in one window of {width:g} s")
        elif count > 0:
            waiting.append(_drawn(window, width, count, spans, options.seed))
            if sum(map(len, waiting)) > PIECE_ROWS // 2:   # most windows hold few requests
                yield _together(waiting)
                waiting = []
    if waiting:
        yield _together(waiting)


def _together(pieces: list[RawRows]) -> RawRows:
    return RawRows(**{name: np.concatenate([getattr(piece, name) for piece in pieces])
                      for name in ("line", "time_ns", "input_len", "output_len", "failed")})


def _drawn(window: _Window, width_s: float, count: int, spans: "_Spans", seed: int) -> RawRows:
    rng = np.random.default_rng((seed, window.line))
    gaps = rng.gamma(window.shape, size=count + 1) if window.law == "Gamma" else rng.weibull(window.shape,
                                                                                           size=count + 1)
    total = float(gaps.sum())
    if not (math.isfinite(total) and total > 0):   # a shape near 0
        gaps, total = np.ones(count + 1), float(count + 1)
    times_s = window.begin_s + np.cumsum(gaps[:-1]) * (width_s / total)
    time_ns = np.rint(times_s * 1e9).astype(np.int64)
    shares = rng.random(count)
    input_lens, output_lens = spans.at(window.begin_s)
    output_len = output_lens.at(shares)
    return RawRows(line=np.full(count, window.line), time_ns=time_ns, input_len=input_lens.at(shares),
                   output_len=output_len, failed=output_len == 0)


def _pair(path: Path) -> tuple[Path, Path]:
    """The files of rates and of lengths of the client that `path` belongs to."""
    for end in (_TRACE, _DATASET):
        if path.name.endswith(end):
            stem = path.name.removesuffix(end)
            return path.with_name(stem + _TRACE), path.with_name(stem + _DATASET)
    return path, path.with_name(path.name + _DATASET)


def _windows(path: Path, bad: BadRows) -> list[_Window]:
    file_head(path)   # says what is wrong with a file that is no text
    windows: list[_Window] = []
    for line in text_lines(path):
        if not line.data.strip():
            continue
        try:
            window = _window(line.number, line.data.decode())
            if windows and window.begin_s <= windows[-1].begin_s:
                raise ValueError("its time is not after that of the window above")
            windows.append(window)
        except (ValueError, csv.Error) as error:
            bad.add(line.number,
                    f"no window of a ServeGen client, t_s,rate_req_s,cv,pattern,shape,scale: {error}")
    return windows


def _window(line: int, text: str) -> _Window:
    fields = [field.strip() for field in next(csv.reader([text]))]
    if len(fields) != 6:
        raise ValueError(f"{len(fields)} fields")
    begin_s, rate_rps, shape = (float(fields[i] or 0) for i in (0, 1, 4))
    if not (0 <= begin_s < 9e9 and 0 <= rate_rps < math.inf and math.isfinite(shape)):
        raise ValueError("a number is out of range")
    if rate_rps > 0 and (fields[3] not in _LAWS or shape <= 0):
        raise ValueError(f"{fields[3][:20]!r} with shape {shape:g} is neither of {', '.join(_LAWS)}")
    return _Window(line, begin_s, rate_rps, fields[3], shape)


class _Spans:
    """The distributions of both lengths over time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_bytes(path) as stream:
            text = stream.read(_MOST_BYTES)
        try:
            spans = {float(begin): (fields["input_tokens"], fields["output_tokens"])
                     for begin, fields in json.loads(text).items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path} is no data set of a ServeGen client, "
                             f'{{"0": {{"input_tokens": "{{12: 0.5, …}}", "output_tokens": …}}}}: '
                             f"{type(error).__name__} {error}") from error
        self._begins = sorted(spans)
        self._texts = {begin: texts for begin, texts in sorted(spans.items())
                       if all(isinstance(text, str) and text.strip(" {}") for text in texts)}
        if not self._texts:
            raise UsageError(f"{path} has no lengths: every span is empty")
        self._latest: tuple[float, tuple[_Lengths, _Lengths]] | None = None

    def at(self, time_s: float) -> tuple[_Lengths, _Lengths]:
        """The distributions of prompts and answers of the latest span that has begun; where it is empty, of
        the one that begins nearest."""
        begin = max((begin for begin in self._begins if begin <= time_s), default=self._begins[0])
        if begin not in self._texts:
            begin = min(self._texts, key=lambda other: abs(other - time_s))
        if self._latest is None or self._latest[0] != begin:
            prompts, answers = self._texts[begin]
            self._latest = begin, (self._parsed(prompts, begin), self._parsed(answers, begin))
        return self._latest[1]

    def _parsed(self, text: str, begin: float) -> _Lengths:
        try:
            pairs = [pair.split(":") for pair in text.strip().strip("{}").split(",")]
            values = np.array([float(value) for value, _ in pairs])
            shares = np.array([float(share) for _, share in pairs])
            if not (np.all(values == np.rint(values)) and np.all(np.abs(values) < 2**62)
                    and np.all(shares >= 0) and 0 < shares.sum() < math.inf):
                raise ValueError("lengths are whole numbers, probabilities are 0 or more")
        except ValueError as error:
            raise UsageError(f"{self._path}: the lengths from {begin:g} s cannot be read: {error}") from error
        order = np.argsort(values, kind="stable")
        up_to = np.cumsum(shares[order])
        return _Lengths(values[order].astype(np.int64), up_to / up_to[-1])
