"""How objectives are written: splitting them, reading their limits, and the canonical spelling."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from bench.catalog import Unit
from workloads.errors import UsageError

_TIME_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_LONGEST_NS = 2**63 - 1
_LARGEST_EXPONENT = 30
"""Numbers beyond ten to this power are refused before they are computed with."""
_REQUEST_RATES = ("request_throughput", "goodput:rate")
"""Rates of requests; every other rate is one of tokens."""
_VLLM_NAMES = {"request_goodput": ("goodput", "rate")}

_COMPARISON = re.compile(r"(?P<figure>[^<>=]+?)\s*(?P<op><=|>=)\s*(?P<value>[^<>=]+)")
_AIPERF = re.compile(r"(?P<figure>[^<>=]+?)\s*:\s*(?P<op>le|ge)\s*:\s*(?P<value>[^<>=:]+)")
_VLLM = re.compile(r"(?P<stat>mean|median|std|p\d+(?:\.\d+)?)_(?P<metric>[a-z0-9_]+?)(?P<ms>_ms)?")
_NUMBER = re.compile(r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,4})?)"
                     r"\s*(?P<unit>[a-z%/]*)")


@dataclass(frozen=True, slots=True)
class ObjectiveParts:
    """The words of an objective, not yet checked against the catalogue."""

    metric: str
    stat: str | None
    op: Literal["<=", ">="]
    number: Decimal
    unit: str
    """As written; empty where there is none."""
    implied_unit: str
    """What an absent unit means for a time: `ms` in AIPerf's and vLLM's forms, else empty."""


def split_objective(text: str) -> ObjectiveParts:
    """The parts of an objective in any form of tuner.slo; case and spaces do not matter.

    Refused with a UsageError: other shapes, and limits that are negative or no finite number.
    """
    lowered = text.strip().lower()
    match = _AIPERF.fullmatch(lowered) or _COMPARISON.fullmatch(lowered)
    if match is None:
        raise UsageError(f"cannot read the objective {text!r}: write METRIC:STAT<=VALUE or >=, "
                         f"as in tbt:p99<=100ms")
    aiperf = match["op"] in ("le", "ge")
    metric, stat, named_ms = _split_figure(match["figure"])
    number, unit = _split_value(match["value"].strip(), text)
    op: Literal["<=", ">="] = "<=" if match["op"] in ("<=", "le") else ">="
    return ObjectiveParts(metric, stat, op, number, unit, "ms" if aiperf or named_ms else "")


def parse_limit(parts: ObjectiveParts, metric: str, stat: str | None, unit: Unit) -> int | float:
    """The limit in the metric's unit: integer nanoseconds for times, else a float.

    Refused with a UsageError: a unit of another kind, a time without one, more precision than a
    nanosecond, and times beyond 64 bits.
    """
    figure = metric if stat is None else f"{metric}:{stat}"
    written = parts.unit
    if unit != "ns":
        known = {"fraction": ("", "%"), "per_s": ("", _rate_unit(figure)), "count": ("",)}[unit]
        if written not in known:
            named = [name or "none" for name in known]
            raise UsageError(f"unknown unit {written!r} for {figure}; known: {', '.join(named)}")
        return float(parts.number / 100 if written == "%" else parts.number)
    written = written or parts.implied_unit
    if not written:
        raise UsageError(f"the limit of {figure} is a time and needs a unit: "
                         f"write {figure}{parts.op}{parts.number}ms (known: {', '.join(_TIME_NS)})")
    if written not in _TIME_NS:
        raise UsageError(f"unknown unit {written!r} for {figure}; known: {', '.join(_TIME_NS)}")
    limit_ns = parts.number * _TIME_NS[written]
    if limit_ns > _LONGEST_NS or limit_ns != int(limit_ns):
        raise UsageError(f"the limit {parts.number}{written} of {figure} is no whole number of nanoseconds "
                         f"below 292 years")
    return int(limit_ns)


def canonical_limit(limit: int | float, metric: str, stat: str | None, unit: Unit) -> str:
    """The one spelling of a limit that parses back to it, with the unit a reader expects."""
    if unit == "ns":
        name = next((name for name in ("s", "ms", "us") if limit >= _TIME_NS[name]), "ns" if limit else "ms")
        return f"{(Decimal(limit) / _TIME_NS[name]).normalize():f}{name}"
    figure = metric if stat is None else f"{metric}:{stat}"
    spelled = repr(float(limit)).removesuffix(".0")
    return spelled + (_rate_unit(figure) if unit == "per_s" else "")


def _split_figure(figure: str) -> tuple[str, str | None, bool]:
    """Metric, statistic, and whether the name itself ends in vLLM's `_ms`."""
    metric, colon, stat = (part.strip() for part in figure.partition(":"))
    if colon:
        return metric, stat, False
    if metric in _VLLM_NAMES:
        return *_VLLM_NAMES[metric], False
    if match := _VLLM.fullmatch(metric):
        return match["metric"], match["stat"], match["ms"] is not None
    return metric, None, False


def _split_value(value: str, text: str) -> tuple[Decimal, str]:
    match = _NUMBER.fullmatch(value)
    number = Decimal(match["number"]) if match else Decimal("nan")
    if match is None or (number and abs(number.adjusted()) > _LARGEST_EXPONENT):
        raise UsageError(f"cannot read the limit {value!r} of {text!r}: write a number and its unit, "
                         f"such as 100ms, 0.99 or 1%")
    if number < 0:
        raise UsageError(f"the limit of {text!r} is negative: limits start at 0")
    return abs(number), match["unit"]


def _rate_unit(figure: str) -> str:
    return "req/s" if figure in _REQUEST_RATES else "tok/s"
