"""Goodput: which requests met every per-request objective."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np

from bench.catalog import ALIASES
from bench.run import Bool, Float64
from workloads.errors import UsageError

TIMES = ("ttft", "tpot", "e2e", "tbt", "itl", "stall")
"""Objectives in time, at most; tbt and itl by the longest gap of a request, stall by its longest."""
_RULE = re.compile(r"\s*([a-z0-9_]+)\s*:\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class GoodputRules:
    """What every good request keeps: times of at most so many ns, a fluidity of at least so much."""

    at_most_ns: Mapping[str, int]
    """By the names of TIMES."""
    fluidity_at_least: float | None = None

    @classmethod
    def parse(cls, text: str | Iterable[str]) -> Self:
        """Rules as `vllm bench serve --goodput` writes them: `ttft:200 tpot:50 e2el:10000`, in milliseconds.

        Also tbt, itl, stall, and `fluidity:0.9`, a fraction. UsageError on anything else.
        """
        at_most: dict[str, int] = {}
        fluidity = None
        for word in text.split() if isinstance(text, str) else text:
            name, value = _rule(word)
            if name in at_most or (name == "fluidity" and fluidity is not None):
                raise UsageError(f"goodput rule {name!r} is given twice: keep one")
            if name == "fluidity":
                fluidity = value
            else:
                at_most[name] = round(value * 1e6)
        if not at_most and fluidity is None:
            raise UsageError("no goodput rule given: write for example ttft:200 tpot:50 (milliseconds)")
        return cls(MappingProxyType(at_most), fluidity)

    @property
    def names(self) -> tuple[str, ...]:
        """The figures of a request that they are about."""
        return (*self.at_most_ns, *(("fluidity",) if self.fluidity_at_least is not None else ()))

    @property
    def needs_deadlines(self) -> bool:
        """Whether they can be judged only against fluidity deadlines."""
        return "stall" in self.at_most_ns or self.fluidity_at_least is not None


@dataclass(frozen=True, slots=True, eq=False)
class GoodRequests:
    """Verdict on each successful request. One that has nothing an objective could judge (no gap in
    a one-token answer) and breaks no other objective is undetermined, neither good nor bad."""

    good: Bool
    undetermined: Bool


def judge_requests(rules: GoodputRules, per_request: Mapping[str, Float64]) -> GoodRequests:
    """`per_request` holds a column for each rule (NaN: nothing to judge), all of one length."""
    columns = [per_request[name] <= limit for name, limit in rules.at_most_ns.items()]
    used = [per_request[name] for name in rules.at_most_ns]
    if rules.fluidity_at_least is not None:
        used.append(per_request["fluidity"])
        columns.append(used[-1] >= rules.fluidity_at_least)
    missing = np.isnan(np.stack(used))
    kept = np.stack(columns)
    open_or_kept = kept | missing
    return GoodRequests(_all(kept), _all(open_or_kept) & ~_all(kept))


def judge_by_rules(sets: Sequence[tuple[Bool, GoodputRules | None]],
                   per_request: Mapping[str, Float64]) -> GoodRequests:
    """Each set of requests by its own rules; `sets` are disjoint masks over all requests. Requests that no
    rule is about are undetermined."""
    requests = len(sets[0][0])
    good, undetermined = np.zeros(requests, dtype=np.bool_), np.ones(requests, dtype=np.bool_)
    for rows, rules in sets:
        if rules is not None:
            judged = judge_requests(rules, {name: per_request[name][rows] for name in rules.names})
            good[rows], undetermined[rows] = judged.good, judged.undetermined
    return GoodRequests(good, undetermined)


def _all(by_rule: Bool) -> Bool:
    together: Bool = np.logical_and.reduce(by_rule, axis=0)
    return together


def _rule(word: str) -> tuple[str, float]:
    known = ", ".join((*TIMES, *ALIASES, "fluidity"))
    match = _RULE.fullmatch(word)
    if match is None:
        raise UsageError(f"goodput rule {word!r} is not NAME:MILLISECONDS, as in ttft:200; names: {known}")
    name = ALIASES.get(match[1], match[1])
    if name not in (*TIMES, "fluidity"):
        raise UsageError(f"unknown goodput rule {match[1]!r}; known: {known}")
    try:
        value = float(match[2])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0) or (name == "fluidity" and value > 1):
        allowed = "a fraction from 0 to 1" if name == "fluidity" else "a number of milliseconds"
        raise UsageError(f"goodput rule {word!r}: the value must be {allowed}")
    return name, value
