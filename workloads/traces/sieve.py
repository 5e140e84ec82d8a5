"""Which rows of a trace file are taken, and what becomes of them: the same rules for every format."""

from dataclasses import fields, replace

import numpy as np

from workloads.errors import UsageError
from workloads.length_file import MAX_TOKENS
from workloads.prompt_parts import PromptBlocks
from workloads.traces.formats import BadRows
from workloads.traces.key_numbers import KeyNumbers
from workloads.traces.options import ReadOptions
from workloads.traces.raw_rows import Bool, Int64, RawRows
from workloads.traces.session_state import SessionSums, TurnOrder
from workloads.traces.trace import Trace

FAILED = "failed"
SHORT = "length below 1"
LARGE = "length above 2147483647"
BACKWARDS = "time runs backwards"
TURN = "turn does not rise"
TOO_LONG = "too long"

_NEVER = -2**63
_LATEST = 2**63 - 1
_NONE = np.zeros(0, np.int64)


class Sieve:
    """Takes the rows of one file piece by piece. What it leaves out it counts in `bad.rejected`; rows that
    are refused are UsageErrors with file and line, the first one of a piece."""

    def __init__(self, options: ReadOptions, bad: BadRows, name: str) -> None:
        self.done = False
        """Whether no later row can be taken, as the window or the number of rows is full."""
        self.clipped = 0
        self.taken = 0
        self.left_out = 0
        self._options, self._bad, self._name = options, bad, name
        begin, end = options.window_s or (0.0, float("inf"))
        self._begin_ns = round(begin * 1e9)
        self._end_ns = _LATEST if end * 1e9 >= _LATEST else round(end * 1e9)
        self._first_ns: int | None = None    # of the file's first usable row: where the window counts from
        self._zero_ns: int | None = None     # of the first row taken: time 0 of the trace
        self._latest_ns = _NEVER
        self._sessions, self._turns, self._turn_order = KeyNumbers(), SessionSums(), TurnOrder()
        self._histories, self._contexts = KeyNumbers(), SessionSums()
        self._groups, self._group_lens = KeyNumbers(), np.zeros(0, np.int64)

    def take(self, raw: RawRows) -> Trace | None:
        """The rows of this piece that are taken; None where there are none."""
        if raw.time_ns is None and self._options.window_s is not None:
            raise UsageError(f"{self._bad.path} has no times: a window of it cannot be taken")
        verdicts: dict[str, Bool] = {}
        usable = self._usable(raw, verdicts)
        raw, usable = self._with_history(raw, usable, verdicts)
        inside = self._inside(raw, usable)
        long = usable & inside & self._too_long(raw)
        kept = usable & inside
        if self._options.too_long == "reject":
            verdicts[TOO_LONG] = long
            kept = kept & ~long
        verdicts[TURN] = self._turn_is_wrong(raw, kept)
        kept = kept & ~verdicts[TURN]
        rows = np.flatnonzero(kept)
        counted = inside
        if self._options.rows is not None and len(rows) >= self._options.rows - self.taken:
            rows = rows[:self._options.rows - self.taken]
            counted = inside & (np.arange(len(raw)) <= rows[-1])
            self.done = True
        self._report(raw, {kind: mask & counted for kind, mask in verdicts.items()})
        if not len(rows):
            return None
        self.taken += len(rows)
        return self._trace(self._fitted(rows_of(raw, rows), long[rows]))

    def _usable(self, raw: RawRows, verdicts: dict[str, Bool]) -> Bool:
        failed = np.zeros(len(raw), np.bool_) if raw.failed is None else raw.failed
        short = ~failed & (np.minimum(raw.input_len, raw.output_len) < 1)
        large = ~failed & ~short & (np.maximum(raw.input_len, raw.output_len) > MAX_TOKENS)
        usable = ~(failed | short | large)
        verdicts.update({FAILED: failed, SHORT: short, LARGE: large})
        if raw.time_ns is None:
            return usable
        times = np.where(usable, raw.time_ns, _NEVER)
        latest = np.maximum.accumulate(np.concatenate([[self._latest_ns], times]))
        backwards = usable & (raw.time_ns < latest[:-1])
        usable &= ~backwards
        self._latest_ns = int(latest[-1])
        if self._first_ns is None and usable.any():
            self._first_ns = int(raw.time_ns[np.argmax(usable)])
        if self._first_ns is not None and self._latest_ns - self._first_ns > _LATEST:
            self._bad.refuse(int(raw.line[np.argmax(times)]),
                             "its time is centuries after that of the first row")
        verdicts[BACKWARDS] = backwards
        return usable

    def _with_history(self, raw: RawRows, usable: Bool, verdicts: dict[str, Bool]) -> tuple[RawRows, Bool]:
        """Full prompt lengths in place of new tokens: the prompt of a turn is that of the turn before, its
        answer, and what is new."""
        if self._options.lengths != "new" or raw.session is None:
            return raw, usable
        rows = np.flatnonzero(usable & (raw.session >= 0))
        history = self._contexts.before(self._histories.of(raw.session[rows]),
                                        raw.input_len[rows] + raw.output_len[rows])
        input_len = raw.input_len.copy()
        input_len[rows] += history
        large = usable & (input_len > MAX_TOKENS)
        verdicts[LARGE] = verdicts[LARGE] | large
        return replace(raw, input_len=input_len), usable & ~large

    def _inside(self, raw: RawRows, usable: Bool) -> Bool:
        """Rows of the window; those that cannot be used are counted there too, if their time is in it."""
        if raw.time_ns is None or self._options.window_s is None:
            return np.ones(len(raw), np.bool_)
        if self._first_ns is None:
            return np.full(len(raw), self._begin_ns == 0)
        since = raw.time_ns - self._first_ns
        self.done = bool(np.any(usable & (since >= self._end_ns)))
        return (since >= self._begin_ns) & (since < self._end_ns)

    def _too_long(self, raw: RawRows) -> Bool:
        if self._options.max_model_len is None:
            return np.zeros(len(raw), np.bool_)
        # Lengths that are not usable may be so large that their sum is no int64.
        sums = np.minimum(raw.input_len, MAX_TOKENS) + np.minimum(raw.output_len, MAX_TOKENS)
        long: Bool = sums > self._options.max_model_len
        return long

    def _turn_is_wrong(self, raw: RawRows, kept: Bool) -> Bool:
        wrong = np.zeros(len(raw), np.bool_)
        if raw.session is not None and raw.turn is not None:
            rows = np.flatnonzero(kept & (raw.session >= 0))
            wrong[rows] = self._turn_order.wrong(self._sessions.of(raw.session[rows]), raw.turn[rows])
        return wrong

    def _report(self, raw: RawRows, verdicts: dict[str, Bool]) -> None:
        bad = [kind for kind in (SHORT, LARGE, BACKWARDS, TURN) if kind in verdicts and verdicts[kind].any()]
        if bad and not self._bad.skip:
            first = min(bad, key=lambda kind: int(np.argmax(verdicts[kind])))
            row = int(np.argmax(verdicts[first]))
            lengths = int(raw.input_len[row]), int(raw.output_len[row])
            self._bad.refuse(int(raw.line[row]), _why(first, *lengths))
        for kind, mask in verdicts.items():
            rows = int(mask.sum())
            self._bad.count(kind, rows)
            self.left_out += rows

    def _fitted(self, raw: RawRows, long: Bool) -> RawRows:
        """The rows cut to max_model_len: their prompts down to one token, then their answers."""
        most = self._options.max_model_len
        if most is None or not long.any():
            return raw
        self.clipped += int(long.sum())
        output_len = np.minimum(raw.output_len, most - 1)
        input_len = np.minimum(raw.input_len, most - output_len)
        return replace(raw, input_len=input_len, output_len=output_len,
                       blocks=None if raw.blocks is None else _cut_blocks(raw.blocks, input_len))

    def _trace(self, raw: RawRows) -> Trace:
        arrival_ns = _NONE
        if raw.time_ns is not None:
            if self._zero_ns is None:
                self._zero_ns = int(raw.time_ns[0])
            arrival_ns = raw.time_ns - self._zero_ns
        session, turn = self._conversations(raw)
        return Trace(
            arrival_ns=arrival_ns, input_len=raw.input_len.astype(np.int32),
            output_len=raw.output_len.astype(np.int32), tenant=_or_none(raw.tenant).astype(np.int16),
            session=session.astype(np.int32), turn=turn.astype(np.int32), think_ns=_or_none(raw.think_ns),
            prefix_group=self._prefix_groups(raw).astype(np.int32),
            prefix_lens=self._group_lens.astype(np.int32), blocks=raw.blocks, tenant_names=raw.tenant_names,
            name=self._name, rejected=dict(self._bad.rejected), clipped=self.clipped)

    def _conversations(self, raw: RawRows) -> tuple[Int64, Int64]:
        """Sessions and turns; turns that the format does not number count the rows of their session."""
        if raw.session is None:
            return _NONE, _NONE
        session = numbered(self._sessions, raw.session)
        if raw.turn is not None:
            return session, raw.turn
        turn = np.zeros(len(raw), np.int64)
        some = session[session >= 0]
        turn[session >= 0] = self._turns.before(some, np.ones_like(some))
        return session, turn

    def _prefix_groups(self, raw: RawRows) -> Int64:
        if raw.prefix_group is None or raw.prefix_len is None:
            return _NONE
        known = len(self._groups)
        groups = numbered(self._groups, raw.prefix_group)
        lens = np.zeros(len(self._groups) - known, np.int64)
        new = np.flatnonzero(groups >= known)[::-1]
        lens[groups[new] - known] = raw.prefix_len[new]   # of equal places the last one written stays
        self._group_lens = np.concatenate([self._group_lens, lens])
        return groups


