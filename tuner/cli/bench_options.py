"""From the flags of `tune bench` to what is measured: workload, plan, engine, objectives."""

import itertools
import math
from datetime import datetime
from pathlib import Path

from bench import GoodputRules
from tuner.slo import Slo, check_tenants, parse_slo
from workloads import UsageError, Workload, load_workload

_NEED_CURVE = ("fluidity", "stall", "stalled_requests")
_LONGEST_NAME = 200
_INPUT_LEN, _OUTPUT_LEN = 1024, 128
"""The random data set's defaults in `vllm bench serve`."""


def workload_of(preset: str | None, file: str | None, input_len: int | None, output_len: int | None,
                range_ratio: float | None, trace: Workload | None = None) -> Workload:
    """The workload of exactly one of: a preset, a file, lengths, a trace; UsageError otherwise."""
    by_lengths = not (input_len is None and output_len is None and range_ratio is None)
    if (preset is not None) + (file is not None) + by_lengths + (trace is not None) != 1:
        raise UsageError("say what to send with exactly one of --preset NAME, --workload FILE, --trace FILE, "
                         "or --input-len and --output-len")
    if trace is not None:
        return trace
    if by_lengths:
        return Workload.from_lengths(
            _INPUT_LEN if input_len is None else input_len,
            _OUTPUT_LEN if output_len is None else output_len, range_ratio or 0.0)
    return load_workload(preset or file or "")


def slo_of(texts: list[str] | None, workload: Workload, *, fluidity: bool,
           goodput: GoodputRules | None) -> Slo | None:
    """The SLO that was asked for, else the workload's own where this run can judge it, else None.

    UsageError for one that was asked for and that a flag makes impossible to judge.
    """
    if not (texts or workload.objectives):
        return None
    slo = check_tenants(parse_slo(texts or workload.objectives), workload)
    has_rules = goodput is not None or any(tenant.goodput for tenant in workload.tenants.values())
    lacking = [
        f"{objective.key} needs {remedy}" for objective in slo.objectives
        for missing, metrics, remedy in (
            (not fluidity, _NEED_CURVE, "deadlines: leave out --no-fluidity"),
            (not has_rules, ("goodput",), "rules: give --goodput, as in --goodput 'ttft:200 tpot:50'"),
        ) if missing and objective.metric in metrics
    ]
    if lacking and texts:
        raise UsageError(f"--slo {lacking[0]}")
    return None if lacking else slo


def goodput_rules(texts: list[str] | None) -> GoodputRules | None:
    """The rules of all `--goodput` flags together; None without one."""
    return GoodputRules.parse(" ".join(texts)) if texts else None


def goodput_of(rules: GoodputRules | None, *, fluidity: bool) -> GoodputRules | None:
    """The same, where this run can judge them; UsageError where it cannot."""
    if rules is not None and rules.needs_deadlines and not fluidity:
        raise UsageError("--goodput with fluidity or stall needs deadlines: leave out --no-fluidity")
    return rules


def wants_fluidity(asked: bool | None, *, remote: bool, curve_given: bool, slo: list[str] | None,
                   rules: GoodputRules | None, workload: Workload, by_lengths: bool) -> bool:
    """Whether the run needs deadlines. Timing lone prefills is load of our own, which a server that runs
    already gets only where it was asked for, or where an objective cannot be judged without."""
    if asked is not None:
        return asked
    if not remote or curve_given or not by_lengths:
        return True
    texts = slo or workload.objectives
    objectives = parse_slo(texts).objectives if texts else ()
    return (rules is not None and rules.needs_deadlines) or any(o.metric in _NEED_CURVE for o in objectives)


def metadata_of(pairs: list[str] | None) -> dict[str, str]:
    """The pairs of all `--metadata KEY=VALUE`; UsageError for one without a key or `=`."""
    metadata = {}
    for pair in pairs or ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals):
            raise UsageError(f"--metadata {pair!r} is not KEY=VALUE, as in --metadata driver=600.1")
        metadata[key] = value
    return metadata


def above_zero(flag: str, value: float, *, or_zero: bool = False) -> float:
    """`value`, if it is finite and above 0 (or 0 where that is allowed); else a UsageError."""
    if math.isfinite(value) and (value > 0 or (or_zero and value == 0)):
        return value
    bound = "of at least" if or_zero else "above"
    raise UsageError(f"{flag} must be a finite number {bound} 0; got {value:g}")


def within(flag: str, value: float, least: float, most: float) -> float:
    """`value`, if it lies within what can be meant; else a UsageError."""
    if least <= value <= most:
        return value
    raise UsageError(f"{flag} must be between {least:g} and {most:g}; got {value:g}")


def run_directory(home: Path, name: str | None, *, kind: str = "bench") -> Path:
    """Where the run is kept: under its name, or under its kind, the time and, where that is taken, a
    number."""
    if name is not None:
        if len(name.encode(errors="replace")) > _LONGEST_NAME:
            raise UsageError(f"--experiment-name is longer than {_LONGEST_NAME} bytes: shorten it")
        return home / name
    stamp = datetime.now().astimezone().strftime(f"{kind}_%Y%m%d_%H%M%S")
    candidates = itertools.chain([stamp], (f"{stamp}_{number}" for number in itertools.count(2)))
    return next(home / candidate for candidate in candidates if not (home / candidate).exists())
