"""The prefill curve that a single run is judged by: from a file, or measured on the default knobs."""

import json
from dataclasses import replace
from pathlib import Path

from bench import PrefillCurve, measure_prefill_curve
from engine_adapter.clock import Clock
from engine_adapter.errors import NeedsRestart
from engine_adapter.seam import Engine, EngineInfo
from tuner.probe import probe_lengths
from workloads import EvidenceError, UsageError

CURVE_FILE = "prefill_curve.json"
"""Its name within a run directory."""


def load_prefill_curve(path: Path) -> PrefillCurve:
    """The curve in `path`: a run's prefill_curve.json, a study's study.json, or the directory of either.

    UsageError for a file that is missing or holds no curve, EvidenceError for a damaged curve.
    """
    inside = [path / name for name in (CURVE_FILE, "study.json") if (path / name).is_file()]
    file = inside[0] if inside else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the prefill curve {file}: {error.strerror}; give the {CURVE_FILE} of "
                         f"a run or the study.json of a study") from error
    except ValueError as error:
        raise UsageError(f"the prefill curve {file} is not JSON: {error}") from error
    match content:
        case {"state": {"deadlines": {"curve": dict() as curve}}} | ({"tokens": list()} as curve):
            try:
                return PrefillCurve.from_dict(curve)
            except EvidenceError as error:
                raise EvidenceError(f"{file}: {error}") from error
    raise UsageError(f"{file} holds no prefill curve; give the {CURVE_FILE} of a run, or the study.json of a "
                     f"study that came past its probe")


async def measure_reference(
    engine: Engine, info: EngineInfo, longest_prompt: int, *, clock: Clock, salt: str,
) -> tuple[PrefillCurve, EngineInfo, str]:
    """The curve up to `longest_prompt` tokens, the engine as it is afterwards, and a warning or "".

    It is measured on the engine's default knobs, so that a slow setting does not relax its own
    deadlines. An engine that cannot take them live is measured as it is; the warning says so.
    """
    warning = ""
    default = info.default_knobs
    if default is None:
        warning = ("the fluidity deadlines come from this server as it is: to compare servers, give each the "
                   "same --prefill-curve")
    elif info.knobs != default:
        try:
            info = replace(info, knobs=(await engine.apply(default)).knobs)
        except NeedsRestart as why:
            warning = (f"the fluidity deadlines come from this engine's own knobs, not from its defaults "
                       f"({why}): to compare settings, give each the same --prefill-curve")
    curve = await measure_prefill_curve(engine, info, probe_lengths(longest_prompt), clock=clock, salt=salt)
    return curve, info, warning


def misfit(curve: PrefillCurve, info: EngineInfo, longest_prompt: int) -> str:
    """What is wrong with judging a run of `info` by a curve from elsewhere, in one line; "" if nothing."""
    here = {**info.fingerprint, "model": info.model}
    differing = [name for name, value in here.items() if curve.fingerprint.get(name) != value]
    problems = []
    if differing:
        problems.append(f"was measured on another engine (other {', '.join(sorted(differing))})")
    if longest_prompt > curve.tokens[-1]:
        problems.append(f"ends at {curve.tokens[-1]} tokens and is extrapolated to {longest_prompt}")
    return f"the prefill curve {' and '.join(problems)}" if problems else ""