def rows_of(raw: RawRows, rows: Int64 | slice) -> RawRows:
    """These rows of a piece, in this order."""
    columns = {f.name: value[rows] for f in fields(raw) if f.name not in ("blocks", "tenant_names")
               and (value := getattr(raw, f.name)) is not None}
    at = np.arange(len(raw))[rows] if isinstance(rows, slice) else rows
    return replace(raw, **columns, blocks=None if raw.blocks is None else raw.blocks.take(at))


def numbered(numbers: KeyNumbers, keys: Int64) -> Int64:
    """The numbers of these keys; -1 stays."""
    found = np.full(len(keys), -1, np.int64)
    some = keys >= 0
    found[some] = numbers.of(keys[some])
    return found


def _or_none(column: Int64 | None) -> Int64:
    return _NONE if column is None else column


def _cut_blocks(blocks: PromptBlocks, input_len: Int64) -> PromptBlocks:
    counts = np.diff(blocks.offset)
    kept = np.minimum(counts, -(-input_len // blocks.size))
    within = np.arange(len(blocks.keys)) - np.repeat(blocks.offset[:-1], counts)
    return PromptBlocks(blocks.size, blocks.keys[within < np.repeat(kept, counts)],
                        np.concatenate([[0], np.cumsum(kept)]))


def _why(kind: str, input_len: int, output_len: int) -> str:
    if kind == BACKWARDS:
        return "its time is before that of a row above: sort the file by time"
    if kind == TURN:
        return "its turn is not above those of its session before"
    what, length = ("a prompt", input_len) if not 1 <= input_len <= MAX_TOKENS else ("an answer", output_len)
    if kind == SHORT:
        return f"{what} of {length} tokens; it must be at least 1"
    return f"{what} of more than {MAX_TOKENS} tokens, the most there can be"
